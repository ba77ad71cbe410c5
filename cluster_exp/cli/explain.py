"""explain: why a job waited, ran, shared or moved."""

import argparse
from pathlib import Path

HELP = "tells from a journal why a job waited, ran, shared or moved"
EXAMPLE = "cluster-exp explain --journal out/first/journal.jsonl --job 17"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("--journal", required=True, type=Path, metavar="FILE", help="of a run, or its directory")
    parser.add_argument("--job", required=True, metavar="ID", help="the job")
    parser.add_argument("--all", action="store_true", help="leave nothing out of a long story")


def run(arguments: argparse.Namespace) -> int:
    """Prints the lines."""
    from cluster_exp.domain.errors import InputError
    from cluster_exp.results.explain import explain
    from cluster_exp.results.journal import Detail, read_journal
    from cluster_exp.results.run_directory import JOURNAL_FILE

    path = arguments.journal / JOURNAL_FILE if arguments.journal.is_dir() else arguments.journal
    journal = read_journal(path)
    detail = journal.header.get("detail")
    if detail == Detail.NONE.value:
        raise InputError("holds no events; a full or summary journal is needed", where=str(path))
    lines = list(explain(journal, arguments.job, whole=arguments.all))
    print(f"job {arguments.job} under {journal.header.get('policy', 'an unnamed policy')}")
    print("\n".join(lines))
    return 0
