"""A worker that does not see the master's checkpoint folder is told so; names of files never collide."""

import dataclasses
import stat

import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.checkpoints import check_shared, open_shared
from cluster_exp.runtime.names import file_name


def test_the_same_folder_is_known_again_and_is_private(tmp_path):
    rules = open_shared(tmp_path / "a" / "b", 5)
    check_shared(rules)
    assert rules.every == 5
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [".cluster-exp-mark"]


def test_another_folder_under_the_same_path_is_refused(tmp_path):
    rules = open_shared(tmp_path, 5)
    open_shared(tmp_path, 5)
    with pytest.raises(InputError, match="another folder lies there; a path that the master and all workers share"):
        check_shared(rules)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_a_folder_that_is_not_there_is_refused(tmp_path, content):
    rules = dataclasses.replace(open_shared(tmp_path, 5), directory=str(tmp_path / "elsewhere"))
    if content is not None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / ".cluster-exp-mark").write_bytes(content)
    with pytest.raises(InputError, match="no such folder is seen here"):
        check_shared(rules)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_option(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--checkpoint-dir: .*/file/below: cannot be written to: Not a directory"):
        open_shared(tmp_path / "file" / "below", 0)


def test_names_of_files_are_short_safe_and_distinct():
    long = [f"{'x' * 300}{end}" for end in "ab"]
    names = [file_name(name, 60) for name in ("plain", "a/b", "a%2Fb", "..", "%2E%2E", "ü" * 40, *long)]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 60 and "/" not in name and name not in (".", "..") for name in names)
    assert file_name("trace-7_x") == "trace-7_x"
