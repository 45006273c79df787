"""The control plane of transform jobs: create, describe, list and stop, in the JSON protocol of the service."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from corpusmill.testing.sagemaker.filters import FilterError, parse_filter
from corpusmill.testing.sagemaker.jobs import Job, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ACCOUNT: Final = "123456789012"
LARGEST_PRODUCT: Final = 100
"""`MaxPayloadInMB` times `MaxConcurrentTransforms` may not be more."""

_NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
_MOST_INSTANCES: Final = 100


class RefusedError(Exception):
    """A call that is refused, by the name of the error in the service's model."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class TransformJobs:
    """All transform jobs of an account. Their names are taken for ever."""

    def __init__(
        self,
        worker: Callable[[], Worker],
        *,
        region: str,
        models: Sequence[str],
        quota: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`models` are those that exist; `quota` is the most instances that jobs may use at once."""
        self.jobs: dict[str, Job] = {}
        self.breakdowns: list[tuple[str, int]] = []
        self.models = set(models)
        self.quota = quota
        self._worker = worker
        self._region = region
        self._clock = clock
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation; raise `RefusedError` with the error that the service would answer."""
        match operation:
            case "CreateTransformJob":
                return self.create(request)
            case "DescribeTransformJob":
                return self.describe(request)
            case "ListTransformJobs":
                return self.list(request)
            case "StopTransformJob":
                return self.stop(request)
            case _:
                raise RefusedError("UnknownOperationException", f"{operation} is not known here")

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """Create a job and start it."""
        _check(request)
        name = request["TransformJobName"]
        with self._lock:
            if request["ModelName"] not in self.models:
                arn = f"arn:aws:sagemaker:{self._region}:{ACCOUNT}:model/{request['ModelName']}"
                raise RefusedError("ValidationException", f'Could not find model "{arn}".')
            if name in self.jobs:
                text = "Job name must be unique within an AWS account and region, and a job with this name already"
                raise RefusedError("ResourceInUse", f"{text} exists ({self._arn(name)})")
            used = sum(
                job.request["TransformResources"]["InstanceCount"]
                for job in self.jobs.values()
                if job.status in {"InProgress", "Stopping"}
            )
            if self.quota is not None and used + request["TransformResources"]["InstanceCount"] > self.quota:
                kind = request["TransformResources"]["InstanceType"]
                text = (
                    f"The account-level service limit '{kind} for transform job usage' is {self.quota} Instances, with "
                    f"current utilization of {used} Instances"
                )
                raise RefusedError("ResourceLimitExceeded", text)
            job = self.jobs[name] = Job(name, request, self._clock())
            breakdown = self.breakdowns.pop(0) if self.breakdowns else None
        worker = self._worker()
        thread = threading.Thread(
            target=lambda: worker.run(job, breakdown=breakdown), name=f"transform-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return {"TransformJobArn": self._arn(name)}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Say everything about a job."""
        job = self._found(request)
        told = {
            **job.request,
            "TransformJobArn": self._arn(job.name),
            "TransformJobStatus": job.status,
            "CreationTime": job.created,
        }
        if job.failure is not None and job.status == "Failed":
            told["FailureReason"] = job.failure
        if job.started is not None:
            told["TransformStartTime"] = job.started
        if job.ended is not None:
            told["TransformEndTime"] = job.ended
        return told

    def list(self, request: dict[str, Any]) -> dict[str, Any]:
        """List jobs, the youngest first."""
        found = sorted(self.jobs.values(), key=lambda job: -job.created)
        if "NameContains" in request:
            found = [job for job in found if request["NameContains"] in job.name]
        if "StatusEquals" in request:
            found = [job for job in found if job.status == request["StatusEquals"]]
        start = int(request.get("NextToken") or 0)
        stop = start + int(request.get("MaxResults") or 10)
        told: dict[str, Any] = {
            "TransformJobSummaries": [
                {
                    "TransformJobName": job.name,
                    "TransformJobArn": self._arn(job.name),
                    "TransformJobStatus": job.status,
                    "CreationTime": job.created,
                }
                for job in found[start:stop]
            ]
        }
        if stop < len(found):
            told["NextToken"] = str(stop)
        return told

    def stop(self, request: dict[str, Any]) -> dict[str, Any]:
        """Stop a job that is at work."""
        job = self._found(request)
        with self._lock:
            if job.status != "InProgress":
                text = f"The request was rejected because the transform job is in status {job.status}."
                raise RefusedError("ValidationException", text)
            job.status = "Stopping"
        job.stop.set()
        return {}

    def close(self) -> None:
        """Stop everything and wait for it."""
        for job in self.jobs.values():
            job.stop.set()
        for thread in self._threads:
            thread.join()

    def _found(self, request: dict[str, Any]) -> Job:
        name = request.get("TransformJobName", "")
        if name not in self.jobs:
            raise RefusedError("ValidationException", f"Could not find requested job with name: {name}")
        return self.jobs[name]

    def _arn(self, name: str) -> str:
        return f"arn:aws:sagemaker:{self._region}:{ACCOUNT}:transform-job/{name.lower()}"


def _check(request: dict[str, Any]) -> None:  # noqa: C901 - a list of what is refused
    def refuse(text: str) -> None:
        raise RefusedError("ValidationException", text)

    name = request.get("TransformJobName", "")
    if not _NAME.fullmatch(name):
        refuse(
            f"1 validation error detected: Value '{name}' at 'transformJobName' failed to satisfy constraint"
        )
    for field in ("ModelName", "TransformInput", "TransformOutput", "TransformResources"):
        if field not in request:
            refuse(f"1 validation error detected: Value null at '{field}' failed to satisfy constraint")
    payload, transforms = request.get("MaxPayloadInMB", 6), request.get("MaxConcurrentTransforms", 1)
    if payload * max(transforms, 1) > LARGEST_PRODUCT:
        refuse(f"MaxConcurrentTransforms * MaxPayloadInMB must be at most {LARGEST_PRODUCT}.")
    if not 1 <= request["TransformResources"].get("InstanceCount", 0) <= _MOST_INSTANCES:
        refuse("Value at 'transformResources.instanceCount' failed to satisfy constraint")
    client = request.get("ModelClientConfig") or {}
    if not 1 <= client.get("InvocationsTimeoutInSeconds", 600) <= 3_600:  # noqa: PLR2004 - the service's bound
        refuse("Value at 'modelClientConfig.invocationsTimeoutInSeconds' failed to satisfy constraint")
    if not 0 <= client.get("InvocationsMaxRetries", 3) <= 3:  # noqa: PLR2004 - the service's bound
        refuse("Value at 'modelClientConfig.invocationsMaxRetries' failed to satisfy constraint")
    processing = request.get("DataProcessing") or {}
    for field in ("InputFilter", "OutputFilter"):
        try:
            parse_filter(processing.get(field, "$"))
        except FilterError as error:
            refuse(f"{field}: {error}")
    if processing.get("JoinSource") == "Input":
        if not (request["TransformInput"].get("ContentType") or "").startswith("application/json"):
            refuse("JoinSource Input needs a content type of JSON or CSV.")
        if request["TransformOutput"].get("AssembleWith") != request["TransformInput"].get("SplitType"):
            refuse("JoinSource Input needs AssembleWith to match SplitType.")
