"""What transform jobs would come to: shards, bytes, and hours and dollars where a rate and a price are stated. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from corpusmill.endpoints.sagemaker import SageMakerTransform
    from corpusmill.rows.tokens import Interval

BYTES_A_LINE: Final = 160
"""What a line has beside its text: the key, the names of the fields, the ceiling."""

BYTES_A_CHARACTER: Final = 1.15
"""Bytes of UTF-8 and of escapes in JSON for a character of European text; other scripts take up to three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformEstimate:
    """`hours` are those of all instances side by side, `usd` what they cost; None where none is stated."""

    shards: int
    size: int
    hours: float | None
    usd: float | None

    def told(self) -> str:
        """Say it in a line."""
        pieces = [
            f"{self.shards:,} shard{'s' if self.shards != 1 else ''} of about {self.size / 2**20:,.1f} MiB in all"
        ]
        if self.hours is None:
            pieces.append("state tokens_per_second to see the hours")
        else:
            pieces.append(f"about {self.hours:,.1f} hours of work, and some minutes to start")
        if self.usd is not None:
            pieces.append(f"about ${self.usd:,.2f}")
        elif self.hours is not None:
            pieces.append("state price_per_hour to see the cost")
        return f"transform job: {', '.join(pieces)}"


def estimate_transform(
    endpoint: SageMakerTransform, *, requests: int, characters: int, tokens: Interval
) -> TransformEstimate:
    """Estimate the first job for so many requests; `tokens` are those of prompts and answers together."""
    size = int(requests * BYTES_A_LINE + characters * BYTES_A_CHARACTER)
    shards = max(-(-requests // endpoint.shard_rows), -(-size // endpoint.shard_bytes)) if requests else 0
    rate = endpoint.tokens_per_second
    hours = None if rate is None else tokens.expected / (rate * endpoint.instance_count) / 3_600
    price = endpoint.price_per_hour
    usd = None if hours is None or price is None else hours * price * endpoint.instance_count
    return TransformEstimate(shards=shards, size=size, hours=hours, usd=usd)
