"""Whatever the bytes, a reader answers with a result or an InputError of one line that names the file."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import default_profiles, read_profiles
from cluster_exp.inputs.traces import read_trace

ROOT = Path(__file__).parents[2]
PROFILES = default_profiles()
CLUSTER = ClusterSpec((NodeSpec("a", 8),))

TRACE = (ROOT / "trace_data" / "small.csv").read_bytes()
CLUSTER_CSV = (ROOT / "cluster_spec" / "n8g8.csv").read_bytes()
PROFILE_CSV = (
    b"model_name,batch_size,num_gpu,iteration_time,resource_time_0,resource_time_1,resource_time_2\nm,1,1,4,1,2,3\n"
)
CLUSTER_YAML = (ROOT / "cluster_spec" / "example.yaml").read_bytes()
PIECES = st.sampled_from(
    (
        *(b"", b",", b"\n", b"\r", b'"', b"'", b"nan", b"-1", b"0", b"1e999", b"9" * 400, b"\0", b"\xff"),
        *(b": ", b"- ", b"{", b"[", b"&a ", b"*a", b"\t", b"!!python/name:os.system", b"|", b"%YAML 1.9\n"),
        *(b'"\\ud800"', b'"\\UFFFFFFFF"', b"0x10", b"1:30", "é٣".encode(), b"<<: ", b"#", b"---\n", b"~"),
        *(b"? ", b"1_0", b"\xef\xbb\xbf", b"\x0b", b"\xe2\x80\xa8"),
    )
) | st.binary(max_size=6)


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """The valid bytes with a few spans replaced."""
    edit = st.tuples(st.integers(0, len(valid)), st.integers(0, 12), PIECES)

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = valid
        for at, width, piece in edits:
            data = data[:at] + piece + data[at + width :]
        return data

    return st.lists(edit, min_size=1, max_size=4).map(apply)


def check(name: str, data: bytes, read) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            read(path)
        except InputError as error:
            message = str(error)
            assert message.startswith(str(path))
            assert len(message.splitlines()) == 1
            assert len(message) < 1_000 + len(str(path))


@pytest.mark.parametrize("drop_unfit", [False, True])
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300) | mutated(TRACE))
def test_the_trace_reader_withstands_anything(drop_unfit, data):
    check("t.csv", data, lambda path: read_trace(path, PROFILES, CLUSTER, drop_unfit=drop_unfit))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200) | mutated(CLUSTER_CSV))
def test_the_cluster_csv_reader_withstands_anything(data):
    check("c.csv", data, read_cluster)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200) | mutated(CLUSTER_YAML) | st.lists(PIECES, max_size=12).map(b"".join))
def test_the_cluster_yaml_reader_withstands_anything(data):
    check("c.yaml", data, read_cluster)


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=200) | mutated(PROFILE_CSV))
def test_the_profile_reader_withstands_anything(data):
    check("p.csv", data, read_profiles)


@settings(max_examples=50, deadline=None)
@given(order=st.permutations(range(12)), ends=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_the_order_of_rows_and_the_form_of_lines_do_not_matter(order, ends, last):
    header, *rows = TRACE.decode().splitlines()
    text = ends.join([header, *(rows[index] for index in order)]) + (ends if last else "")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.encode())
        jobs = read_trace(path, PROFILES).jobs
    assert [job.job_id for job in jobs] == [str(index) for index in range(12)]
