"""The fake control plane, judged by the unmodified boto3: every operation, every field that changes what a job does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from corpusmill.testing import expected_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpusmill.testing.sagemaker import FakeSageMaker


def request_of(text: str, **more: Any) -> dict[str, Any]:
    """Make a request of the container."""
    return {"messages": [{"role": "user", "content": text}], **more}


def put_lines(s3: Any, bucket: str, key: str, lines: Sequence[Any]) -> None:
    """Write JSON Lines to S3."""
    s3.put_object(Bucket=bucket, Key=key, Body=b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def get_lines(s3: Any, bucket: str, key: str) -> list[Any]:
    """Read JSON Lines from S3."""
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    assert body.endswith(b"\n")
    return [json.loads(line) for line in body.removesuffix(b"\n").split(b"\n")]


def keys_of(s3: Any, bucket: str, prefix: str = "out/") -> list[str]:
    """List the keys under a prefix."""
    return [found["Key"] for found in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())]


def job_of(bucket: str, name: str = "job-1", **changes: Any) -> dict[str, Any]:
    """Give the arguments of a job that splits lines and joins them again; `changes` replace whole arguments."""
    return {
        "TransformJobName": name,
        "ModelName": "tildeopen-30b-64k",
        "BatchStrategy": "SingleRecord",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/in/"}},
            "ContentType": "application/jsonlines",
            "SplitType": "Line",
        },
        "TransformOutput": {"S3OutputPath": f"s3://{bucket}/out", "AssembleWith": "Line"},
        "TransformResources": {"InstanceType": "ml.g6.48xlarge", "InstanceCount": 1},
        **changes,
    }


def run(fake: FakeSageMaker, sagemaker: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Create a job, wait for its end, and describe it."""
    sagemaker.create_transform_job(**job)
    assert fake.jobs.jobs[job["TransformJobName"]].over.wait(30)
    found: dict[str, Any] = sagemaker.describe_transform_job(TransformJobName=job["TransformJobName"])
    return found


