"""certs: keys, certificates and tokens for a testbed of several machines."""

import argparse
from pathlib import Path

from cluster_exp.domain.errors import InputError

HELP = "makes a testbed's own certificates and tokens"
EXAMPLE = "cluster-exp certs --out certs --hosts 10.0.0.1,10.0.0.2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new directory")
    parser.add_argument(
        "--hosts", required=True, metavar="HOST[,HOST...]", help="names or IP addresses, as the others call them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes them and says where they belong."""
    import datetime

    try:
        from cluster_exp.runtime.security.certificates import write_certificates
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("cryptography"):
            raise
        raise InputError("needs the package cryptography: pip install 'cluster-exp[certs]'", where="certs") from None
    hosts = arguments.hosts.split(",")
    write_certificates(arguments.out, hosts, datetime.datetime.now(datetime.UTC))
    print(f"{arguments.out}/HOST to its host, as --tls; tokens/master and tokens/worker as --token-file")
    return 0
