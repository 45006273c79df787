"""A SageMaker model that transform jobs ask: at night, at a fraction of the price, and with nothing to keep running."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from corpusmill.endpoints.openai_compatible import checked_name, merged
from corpusmill.endpoints.sagemaker.names import (
    checked_region,
    checked_resource,
    identity_of_model,
    redact_aws,
    s3_place,
    service_url,
)
from corpusmill.endpoints.sagemaker.tildeopen import TILDEOPEN, check_request
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.endpoints.capabilities import Capabilities
    from corpusmill.endpoints.endpoint import CeilingField
    from corpusmill.endpoints.sagemaker.credentials import AwsCredentials
    from corpusmill.endpoints.sagemaker.real_time import SageMakerEndpoint
    from corpusmill.exchange import Message

LARGEST_PRODUCT: Final = 100
"""`max_payload_mb` times `max_concurrent_transforms` may not be more (service model)."""

WRAPPED_INPUT: Final = "$.request"
WRAPPED_OUTPUT: Final = "$['id','SageMakerOutput']"


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerTransform:
    """A model of Amazon SageMaker, asked by transform jobs that read and write under `s3` (`s3://bucket/prefix`).

    `model_name` is SageMaker's name of the model, `model` says which model it is and is the identity, unless
    `identity` is given: real time, streaming and transform jobs share their answers. Rows that a job cannot answer
    (too long, left over) are asked of `real_time`, where it is given.

    A shard is one object: it fails as a whole, so it is kept modest by `shard_rows` and `shard_bytes`. With `wrap` a
    line is `{"id": key, "request": {...}}` and the filters take the request out and the id back in; without it a line
    is the bare request. `join` off reads the plain output, in the order of the input. `input_filter` and
    `output_filter` replace the filters that follow from these two.

    `poll_seconds` lie between two looks at a job; `patience_seconds` is how long looking may fail. With `wait` off a
    run raises `JobsAtWorkError` instead of waiting for a job, and with `create` off, too, it creates none. The
    credentials are those that botocore finds, or those of `profile`, or `credentials` and no others. `price_per_hour`
    (US dollars for an instance) and `tokens_per_second` (of an instance) are for estimates alone.
    """

    model_name: str
    region: str
    model: str
    instance_type: str
    s3: str
    identity: str = ""
    instance_count: int = 1
    content_type: str = "application/jsonlines"
    accept: str | None = None
    split_type: Literal["Line", "None"] = "Line"
    assemble_with: Literal["Line", "None"] = "Line"
    batch_strategy: Literal["SingleRecord", "MultiRecord"] = "SingleRecord"
    wrap: bool = True
    join: bool = True
    input_filter: str | None = None
    output_filter: str | None = None
    max_payload_mb: int = 6
    max_concurrent_transforms: int | None = None
    invocation_timeout: int = 3_600
    invocation_retries: int = 3
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    kms_key_id: str | None = None
    volume_kms_key_id: str | None = None
    shard_rows: int = 1_000
    shard_bytes: int = 16 << 20
    poll_seconds: float = 30.0
    patience_seconds: float = 1_800.0
    price_per_hour: float | None = None
    tokens_per_second: float | None = None
    profile: str | None = None
    credentials: AwsCredentials | None = None
    endpoint_url: str | None = None
    s3_endpoint_url: str | None = None
    stop_on_interrupt: bool = False
    wait: bool = True
    create: bool = True
    real_time: SageMakerEndpoint | None = None
    sends_model: bool = False
    capabilities: Capabilities = TILDEOPEN
    context_tokens: int | None = field(default=None, repr=False)
    ceiling_field: CeilingField = "max_tokens"
    stream: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse names that could not be sent, and settings that no job would take."""
        put = object.__setattr__
        checked_resource(self.model_name, "model_name")
        checked_region(self.region)
        checked_name(self.model, "model")
        put(self, "identity", checked_name(self.identity or identity_of_model(self.model), "identity"))
        put(self, "capabilities", merged(self.capabilities, self.context_tokens))
        if not self.instance_type.startswith("ml."):
            raise UsageError(f"instance_type is {self.instance_type!r}; it must look like ml.g6.48xlarge")
        s3_place(self.s3, "s3")
        _check_bounds(self)
        service_url("api.sagemaker", self.region, self.endpoint_url)
        if self.real_time is not None and self.real_time.identity != self.identity:
            raise UsageError(
                f"real_time asks {self.real_time.identity!r} and the transform job {self.identity!r}; "
                "both must have the same model, since they share their answers"
            )

    @property
    def bucket(self) -> str:
        """The bucket that jobs read and write."""
        return s3_place(self.s3, "s3")[0]

    @property
    def prefix(self) -> str:
        """The folder in the bucket under which everything lies, "" or with a slash at its end."""
        return s3_place(self.s3, "s3")[1]

    @property
    def url(self) -> str:
        """Where transform jobs are created."""
        return service_url("api.sagemaker", self.region, self.endpoint_url)

    @property
    def headers(self) -> Mapping[str, str]:
        """Give none: no request goes out by HTTP from here."""
        return {}

    def filters(self) -> tuple[str, str]:
        """Give the input and the output filter of a job."""
        output = WRAPPED_OUTPUT if self.wrap and self.join else "$"
        return self.input_filter or (WRAPPED_INPUT if self.wrap else "$"), self.output_filter or output

    def auth_headers(self) -> dict[str, str]:
        """Give none: boto3 signs what it sends."""
        return {}

    def check(self, parameters: Mapping[str, Any], messages: Sequence[Message] | None = None) -> None:
        """Raise `PromptError` for what the container would refuse."""
        check_request(parameters, messages, capabilities=self.capabilities, stream=False)

    def redact(self, text: str) -> str:
        """Mask access keys in a text that came from outside."""
        return redact_aws(text)


def _check_bounds(transform: SageMakerTransform) -> None:
    bounds = {
        "instance_count": (1, 100),
        "max_payload_mb": (0, 100),
        "invocation_timeout": (1, 3_600),
        "invocation_retries": (0, 3),
        "shard_rows": (1, 1_000_000),
        "shard_bytes": (1, 5 << 30),
    }
    for name, (low, high) in bounds.items():
        value = getattr(transform, name)
        if not low <= value <= high:
            raise UsageError(f"{name} is {value}; it must be from {low} to {high}")
    for name in ("poll_seconds", "patience_seconds"):
        if not getattr(transform, name) > 0:
            raise UsageError(f"{name} is {getattr(transform, name)}; it must be more than 0")
    if transform.max_payload_mb * (transform.max_concurrent_transforms or 1) > LARGEST_PRODUCT:
        raise UsageError(
            f"max_payload_mb ({transform.max_payload_mb}) times max_concurrent_transforms "
            f"({transform.max_concurrent_transforms}) must be at most {LARGEST_PRODUCT}"
        )
    if transform.wait and not transform.create:
        raise UsageError("create is off and wait is on, for a job that nobody may start; turn wait off, too")
    if transform.join and transform.split_type != transform.assemble_with:
        raise UsageError("join needs assemble_with to be the same as split_type")
