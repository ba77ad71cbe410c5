"""The one place where gRPC servers and channels of the runtime are made, and the keys of its turn servers read."""

import ssl

import grpc
import grpc.aio

from cluster_exp.runtime.security.access import TLS_FILES, Access, Role, check_address
from cluster_exp.runtime.security.roles import RoleInterceptor
from cluster_exp.runtime.services import CHANNEL_OPTIONS, SERVER_OPTIONS


def open_channel(address: str, access: Access | None, role: Role) -> grpc.aio.Channel:
    """A channel to `host:port`; with `access` over mutual TLS, presenting the token of `role` with every call.

    Raises:
        InputError: the address is beyond this machine and there is no `access`, or it has no such token.
    """
    check_address("address", address, access)
    if access is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(access.ca, access.key, access.cert),
        grpc.access_token_call_credentials(access.token(role)),
    )
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def make_server(access: Access | None) -> grpc.aio.Server:
    """A server without services; with `access` it looks at the token of each call."""
    return grpc.aio.server(options=SERVER_OPTIONS, interceptors=[RoleInterceptor(access)] if access else [])


def listen(server: grpc.aio.Server, bind: str, access: Access | None) -> int:
    """Has a server listen on `host:port`, port 0 = any; returns the port.

    Raises:
        InputError: the address is beyond this machine and there is no `access`.
        RuntimeError: the address cannot be had.
    """
    check_address("address", bind, access)
    if access is None:
        return server.add_insecure_port(bind)
    pairs = [(access.key, access.cert)]
    credentials = grpc.ssl_server_credentials(pairs, root_certificates=access.ca, require_client_auth=True)
    return server.add_secure_port(bind, credentials)


def turns_context(access: Access) -> ssl.SSLContext:
    """A turn server's end of TLS on both sides. Raises OSError for keys that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # nobody resumes a session
    ca, cert, key = (access.tls_dir / name for name in TLS_FILES)
    context.load_verify_locations(ca)
    context.load_cert_chain(cert, key)
    return context
