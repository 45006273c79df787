"""What a job file may say of Amazon SageMaker: an endpoint that is asked in real time, or transform jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Text = Annotated[str, BeforeValidator(lambda value: getattr(value, "text", value))]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SageMakerModel(_Model):
    """A SageMaker endpoint, asked in real time; credentials are found as by every AWS tool."""

    endpoint_name: Text = Field(description="the endpoint's name, not its ARN")
    region: Text = Field(description="such as eu-north-1")
    model: Text = Field(description="which model answers; it is the identity, whatever way leads to it")
    identity: Text | None = Field(None, description="instead of the model's name, when that is not enough")
    stream: bool = Field(default=False, description="ask by the streaming route; the result is the same")
    inference_component: Text | None = Field(None, description="one of several models at the endpoint")
    target_variant: Text | None = Field(None, description="one production variant of the endpoint")
    target_model: Text | None = Field(None, description="the model file of a multi-model endpoint")
    target_container_hostname: Text | None = Field(None, description="one container of several")
    custom_attributes: Text | None = Field(
        None, description="handed to the container; ASCII, 1,024 characters"
    )
    inference_id: Text | None = Field(None, description="names the calls in captured data")
    session_id: Text | None = Field(None, description="the session that a stateful model goes on with")
    profile: Text | None = Field(None, description="a profile of the AWS configuration")
    endpoint_url: Text | None = Field(None, description="another way to the runtime, such as a VPC endpoint")
    transform_s3: Text | None = Field(
        None,
        description="where transform jobs of the same model lie, whose rows are not asked: s3://bucket/prefix",
    )
    sends_model: bool = Field(default=False, description="name the model in each request")
    max_body_bytes: int | None = Field(
        None, ge=1, description="25 MiB by default; 4 MiB at serverless endpoints"
    )
    context_tokens: int | None = Field(None, ge=1, description="65,536 by default, which is TildeOpen's")
    capabilities: dict[str, Any] | None = Field(
        None, description="what the model can do; TildeOpen's by default"
    )


class SageMakerTransformModel(_Model):
    """A SageMaker model, asked by transform jobs under an S3 prefix."""

    model_name: Text = Field(description="SageMaker's name of the model")
    region: Text = Field(description="such as eu-north-1")
    model: Text = Field(description="which model answers; it is the identity, whatever way leads to it")
    instance_type: Text = Field(description="such as ml.g6.48xlarge")
    s3: Text = Field(description="s3://bucket/prefix, where shards, outputs and notes about jobs lie")
    identity: Text | None = Field(None, description="instead of the model's name, when that is not enough")
    instance_count: int | None = Field(None, ge=1, le=100, description="1 by default")
    content_type: Text | None = Field(None, description="application/jsonlines by default")
    accept: Text | None = Field(None, description="the same as content_type by default")
    split_type: Literal["Line", "None"] | None = Field(None, description="Line by default")
    assemble_with: Literal["Line", "None"] | None = Field(None, description="Line by default")
    batch_strategy: Literal["SingleRecord", "MultiRecord"] | None = Field(
        None, description="SingleRecord by default: a JSON container chokes on several lines"
    )
    wrap: bool | None = Field(None, description='a line is {"id", "request"} (default), or the bare request')
    join: bool | None = Field(
        None, description="join answers to their lines (default), or trust in their order"
    )
    input_filter: Text | None = Field(None, description="a JSONPath; it follows from wrap")
    output_filter: Text | None = Field(None, description="a JSONPath; it follows from wrap and join")
    max_payload_mb: int | None = Field(None, ge=0, le=100, description="6 by default")
    max_concurrent_transforms: int | None = Field(
        None, ge=0, le=100, description="the service's choice by default"
    )
    invocation_timeout: int | None = Field(
        None, ge=1, le=3_600, description="seconds a line; 3,600 by default"
    )
    invocation_retries: int | None = Field(None, ge=0, le=3, description="3 by default")
    environment: dict[str, Text] | None = Field(None, description="variables of the container")
    tags: dict[str, Text] | None = Field(None, description="tags of the jobs")
    kms_key_id: Text | None = Field(None, description="the key that outputs are encrypted with")
    volume_kms_key_id: Text | None = Field(None, description="the key of the instances' volumes")
    shard_rows: int | None = Field(None, ge=1, description="1,000 by default; a shard fails as a whole")
    shard_bytes: int | None = Field(None, ge=1, description="16 MiB by default")
    poll_seconds: float | None = Field(None, gt=0, description="between two looks at a job; 30 by default")
    patience_seconds: float | None = Field(None, gt=0, description="how long AWS may fail to answer; 1,800")
    price_per_hour: float | None = Field(None, ge=0, description="US dollars for an instance, for estimates")
    tokens_per_second: float | None = Field(None, gt=0, description="of an instance, for estimates")
    profile: Text | None = Field(None, description="a profile of the AWS configuration")
    endpoint_url: Text | None = Field(None, description="another way to the control plane of SageMaker")
    s3_endpoint_url: Text | None = Field(None, description="another way to S3")
    sends_model: bool | None = Field(None, description="name the model in each request; false by default")
    context_tokens: int | None = Field(None, ge=1, description="65,536 by default, which is TildeOpen's")
    capabilities: dict[str, Any] | None = Field(
        None, description="what the model can do; TildeOpen's by default"
    )
    real_time: SageMakerModel | None = Field(None, description="whom to ask the rows that no job can answer")
