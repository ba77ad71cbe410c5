"""Which faults a simulation has: `seed=7,workers=2,crashes=5,lost=0.02`."""

from dataclasses import dataclass, fields, replace
from typing import Any

from cluster_exp.domain.errors import InputError

_MOST = 100_000


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """How many faults of each kind, spread over the run, and how likely a message meets one.

    Numbers of seconds are of the run's time.
    """

    seed: int = 0
    masters: int = 0  # the master is killed, at any point of its work, and started again from its log
    workers: int = 0  # a worker is killed with all its trainers, and started again
    cuts: int = 0  # a worker's network is cut, both ways, for a while
    slow: int = 0  # a node computes at a fraction of its speed for a while
    crashes: int = 0  # a trainer crashes
    hangs: int = 0  # a trainer does no iteration any more
    loops: int = 0  # jobs whose trainers crash in every launch
    jumps: int = 0  # the master's clock jumps ahead, as after a suspended machine
    lost: float = 0.0  # probability that a message, or its answer, is lost
    late: float = 0.0  # that it comes seconds late, behind others
    twice: float = 0.0  # that it comes twice, the second time late
    report: float = 1.0  # seconds between a worker's batches
    lease: float = 10.0  # seconds of silence after which a worker counts as lost

    @property
    def calm(self) -> "FaultSpec":
        """The same without faults: what a broken cluster is given to come to its end."""
        return FaultSpec(seed=self.seed, report=self.report, lease=self.lease)


_COUNTS = frozenset({"seed", "masters", "workers", "cuts", "slow", "crashes", "hangs", "loops", "jumps"})
_PROBABILITIES = frozenset({"lost", "late", "twice"})
_NAMES = tuple(field.name for field in fields(FaultSpec))
_MOST_LIKELY = 0.5


def parse_faults(text: str) -> FaultSpec:
    """Reads `NAME=VALUE,...`; what is not named stays as it is. Raises InputError for anything else."""
    spec = FaultSpec()
    named: set[str] = set()
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or name not in _NAMES:
            raise InputError(
                f"{part.strip()!r} given; allowed: NAME=VALUE,... of {', '.join(_NAMES)}", where="--faults"
            )
        if name in named:
            raise InputError(f"{name} is given twice", where="--faults")
        named.add(name)
        given: Any = _count(name, value) if name in _COUNTS else _number(name, value)
        spec = replace(spec, **{name: given})
    if spec.lease < 3 * spec.report:
        raise InputError(f"lease={spec.lease:g} given; allowed: from 3 times report on", where="--faults")
    return spec


def _count(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= _MOST:
        return int(text)
    raise InputError(f"{name}={text} given; allowed: a whole number from 0 to {_MOST}", where="--faults")


def _number(name: str, text: str) -> float:
    least, most = (0.0, _MOST_LIKELY) if name in _PROBABILITIES else (0.01, 1e6)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if least <= value <= most:
        return value
    raise InputError(f"{name}={text} given; allowed: from {least:g} to {most:g}", where="--faults")
