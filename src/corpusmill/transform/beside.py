"""Rows that lie in an open transform job are not asked in real time as well, where the endpoint says where to look.

A claim in the store lives as long as the process that holds it, and a job outlives the process that has created it:
what tells of it is what is written down in S3. That is read once, when a run begins.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corpusmill.endpoints.sagemaker import SageMakerEndpoint
from corpusmill.endpoints.sagemaker.names import s3_place
from corpusmill.transform.aws import Aws, Patience
from corpusmill.transform.keys import KeyNumbers, read_keys
from corpusmill.transform.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from corpusmill.endpoints import Endpoint
    from corpusmill.endpoints.sagemaker import AwsCredentials
    from corpusmill.transform.planning import Refusal

HELD: Final = "in_transform_job"
PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsBeside:
    """Where the transform jobs beside an endpoint lie; S3 is reached as its own tools reach it."""

    region: str
    bucket: str
    prefix: str
    profile: str | None
    credentials: AwsCredentials | None
    endpoint_url: None = None
    s3_endpoint_url: None = None


def held_beside(endpoint: Endpoint) -> Callable[[bytes], Refusal | None] | None:
    """Give what tells why a row is not asked: an open job holds it. None where the endpoint names no such jobs."""
    if not isinstance(endpoint, SageMakerEndpoint) or endpoint.transform_s3 is None:
        return None
    bucket, prefix = s3_place(endpoint.transform_s3, "transform_s3")
    place = JobsBeside(
        region=endpoint.region,
        bucket=bucket,
        prefix=prefix,
        profile=endpoint.profile,
        credentials=endpoint.credentials,
    )
    with contextlib.closing(Aws(place)) as aws:
        names, numbers = Patience(PATIENCE_SECONDS).call(_held, Records(aws), endpoint.identity)

    def held(key: bytes) -> Refusal | None:
        number = numbers.get(key)
        if number is None:
            return None
        reason = f"the transform job {names[number]} holds this row; collect the job, then run again to find the answer"
        return HELD, reason

    return held if names else None


def _held(records: Records, identity: str) -> tuple[list[str], KeyNumbers]:
    """Give the names of the jobs that have not been collected, and by key the number of the one that holds it."""
    plans = [job.plan for job in records.open_jobs(identity) if job.settled is None]
    numbers = KeyNumbers(sum(plan.rows for plan in plans))
    for number, plan in enumerate(plans):
        for packed in records.keys(plan):
            for line in read_keys(packed):
                numbers.put(line.key, number)
    return [plan.name for plan in plans], numbers
