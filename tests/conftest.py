"""Which tests coverage looks at: those that compute for long run the same lines again and again."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The lines that these run are run by quicker tests too; measuring them doubles their time.
NOT_MEASURED = (
    "published",
    "property/test_faults.py",
    "property/test_policies_conformance.py",
    "property/test_storm_readers.py",
    "property/test_turns_deadlock.py",
    "property/test_turns_disturbed.py",
    "property/test_turns_property.py",
    "simulation/test_same_journal.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks them for pytest-cov."""
    for item in items:
        if item.path.relative_to(HERE).as_posix().startswith(NOT_MEASURED):
            item.add_marker(pytest.mark.no_cover)
