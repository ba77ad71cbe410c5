"""What can be expected of jobs whose length nobody knows."""

import numpy as np

from cluster_exp.domain.columns import FloatColumn

_MOST_POINTS = 256  # of a distribution
_BEYOND = 2.0  # jobs that outlived all that ended are taken to last so many times the longest time seen


def survival(ended_s: FloatColumn, lasting_s: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """A distribution of lengths: (lengths in seconds, ascending; their probabilities).

    Jobs that run have lasted so long at least. Leaving them out would make jobs look short, since short ones end
    first. The estimate is that of Kaplan and Meier (1958); what it leaves open lies at twice the longest time seen.

    Args:
        ended_s: lengths of jobs that ended.
        lasting_s: how long jobs have lasted that did not end.
    """
    points, deaths = np.unique(ended_s, return_counts=True)
    ends, lasts = np.sort(ended_s), np.sort(lasting_s)
    at_risk = ends.size - np.searchsorted(ends, points) + lasts.size - np.searchsorted(lasts, points)
    still = np.cumprod(1.0 - deaths / np.maximum(at_risk, 1))
    before = np.concatenate([[1.0], still[:-1]]) if points.size else np.ones(0)
    mass = before - still
    left = still[-1] if points.size else 1.0
    longest_s = max(1.0, float(points[-1]) if points.size else 0.0, float(lasts[-1]) if lasts.size else 0.0)
    lengths, masses = np.append(points, _BEYOND * longest_s), np.append(mass, max(left, 1e-3))
    return _thinned(lengths, masses / masses.sum())


def _thinned(lengths: FloatColumn, masses: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """At most `_MOST_POINTS` points: neighbours of about the same probability together, at their mean."""
    if lengths.size <= _MOST_POINTS:
        return lengths, masses
    bucket = np.minimum((np.cumsum(masses) - masses / 2) * _MOST_POINTS, _MOST_POINTS - 1).astype(np.int64)
    used, number = np.unique(bucket, return_inverse=True)
    mass: FloatColumn = np.bincount(number, masses, used.size).astype(np.float64)
    mean: FloatColumn = np.bincount(number, masses * lengths, used.size) / mass
    return mean, mass


def expected_left_s(served_s: FloatColumn, lengths: FloatColumn, masses: FloatColumn) -> FloatColumn:
    """Service that a job has to be expected to take for each job that it finishes: the inverse Gittins index.

    The index of a job that got a is the supremum over d > 0 of P(S <= a + d | S > a) / E[min(S - a, d) | S > a]; it
    is reached where a + d is a possible length (Gittins 1979; as a policy for training jobs: Tiresias, NSDI'19,
    section 3.3).

    Args:
        served_s: what each job got so far, in seconds alone.
        lengths: possible lengths, ascending.
        masses: their probabilities.

    Returns:
        Seconds alone, above 0. A job that outlived all lengths is taken to be half way.
    """
    mass_sum = np.concatenate([[0.0], np.cumsum(masses)])
    work_sum = np.concatenate([[0.0], np.cumsum(masses * lengths)])
    distinct, place = np.unique(served_s, return_inverse=True)
    first = np.searchsorted(lengths, distinct, side="right")  # shortest possible length of each
    done = mass_sum[1:] - mass_sum[first, np.newaxis]
    rest = mass_sum[-1] - mass_sum[1:]
    spent = work_sum[1:] - work_sum[first, np.newaxis] - done * distinct[:, np.newaxis]
    spent += rest * (lengths - distinct[:, np.newaxis])
    possible = np.arange(lengths.size) >= first[:, np.newaxis]
    ratio = np.where(possible, spent / np.maximum(done, 1e-12), np.inf)
    left: FloatColumn = np.where(first < lengths.size, ratio.min(axis=1), np.maximum(distinct, 1.0))
    return left[place]
