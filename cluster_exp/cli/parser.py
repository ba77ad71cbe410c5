"""Verbs, their options, and what becomes of errors.

A verb is a module with `HELP`, `EXAMPLE`, `add_arguments(parser)` and `run(arguments) -> exit code`. What is heavy
is imported inside `run`, so that --help answers at once.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol

from cluster_exp import __version__
from cluster_exp.cli import (
    calc,
    certs,
    demo,
    explain,
    generate,
    policies,
    profile,
    replay,
    reproduce,
    resume,
    run,
    sweep,
    worker,
)
from cluster_exp.domain.errors import InputError

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


class Verb(Protocol):
    """What a verb's module offers."""

    HELP: str
    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the verb's options."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Does it; returns the exit code."""
        ...


VERBS: dict[str, Verb] = {
    "run": run,
    "resume": resume,
    "calc": calc,
    "demo": demo,
    "policies": policies,
    "profile": profile,
    "generate": generate,
    "replay": replay,
    "explain": explain,
    "reproduce": reproduce,
    "sweep": sweep,
    "worker": worker,
    "certs": certs,
}


def _complain(message: str) -> None:
    """Writes one line, also where a path or a name has line breaks."""
    sys.stderr.write(f"error: {' '.join(message.splitlines())}\n")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and the exit code of bad input."""
        _complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(EXIT_BAD_INPUT)


def build_parser(chosen: str) -> argparse.ArgumentParser:
    """The parser of all verbs, with the options of the chosen one only: another's may need heavy imports."""
    parser = _Parser(
        prog="cluster-exp",
        description="Scheduler, runtime and simulator for clusters that train many deep-learning jobs.",
        epilog="Without a verb, options go to 'run': 'run.py --policy srsf ...' is 'run.py run --policy srsf ...'.\n"
        f"\nexample:\n  {run.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cluster-exp {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=verb.HELP,
            description=verb.HELP[0].upper() + verb.HELP[1:] + ".",
            epilog=f"example:\n  {verb.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == chosen:
            verb.add_arguments(sub)
    return parser


def main(argv: Sequence[str]) -> int:
    """Runs one command; returns the exit code: 0, 1 it failed, 2 bad input, 130 interrupted."""
    words = list(argv)
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "run")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        arguments = build_parser(words[0] if words else "").parse_args(words)
        arguments.command_line = words[1:]  # without the verb
        return VERBS[arguments.verb].run(arguments)
    except InputError as error:
        _complain(str(error))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except OSError as error:
        _complain(str(error))
        return EXIT_FAILED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_FAILED
