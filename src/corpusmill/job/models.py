"""What a job file may say: its keys, their types and their meaning, in one place.

The JSON schema, the reference in the documentation and the checks are all made from these models.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticCustomError

from corpusmill.job.sagemaker_models import SageMakerModel, SageMakerTransformModel
from corpusmill.policy import DEFAULT_STORE, Mode, no_share

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(ms|s|m|h|d))")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

DURATION = "duration"
"""The type of the error that a duration in none of its forms is."""


def seconds(value: object) -> object:
    """Read `90`, `"90s"`, `"15m"`, `"1h30m"` as seconds; anything else passes on, for Pydantic to refuse."""
    if isinstance(value, str):
        text = value.strip()
        pieces = list(_DURATION.finditer(text))
        if pieces and "".join(piece[0] for piece in pieces).replace(" ", "") == text.replace(" ", ""):
            return sum(float(piece[1]) * _SECONDS[piece[2]] for piece in pieces)
    return value


def _duration(value: object) -> object:
    """Read a duration, or say which forms there are."""
    read = seconds(value)
    if isinstance(read, str):
        try:
            return float(read)
        except ValueError:
            raise PydanticCustomError(
                DURATION,
                "must be a duration: a number of seconds such as 90, or a text such as 90s, 15m or 2h",
            ) from None
    return read


def as_written(value: object) -> object:
    """Give a number back as it was written, for a field that takes text."""
    return getattr(value, "text", value)


Seconds = Annotated[
    float,
    BeforeValidator(_duration),
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
    """Unknown keys are refused, and so are words for truth values and truth values for numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _takes_what_is_meant(cls, value: object, info: ValidationInfo) -> object:
        wanted = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, str) and wanted in (bool, bool | None):
            raise ValueError(f"must be true or false; {value!r} is a text")
        if isinstance(value, bool) and wanted in (int, float, int | None, float | None):
            raise ValueError(f"must be a number; {str(value).lower()} is none")
        return value


class SourceModel(Model):
    """Where the rows come from."""

    path: Text = Field(description="a file, a folder, a glob, or a URL (s3://, gs://)")
    columns: list[Text] | None = Field(None, description="the columns to read; all by default")
    filter: list[list[Any]] | None = Field(
        None,
        description=(
            "[[column, op, value], …], all of which must hold; op is =, ==, !=, <, <=, >, >=, in or not in "
            "(a list of values), is null or is not null (no value)"
        ),
    )
    limit: int | None = Field(None, ge=0, description="the most rows to take")
    rows: tuple[int, int] | None = Field(None, description="[start, stop) of the rows that are left")
    partition_types: dict[str, Text] = Field(
        default_factory=dict, description="Arrow types of hive keys; they are text by default"
    )

    @field_validator("filter", mode="before")
    @classmethod
    def _is_a_list_of_conditions(cls, value: object) -> object:
        """Take a number for the name of a column, and say what to write where one condition stands alone.

        Its value is not shown, for it may be a variable's.
        """
        if (
            isinstance(value, list)
            and len(value) in (2, 3)
            and all(isinstance(one, str) for one in value[:2])
        ):
            alone = f"{value[0]}, {json.dumps(value[1])}" + (", …" if len(value) > 2 else "")  # noqa: PLR2004
            raise ValueError(f"must be a list of conditions; for one alone write [[{alone}]]")
        if isinstance(value, list):
            return [[as_written(one[0]), *one[1:]] if isinstance(one, list) and one else one for one in value]
        return value


class SinkModel(Model):
    """Where the output goes.

    Manifest, report and failures lie in `_corpusmill/` inside a folder, and beside a single file in
    `_<name of the file>.corpusmill/`, such as `_out.parquet.corpusmill/`.
    """

    path: Text = Field(description="a folder, a single .parquet file, or a URL (s3://, gs://)")
    columns: list[Text] | None = Field(None, description="the source columns to keep; all by default")
    partition: dict[str, Text] | None = Field(None, description="write one hive partition: {lang: lv}")
    rows_per_part: int = Field(65_536, ge=1, description="rows of the source in each file of a folder")
    compression: Literal["zstd", "snappy", "gzip", "brotli", "lz4", "none"] = Field(
        "zstd", description="how the pages of Parquet files are compressed"
    )


