"""How long the fake endpoint takes to answer: a fixed time or a lognormal one, and a few stragglers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from corpusmill.testing.digests import draw

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds between a request and its answer.

    `mean` is the mean of the distribution, `sigma` the standard deviation of its logarithm (0: every request
    takes `mean`). A share of `straggler_share` of the requests takes `straggler_seconds` instead. Between two
    events of a stream lie `chunk_seconds` more.
    """

    mean: float = 0.0
    sigma: float = 0.0
    straggler_share: float = 0.0
    straggler_seconds: float = 30.0
    chunk_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse times and shares that cannot be."""
        if min(self.mean, self.sigma, self.straggler_seconds, self.chunk_seconds) < 0:
            msg = "latency: times and sigma must not be negative"
            raise ValueError(msg)
        if not 0 <= self.straggler_share <= 1:
            msg = "latency: straggler_share must lie between 0 and 1"
            raise ValueError(msg)


def seconds_of(latency: Latency, *, seed: int, digest: str, attempt: int) -> float:
    """Seconds that this attempt at this request takes; the same arguments give the same time."""
    if latency.straggler_share and draw(seed, "straggler", digest, attempt) < latency.straggler_share:
        return latency.straggler_seconds
    if not latency.mean or not latency.sigma:
        return latency.mean
    location = math.log(latency.mean) - latency.sigma**2 / 2
    # Zero has no place in the inverse of the distribution; half the smallest step does.
    share = draw(seed, "latency", digest, attempt) or 2.0**-54
    return math.exp(location + latency.sigma * _NORMAL.inv_cdf(share))
