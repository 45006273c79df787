"""A SageMaker endpoint, asked in real time: by plain calls, or as a stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

from corpusmill.endpoints.openai_compatible import checked_name, merged
from corpusmill.endpoints.sagemaker.names import (
    checked_attribute,
    checked_region,
    checked_resource,
    identity_of_model,
    redact_aws,
    s3_place,
    service_url,
)
from corpusmill.endpoints.sagemaker.tildeopen import TILDEOPEN, check_request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from corpusmill.endpoints.capabilities import Capabilities
    from corpusmill.endpoints.endpoint import CeilingField
    from corpusmill.endpoints.sagemaker.credentials import AwsCredentials
    from corpusmill.exchange import Message

LARGEST_BODY: Final = 25 << 20
"""Bytes that the body of a call may have; 4 MiB at a serverless endpoint."""

_PREFIX = "x-amzn-sagemaker-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerEndpoint:
    """A model behind an endpoint of Amazon SageMaker.

    `model` says which model answers and is the identity, unless `identity` is given; the name of the endpoint and the
    way to it are no part of it, so that real time, streaming and transform jobs share their answers. The credentials
    are those that botocore finds (environment, profile, SSO, role of the machine), or those of `profile`, or
    `credentials` and no others.

    `inference_component`, `target_variant`, `target_model`, `target_container_hostname`, `custom_attributes`,
    `inference_id` and `session_id` are handed to the service as they are. `endpoint_url` leads to the runtime by
    another way, a VPC endpoint say. The body names the model only with `sends_model`: the container serves one.
    `max_body_bytes` is the service's bound on a body. Rows that an open transform job under `transform_s3` holds
    (`s3://bucket/prefix`) are not asked. The capabilities are those of TildeOpen unless others are given.
    """

    endpoint_name: str
    region: str
    model: str
    identity: str = ""
    stream: bool = False
    inference_component: str | None = None
    target_variant: str | None = None
    target_model: str | None = None
    target_container_hostname: str | None = None
    custom_attributes: str | None = None
    inference_id: str | None = None
    session_id: str | None = None
    profile: str | None = None
    credentials: AwsCredentials | None = None
    endpoint_url: str | None = None
    transform_s3: str | None = None
    sends_model: bool = False
    max_body_bytes: int = LARGEST_BODY
    capabilities: Capabilities = TILDEOPEN
    context_tokens: int | None = field(default=None, repr=False)
    ceiling_field: CeilingField = "max_tokens"

    def __post_init__(self) -> None:
        """Refuse names that could not be sent."""
        put = object.__setattr__
        checked_resource(self.endpoint_name, "endpoint_name")
        checked_region(self.region)
        checked_name(self.model, "model")
        put(self, "identity", checked_name(self.identity or identity_of_model(self.model), "identity"))
        for name in ("inference_component", "target_variant"):
            if getattr(self, name) is not None:
                checked_resource(getattr(self, name), name)
        for name in (
            "target_model",
            "target_container_hostname",
            "custom_attributes",
            "inference_id",
            "session_id",
        ):
            if getattr(self, name) is not None:
                put(self, name, checked_attribute(getattr(self, name), name))
        if self.transform_s3 is not None:
            s3_place(self.transform_s3, "transform_s3")
        put(self, "capabilities", merged(self.capabilities, self.context_tokens))
        service_url("runtime.sagemaker", self.region, self.endpoint_url)

    @property
    def url(self) -> str:
        """Where the model is asked."""
        route = "invocations-response-stream" if self.stream else "invocations"
        service = service_url("runtime.sagemaker", self.region, self.endpoint_url)
        return f"{service}/endpoints/{self.endpoint_name}/{route}"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the service that every call carries."""
        told = {
            "inference-component": self.inference_component,
            "target-variant": self.target_variant,
            "target-model": self.target_model,
            "target-container-hostname": self.target_container_hostname,
            "custom-attributes": self.custom_attributes,
            "inference-id": self.inference_id,
            "session-id": self.session_id,
            # On the streaming route this is what the container is told to be accepted.
            "accept": "text/event-stream" if self.stream else None,
        }
        accept = {
            "accept": "application/vnd.amazon.eventstream, text/event-stream"
            if self.stream
            else "application/json"
        }
        return accept | {_PREFIX + name: value for name, value in told.items() if value is not None}

    def as_stream(self) -> Self:
        """Give the same endpoint, asked by its streaming route."""
        return replace(self, stream=True)

    def auth_headers(self) -> dict[str, str]:
        """Give none: each attempt is signed anew, when it is sent."""
        return {}

    def check(self, parameters: Mapping[str, Any], messages: Sequence[Message] | None = None) -> None:
        """Raise `PromptError` for what the container would refuse."""
        check_request(parameters, messages, capabilities=self.capabilities, stream=self.stream)

    def redact(self, text: str) -> str:
        """Mask access keys in a text that came from outside."""
        return redact_aws(text)
