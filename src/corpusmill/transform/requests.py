"""The arguments of CreateTransformJob, from the settings of an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.endpoints.sagemaker import SageMakerTransform


def job_request(endpoint: SageMakerTransform, name: str, *, source: str, target: str) -> dict[str, Any]:
    """Give the arguments for a job that reads the folder `source`, with a slash at its end, and writes to `target`."""
    input_filter, output_filter = endpoint.filters()
    output: dict[str, Any] = {
        "S3OutputPath": target,
        "Accept": endpoint.accept or endpoint.content_type,
        "AssembleWith": endpoint.assemble_with,
    }
    if endpoint.kms_key_id is not None:
        output["KmsKeyId"] = endpoint.kms_key_id
    resources: dict[str, Any] = {
        "InstanceType": endpoint.instance_type,
        "InstanceCount": endpoint.instance_count,
    }
    if endpoint.volume_kms_key_id is not None:
        resources["VolumeKmsKeyId"] = endpoint.volume_kms_key_id
    request: dict[str, Any] = {
        "TransformJobName": name,
        "ModelName": endpoint.model_name,
        "MaxPayloadInMB": endpoint.max_payload_mb,
        "BatchStrategy": endpoint.batch_strategy,
        "ModelClientConfig": {
            "InvocationsTimeoutInSeconds": endpoint.invocation_timeout,
            "InvocationsMaxRetries": endpoint.invocation_retries,
        },
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source}},
            "ContentType": endpoint.content_type,
            "CompressionType": "None",
            "SplitType": endpoint.split_type,
        },
        "TransformOutput": output,
        "TransformResources": resources,
        "DataProcessing": {
            "InputFilter": input_filter,
            "OutputFilter": output_filter,
            "JoinSource": "Input" if endpoint.join else "None",
        },
    }
    if endpoint.max_concurrent_transforms is not None:
        request["MaxConcurrentTransforms"] = endpoint.max_concurrent_transforms
    if endpoint.environment:
        request["Environment"] = dict(endpoint.environment)
    if endpoint.tags:
        request["Tags"] = [{"Key": key, "Value": value} for key, value in endpoint.tags.items()]
    return request