class OpenAICompatibleModel(Model):
    """Any server that speaks the chat-completions protocol."""

    base_url: Text = Field(description="such as http://127.0.0.1:8000/v1")
    model: Text = Field(description="the model's name at the endpoint")
    api_key: Text | None = Field(None, description="write ${NAME}, and keep the key in the environment")
    identity: Text | None = Field(None, description="which model answers, when several routes lead to it")
    stream: bool = Field(default=False, description="ask for answers in pieces; the result is the same")
    headers: dict[str, Text] | None = Field(None, description="sent with every request; shown nowhere")
    context_tokens: int | None = Field(
        None,
        ge=1,
        description="the size of the context, for prompt and answer together; answers get what a text leaves of it",
    )
    ceiling_field: Literal["max_tokens", "max_completion_tokens"] | None = Field(
        None, description="the name under which the ceiling of an answer is sent"
    )
    capabilities: dict[str, Any] | None = Field(
        None, description="what the endpoint can do, where it differs: {json_schema: false, n: 1, …}"
    )


class SambaNovaModel(Model):
    """SambaNova Cloud; the key is taken from SAMBANOVA_API_KEY."""

    model: Text = Field(description="the model's name at the endpoint")
    api_key: Text | None = Field(None, description="write ${NAME}, and keep the key in the environment")
    base_url: Text | None = Field(None, description="that of the service by default")
    identity: Text | None = Field(None, description="which model answers, when several routes lead to it")
    stream: bool = Field(default=False, description="ask for answers in pieces; the result is the same")
    headers: dict[str, Text] | None = Field(None, description="sent with every request; shown nowhere")
    context_tokens: int | None = Field(
        None,
        ge=1,
        description="the size of the context, for prompt and answer together; answers get what a text leaves of it",
    )
    ceiling_field: Literal["max_tokens", "max_completion_tokens"] | None = Field(
        None, description="the name under which the ceiling of an answer is sent"
    )
    capabilities: dict[str, Any] | None = Field(
        None, description="what the endpoint can do, where it differs: {json_schema: false, n: 1, …}"
    )


class EndpointModel(Model):
    """Who is asked: one of these."""

    openai_compatible: OpenAICompatibleModel | None = None
    sambanova: SambaNovaModel | None = None
    sagemaker: SageMakerModel | None = None
    sagemaker_transform: SageMakerTransformModel | None = None


class StoreModel(Model):
    """Where answers are kept, and how they are used."""

    url: Text = Field(
        DEFAULT_STORE,
        description="sqlite:///relative/path, sqlite:////absolute/path or postgresql://host/database",
    )
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

    concurrency: int = Field(64, ge=1, description="the most requests that are out at once")
    requests_per_minute: float | None = Field(None, gt=0, description="by default what the endpoint says")
    tokens_per_minute: float | None = Field(
        None, gt=0, description="prompt and answer together; by default what the endpoint says"
    )
    patience: Seconds = Field(600.0, description="how long the endpoint may be down before the run ends")
    connect_timeout: Seconds = Field(10.0, description="how long a connection may take to open")
    read_timeout: Seconds = Field(600.0, description="how long an endpoint may say nothing at all")


class RetryModel(Model):
    """How failures of one row are met."""

    attempts: int = Field(
        8, ge=1, description="failures after which a row is given up; rate limits do not count"
    )
    deadline: Seconds = Field(
        900.0, description="for the attempts of a row and the waits between them, not its waits for limits"
    )
    backoff: Seconds = Field(
        0.5, description="the first wait, which doubles, unless the endpoint says how long"
    )
    backoff_max: Seconds = Field(60.0, description="the longest wait of our own")


class FailuresModel(Model):
    """How many rows may fail before nothing is committed."""

    max_failed: float = Field(
        0.05,
        ge=0,
        le=1,
        description="the share of rows, never their number: 0.05 lets 5 % fail, 0 none, 1 all; by prompt, of its rows "
        "that are not blank",
    )
    statuses: list[Text] = Field(
        default_factory=lambda: ["failed", "invalid"],
        description="the outcomes that count as failed; failed and invalid by default",
    )

    @field_validator("max_failed", mode="before")
    @classmethod
    def _is_a_share(cls, value: object) -> object:
        """Say what to write where per cent or a number of rows was written; all else is left to Pydantic."""
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            return value
        if text.endswith("%"):
            raise ValueError(
                f"must be a share of the rows, from 0 to 1: for {number:g} % write {number / 100:g}"
            )
        wrong = no_share(number)
        if wrong is not None:
            raise ValueError(wrong)
        return value


class BudgetModel(Model):
    """The most that a run may spend, over all its shards and retries.

    Before a request is sent, what its text and an answer up to its ceiling would cost is set aside, and a run ends
    where that no longer fits beside what is spent: where answers may be long, well before all is. A lower `max_tokens`
    of the prompt sets less aside.
    """

    tokens: int | None = Field(None, gt=0, description="prompt and answer together")
    usd: float | None = Field(None, gt=0, description="US dollars; needs prices")


class PricesModel(Model):
    """US dollars for a million tokens."""

    prompt: float = Field(ge=0, description="for what is sent")
    completion: float = Field(ge=0, description="for what is answered")