def test_a_job_answers_each_line_in_order(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """One object a shard, `.out` behind its name under the same folders, a completion a line."""
    put_lines(s3, bucket, "in/deep/a.jsonl", [request_of(f"text {row}") for row in range(5)])
    put_lines(s3, bucket, "in/b.jsonl", [request_of("another")])
    found = run(fake, boto("sagemaker"), job_of(bucket))
    assert found["TransformJobStatus"] == "Completed"
    assert keys_of(s3, bucket) == ["out/b.jsonl.out", "out/deep/a.jsonl.out"]
    answers = get_lines(s3, bucket, "out/deep/a.jsonl.out")
    assert [one["choices"][0]["message"]["content"] for one in answers] == [
        expected_answer(request_of(f"text {row}")["messages"]) for row in range(5)
    ]


def test_a_job_joins_as_the_reference_page_shows(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """The original object with the answer under SageMakerOutput; its keys may come in another order."""
    asked = request_of("Man patīk pīrāgi.", max_tokens=256, temperature=0.0)
    put_lines(s3, bucket, "in/a.jsonl", [asked])
    run(fake, boto("sagemaker"), job_of(bucket, DataProcessing={"JoinSource": "Input"}))
    (line,) = get_lines(s3, bucket, "out/a.jsonl.out")
    output = line.pop("SageMakerOutput")
    assert line == asked
    assert output["choices"][0]["finish_reason"] == "stop"


def test_filters_take_out_what_they_name(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """Only the request goes to the model, only the id and the answer come back."""
    put_lines(s3, bucket, "in/a.jsonl", [{"id": "k1", "request": request_of("one"), "note": "not sent"}])
    processing = {
        "InputFilter": "$.request",
        "JoinSource": "Input",
        "OutputFilter": "$['id','SageMakerOutput']",
    }
    run(fake, boto("sagemaker"), job_of(bucket, DataProcessing=processing))
    (line,) = get_lines(s3, bucket, "out/a.jsonl.out")
    assert set(line) == {"id", "SageMakerOutput"}
    assert line["id"] == "k1"


def test_a_filter_can_take_a_part_of_the_answer(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """Without a join it looks into the answer."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one")])
    run(fake, boto("sagemaker"), job_of(bucket, DataProcessing={"OutputFilter": "$.usage"}))
    (line,) = get_lines(s3, bucket, "out/a.jsonl.out")
    assert set(line) == {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_one_bad_line_costs_its_object_and_no_other(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """The job has failed, its reason points to the logs, and the outputs of the other objects are there."""
    fake.container.poison = "poison"
    put_lines(s3, bucket, "in/a.jsonl", [request_of("good"), request_of("poison")])
    put_lines(s3, bucket, "in/b.jsonl", [request_of("good")])
    found = run(fake, boto("sagemaker"), job_of(bucket))
    assert found["TransformJobStatus"] == "Failed"
    assert "See job logs" in found["FailureReason"]
    assert keys_of(s3, bucket) == ["out/b.jsonl.out"]


@pytest.mark.parametrize("strategy", [{"BatchStrategy": "MultiRecord"}, {"MaxPayloadInMB": 1}])
def test_a_batch_of_several_records_chokes_a_json_container(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str, strategy: dict[str, Any]
) -> None:
    """Several lines in one request are no JSON; one line at a time they are."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one"), request_of("two")])
    found = run(fake, boto("sagemaker"), job_of(bucket, **strategy))
    assert found["TransformJobStatus"] == ("Failed" if "BatchStrategy" in strategy else "Completed")


def test_an_object_that_is_not_split_is_one_request(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """With SplitType None the whole object goes to the model, and its answer is the whole output."""
    put_lines(s3, bucket, "in/a.json", [request_of("one")])
    job = job_of(bucket)
    job["TransformInput"]["SplitType"] = "None"
    job["TransformInput"]["ContentType"] = "application/json"
    job["TransformOutput"]["AssembleWith"] = "None"
    run(fake, boto("sagemaker"), job)
    body = s3.get_object(Bucket=bucket, Key="out/a.json.out")["Body"].read()
    assert json.loads(body)["object"] == "chat.completion"


def test_a_record_above_the_payload_fails_its_object(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """The limit counts for a record, not for an object."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("x" * (1 << 20))])
    put_lines(s3, bucket, "in/b.jsonl", [request_of("y" * 600_000), request_of("z" * 600_000)])
    fake.container.context_tokens = 1 << 20
    found = run(fake, boto("sagemaker"), job_of(bucket, MaxPayloadInMB=1))
    assert "max payload" in found["FailureReason"]
    assert keys_of(s3, bucket) == ["out/b.jsonl.out"]


def test_a_prefix_is_a_beginning_of_keys_and_a_manifest_a_list(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """Without a slash at its end a prefix takes in more than a folder; a manifest names each object."""
    for key in ("in/a.jsonl", "in-too/b.jsonl"):
        put_lines(s3, bucket, key, [request_of(key)])
    job = job_of(bucket)
    source = job["TransformInput"]["DataSource"]["S3DataSource"]
    source["S3Uri"] = f"s3://{bucket}/in"
    run(fake, boto("sagemaker"), job)
    assert len(keys_of(s3, bucket)) == 2
    s3.put_object(
        Bucket=bucket, Key="manifest", Body=json.dumps([{"prefix": f"s3://{bucket}/"}, "in/a.jsonl"]).encode()
    )
    job = job_of(bucket, "job-2", TransformOutput={"S3OutputPath": f"s3://{bucket}/out-2"})
    job["TransformInput"]["DataSource"]["S3DataSource"] = {
        "S3DataType": "ManifestFile",
        "S3Uri": f"s3://{bucket}/manifest",
    }
    run(fake, boto("sagemaker"), job)
    assert keys_of(s3, bucket, "out-2/") == ["out-2/in/a.jsonl.out"]


def test_a_stopped_job_leaves_nothing(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """Not even the objects that were done; and boto3's waiter takes it for a success."""
    for name in "ab":
        put_lines(s3, bucket, f"in/{name}.jsonl", [request_of(name)])
    fake.pace.set(1)
    sagemaker = boto("sagemaker")
    sagemaker.create_transform_job(**job_of(bucket))
    job = fake.jobs.jobs["job-1"]
    while not job.written:
        assert not job.over.wait(0.01)
    sagemaker.stop_transform_job(TransformJobName="job-1")
    assert job.over.wait(30)
    assert sagemaker.describe_transform_job(TransformJobName="job-1")["TransformJobStatus"] == "Stopped"
    assert keys_of(s3, bucket) == []
    sagemaker.get_waiter("transform_job_completed_or_stopped").wait(TransformJobName="job-1")
    with pytest.raises(ClientError, match="Stopped"):
        sagemaker.stop_transform_job(TransformJobName="job-1")


def test_a_name_is_taken_for_ever(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """Also after the job has ended."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one")])
    sagemaker = boto("sagemaker")
    run(fake, sagemaker, job_of(bucket))
    with pytest.raises(sagemaker.exceptions.ResourceInUse):
        sagemaker.create_transform_job(**job_of(bucket))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MaxPayloadInMB": 20, "MaxConcurrentTransforms": 6}, "at most 100"),
        ({"TransformJobName": "under_score"}, "transformJobName"),
        ({"TransformJobName": "x" * 63 + "y"}, "transformJobName"),
        ({"ModelName": "unknown"}, "Could not find model"),
        ({"ModelClientConfig": {"InvocationsMaxRetries": 3, "InvocationsTimeoutInSeconds": 3_600}}, None),
        ({"DataProcessing": {"InputFilter": "request"}}, "InputFilter"),
        (
            {"DataProcessing": {"JoinSource": "Input"}, "TransformOutput": {"S3OutputPath": "s3://b/o"}},
            "match",
        ),
    ],
)
def test_a_job_is_checked_when_it_is_created(
    boto: Callable[[str], Any], bucket: str, changes: dict[str, Any], message: str | None
) -> None:
    """What the service refuses is refused with a ValidationException, or by boto3 itself."""
    sagemaker = boto("sagemaker")
    job = job_of(bucket, **changes)
    if message is None:
        sagemaker.create_transform_job(**job)
        return
    with pytest.raises(ClientError, match=message) as caught:
        sagemaker.create_transform_job(**job)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_quota_of_instances_is_a_limit(
    fake_factory: Callable[..., FakeSageMaker], s3: Any, bucket: str
) -> None:
    """The refusal is a ResourceLimitExceeded."""
    fake = fake_factory(quota=1)
    sagemaker = boto3.client("sagemaker", endpoint_url=fake.url, region_name=fake.region)
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one")])
    fake.pace.set(0)
    sagemaker.create_transform_job(**job_of(bucket))
    with pytest.raises(sagemaker.exceptions.ResourceLimitExceeded):
        sagemaker.create_transform_job(**job_of(bucket, "job-2"))
    sagemaker.close()


def test_a_job_can_fail_for_reasons_of_its_own(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """What was done before is there."""
    for name in "ab":
        put_lines(s3, bucket, f"in/{name}.jsonl", [request_of(name)])
    fake.fail_next_job("CapacityError: Unable to provision requested ML compute capacity.", after_objects=1)
    found = run(fake, boto("sagemaker"), job_of(bucket))
    assert found["FailureReason"].startswith("CapacityError")
    assert keys_of(s3, bucket) == ["out/a.jsonl.out"]


def test_jobs_are_described_and_listed(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """A missing one is a ValidationException; a list comes in pages and can be narrowed."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one")])
    sagemaker = boto("sagemaker")
    with pytest.raises(ClientError, match="Could not find requested job") as caught:
        sagemaker.describe_transform_job(TransformJobName="job-1")
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    for number in range(3):
        job = job_of(bucket, f"job-{number}", TransformOutput={"S3OutputPath": f"s3://{bucket}/out-{number}"})
        run(fake, sagemaker, job)
    pages = sagemaker.get_paginator("list_transform_jobs").paginate(
        NameContains="job", StatusEquals="Completed", PaginationConfig={"PageSize": 2}
    )
    names = [[job["TransformJobName"] for job in page["TransformJobSummaries"]] for page in pages]
    assert names == [["job-2", "job-1"], ["job-0"]]
    assert sagemaker.list_transform_jobs(StatusEquals="Failed")["TransformJobSummaries"] == []


def test_calls_fail_as_they_are_told_to(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """A call may be throttled, or be carried out while its answer is lost."""
    put_lines(s3, bucket, "in/a.jsonl", [request_of("one")])
    script = {("DescribeTransformJob", 1): "throttled_null", ("CreateTransformJob", 1): "lost"}
    fake.control_script = lambda operation, number: script.get((operation, number))
    sagemaker = boto("sagemaker")
    with pytest.raises(ConnectionClosedError):
        sagemaker.create_transform_job(**job_of(bucket))
    with pytest.raises(ClientError) as caught:
        sagemaker.describe_transform_job(TransformJobName="job-1")
    assert caught.value.response["Error"]["Code"] == "ThrottlingException"
    assert sagemaker.describe_transform_job(TransformJobName="job-1")["TransformJobName"] == "job-1"


def test_lines_can_come_back_to_front(
    fake: FakeSageMaker, boto: Callable[[str], Any], s3: Any, bucket: str
) -> None:
    """No document of the service promises an order."""
    put_lines(s3, bucket, "in/a.jsonl", [{"id": row, **request_of(f"text {row}")} for row in range(3)])
    fake.reverse = True
    run(fake, boto("sagemaker"), job_of(bucket, DataProcessing={"JoinSource": "Input"}))
    assert [line["id"] for line in get_lines(s3, bucket, "out/a.jsonl.out")] == [2, 1, 0]
