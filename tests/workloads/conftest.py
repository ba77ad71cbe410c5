"""Small data sets of real files, and what all these tests have in common."""

from pathlib import Path

import pytest
import torch

from workloads import data

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.workloads)


@pytest.fixture(autouse=True)
def settings_of_torch():
    """One thread, as several tests run at once; and what a script sets for its process is set back."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(exact)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 JPEG files of 4 classes."""
    out = tmp_path_factory.mktemp("images")
    assert data.main(["make", "images", "--out", str(out), "--size", "24", "--classes", "4", "--pixels", "80"]) == 0
    return out


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 KiB of sentences."""
    out = tmp_path_factory.mktemp("text")
    assert data.main(["make", "text", "--out", str(out), "--size", "60"]) == 0
    return out / "train.txt"
