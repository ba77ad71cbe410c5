"""Options of policies: `NAME:key=value:key=value` chooses a variant of a policy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster_exp.domain.errors import InputError


@dataclass(frozen=True, slots=True)
class Option:
    """One key: what may stand behind it, and what that means."""

    allowed: str  # in words, for errors
    parse: Callable[[str], Any]  # raises ValueError


def choice(values: Mapping[str, Any]) -> Option:
    """One of some words, each with its meaning."""

    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return Option(", ".join(values), parse)


def number(least: float, unit: str = "") -> Option:
    """A finite number, not below `least`."""

    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value >= least):
            raise ValueError(text)
        return value

    return Option(f"from {least:g}{' ' + unit if unit else ''} on", parse)


FILE = Option("a file that exists", str)  # whoever makes the policy reads it and passes on what it holds
SWITCH = choice({"on": True, "off": False})


def parse_options(spec: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """The options of `NAME:key=value...` by key. Raises InputError for an unknown or repeated key, or a bad value."""
    values: dict[str, Any] = {}
    name, *words = spec.split(":")
    for word in words:
        key, _, text = word.partition("=")
        if key not in options:
            known = f"allowed: {', '.join(options)}" if options else "it has none"
            raise InputError(f"unknown option {key!r} of policy {name!r}; {known}", where="--policy")
        if key in values:
            raise InputError(f"option {key!r} of policy {name!r} is given twice", where="--policy")
        try:
            values[key] = options[key].parse(text)
        except ValueError:
            raise InputError(
                f"{text!r} given for option {key!r} of policy {name!r}; allowed: {options[key].allowed}",
                where="--policy",
            ) from None
    return values
