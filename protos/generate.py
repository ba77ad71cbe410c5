"""Writes Python stubs (`*_pb2.py`, `*_pb2.pyi`, `*_pb2_grpc.py`) for every .proto file in this folder.

A file at `protos/a/b/x.proto` gives the module `a.b.x_pb2`. Both `make rpc` and `setup.py` call it.
"""

import sys
from pathlib import Path


def generate(source: Path, out: Path) -> int:
    """Writes the stubs of all .proto files under `source` to the same folders under `out`.

    Returns how many files there were. Raises RuntimeError when the compiler refuses them; it has then printed
    the reasons.
    """
    import grpc_tools
    from grpc_tools import protoc

    files = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.proto"))
    if not files:
        return 0
    includes = [f"-I{source}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", *includes, *outputs, *files]) != 0:
        raise RuntimeError(f"protoc refused a file under {source}: see above")
    return len(files)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    try:
        print(f"stubs written for {generate(here, here.parent)} .proto files")
    except RuntimeError as error:
        sys.exit(str(error))
