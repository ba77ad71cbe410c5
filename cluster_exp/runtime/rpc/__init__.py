"""Stubs of the gRPC services, written from `protos/` by `make rpc` and by every installation."""
