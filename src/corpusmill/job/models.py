"""What a job file may say: its keys, their types and their meaning, in one place.

The JSON schema, the reference in the documentation and the checks are all made from these models.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

DEFAULT_STORE = "sqlite:///.corpusmill/store.db"

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(ms|s|m|h|d))")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds(value: object) -> object:
    """Read `90`, `"90s"`, `"15m"`, `"1h30m"` as seconds; anything else passes on, for Pydantic to refuse."""
    if isinstance(value, str):
        text = value.strip()
        pieces = list(_DURATION.finditer(text))
        if pieces and "".join(piece[0] for piece in pieces).replace(" ", "") == text.replace(" ", ""):
            return sum(float(piece[1]) * _SECONDS[piece[2]] for piece in pieces)
    return value


def as_written(value: object) -> object:
    """Give a number back as it was written, for a field that takes text."""
    return getattr(value, "text", value)


Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$"},
            ],
            "description": "seconds, or a text such as 90s, 15m, 1h30m",
        }
    ),
]
Text = Annotated[str, BeforeValidator(as_written)]


class Model(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceModel(Model):
    """Where the rows come from."""

    path: Text = Field(description="a file, a folder, a glob, or a URL (s3://, gs://)")
    columns: list[Text] | None = Field(None, description="the columns to read; all by default")
    filter: list[list[Any]] | None = Field(
        None, description="[[column, op, value], …], all of which must hold"
    )
    limit: int | None = Field(None, ge=0, description="the most rows to take")
    rows: tuple[int, int] | None = Field(None, description="[start, stop) of the rows that are left")
    partition_types: dict[str, Text] = Field(
        default_factory=dict, description="Arrow types of hive keys; they are text by default"
    )


class SinkModel(Model):
    """Where the output goes."""

    path: Text = Field(description="a folder, a single .parquet file, or a URL (s3://, gs://)")
    columns: list[Text] | None = Field(None, description="the source columns to keep; all by default")
    partition: dict[str, Text] | None = Field(None, description="write one hive partition: {lang: lv}")
    rows_per_part: int = Field(65_536, ge=1, description="rows of the source in each file of a folder")


class OpenAICompatibleModel(Model):
    """Any server that speaks the chat-completions protocol."""

    base_url: Text
    model: Text
    api_key: Text | None = Field(None, description="write ${NAME}, and keep the key in the environment")
    identity: Text | None = Field(None, description="which model answers, when several routes lead to it")
    stream: bool = False
    headers: dict[str, Text] | None = None
    context_tokens: int | None = Field(None, ge=1)
    ceiling_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    capabilities: dict[str, Any] | None = None


class SambaNovaModel(Model):
    """SambaNova Cloud; the key is taken from SAMBANOVA_API_KEY."""

    model: Text
    api_key: Text | None = Field(None, description="write ${NAME}, and keep the key in the environment")
    base_url: Text | None = None
    identity: Text | None = None
    stream: bool = False
    headers: dict[str, Text] | None = None
    context_tokens: int | None = Field(None, ge=1)
    capabilities: dict[str, Any] | None = None


class EndpointModel(Model):
    """Who is asked: one of these."""

    openai_compatible: OpenAICompatibleModel | None = None
    sambanova: SambaNovaModel | None = None


Mode = Literal["read-write", "read-only", "replay", "refresh", "off"]


class StoreModel(Model):
    """Where answers are kept, and how they are used."""

    url: Text = DEFAULT_STORE
    mode: Mode = Field(
        "read-write",
        description=(
            "read-only: misses go to a throwaway store; replay: a miss is an error; refresh: only answers younger "
            "than this run's first start; off: a throwaway store"
        ),
    )
    refresh: list[Literal["completed", "truncated", "refused", "filtered", "invalid", "failed"]] | None = (
        Field(None, description="refresh only the rows whose stored answer has one of these statuses")
    )


class LimitsModel(Model):
    """How fast the endpoint may be asked."""

    concurrency: int = Field(64, ge=1)
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    patience: Seconds = Field(600.0, description="how long the endpoint may be down before the run ends")
    connect_timeout: Seconds = 10.0
    read_timeout: Seconds = 600.0


class RetryModel(Model):
    """How failures of one row are met."""

    attempts: int = Field(8, ge=1)
    deadline: Seconds = 900.0
    backoff: Seconds = 0.5
    backoff_max: Seconds = 60.0


class FailuresModel(Model):
    """How many rows may fail before nothing is committed."""

    max_failed: float = Field(0.05, ge=0, le=1)
    statuses: list[Text] = Field(default_factory=lambda: ["failed", "invalid"])


class BudgetModel(Model):
    """The most that a run may spend, over all its shards and retries."""

    tokens: int | None = Field(None, gt=0)
    usd: float | None = Field(None, gt=0)


class PricesModel(Model):
    """US dollars for a million tokens."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
