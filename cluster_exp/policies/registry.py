"""All policies by name: one row each."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.policy import Policy
from cluster_exp.policies import antman, drf, gittins, las, muri, queue, themis, tiresias, weave
from cluster_exp.policies.options import FILE, Option, parse_options


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy's entry."""

    name: str
    description: str  # one line
    make: Callable[..., Policy]  # takes the options by their keys
    options: Mapping[str, Option] = field(default_factory=dict)  # each has a default


POLICIES: dict[str, PolicyRow] = {
    row.name: row
    for row in (
        PolicyRow("fifo", "first in, first out; no preemption", queue.fifo),
        PolicyRow("sjf", "shortest stated duration first; no preemption", queue.sjf),
        PolicyRow("srtf", "shortest remaining time first", queue.srtf),
        PolicyRow("srsf", "shortest remaining time x GPUs first", queue.srsf),
        PolicyRow("las", "least attained service first; durations unknown", las.las),
        PolicyRow(
            "tiresias",
            "least attained service in queues; durations unknown",
            tiresias.tiresias,
            tiresias.OPTIONS,
        ),
        PolicyRow(
            "gittins",
            "most likely to finish soon, learnt from finished jobs; durations unknown",
            gittins.gittins,
            gittins.OPTIONS,
        ),
        PolicyRow("drf", "equal dominant shares between users; durations unknown", drf.drf, drf.OPTIONS),
        PolicyRow("themis", "least finish-time ratio for the worst job", themis.themis, themis.OPTIONS),
        PolicyRow("antman", "guaranteed jobs undisturbed, opportunistic ones in what they leave", antman.antman),
        PolicyRow(
            "muri-s",
            "interleaves jobs of one GPU count, shortest remaining service first",
            muri.muri_s,
            muri.OPTIONS,
        ),
        PolicyRow(
            "muri-l",
            "interleaves jobs of one GPU count, least attained service first; durations unknown",
            muri.muri_l,
            muri.OPTIONS,
        ),
        PolicyRow("weave-s", "decides at once who runs and who shares", weave.weave_s, weave.OPTIONS_S),
        PolicyRow(
            "weave-l",
            "decides at once who runs and who shares; durations unknown, learnt from finished jobs",
            weave.weave_l,
            weave.OPTIONS_L,
        ),
    )
}

# The names that Muri's published simulator gives its schedules.
ALIASES: dict[str, str] = {
    "shortest": "srtf",
    "shortest-gpu": "srsf",
    "dlas-gpu": "tiresias",
    "multi-resource-blossom-same-gpu": "muri-s",
    "multi-resource-blossom-same-gpu-unaware": "muri-l",
    "multi-resource-blossom-same-gpu-unaware-worstordering": "muri-l:order=worst",
    "multi-resource-gpu-unaware": "muri-l:grouping=chunks",
}


def policy_names() -> tuple[str, ...]:
    """Names of all policies, in the order of the registry."""
    return tuple(POLICIES)


def describe(name: str) -> str:
    """One line on a policy. Raises InputError for an unknown name."""
    return _row(name).description


def make_policy(spec: str, read_file: Callable[[str], Any] | None = None) -> Policy:
    """A policy by NAME or NAME:key=value...; its name is the spec.

    `read_file` turns the path behind an option that names a file into what the policy takes: policies read no files.

    Raises:
        InputError: no policy has this name (the nearest is told), it has no such option or value, or a file is named
            and there is nothing to read it with.
    """
    name, *options = spec.split(":")
    spec = ":".join([ALIASES.get(name, name), *options])
    row = _row(spec.split(":")[0])
    values = parse_options(spec, row.options)
    for key in values:
        if row.options[key] is FILE:
            if read_file is None:
                raise InputError(f"option {key!r} of policy {name!r} names a file, none can be read here", where=spec)
            values[key] = read_file(values[key])
    return row.make(spec, **values) if row.options else row.make()


def _row(name: str) -> PolicyRow:
    if name in POLICIES:
        return POLICIES[name]
    near = difflib.get_close_matches(name, [*POLICIES, *ALIASES], n=1, cutoff=0.0)
    raise InputError(
        f"unknown policy {name!r}; nearest is {near[0]!r}; allowed: {', '.join(POLICIES)}", where="--policy"
    )
