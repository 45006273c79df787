"""One transform job at work: objects in, records through the container, `.out` objects out.

The object is the unit: its `.out` exists only when each of its records was answered. A job that is stopped leaves
nothing behind.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from corpusmill.testing.sagemaker.filters import FilterError, apply_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from corpusmill.testing.sagemaker.container import Container

SEE_LOGS: Final = "See job logs for more information"

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


@dataclass(slots=True)
class Job:
    """A transform job: what it was asked to do, and how far it is."""

    name: str
    request: dict[str, Any]
    created: float
    status: str = "InProgress"
    started: float | None = None
    ended: float | None = None
    failure: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    written: list[str] = field(default_factory=list)
    failed_objects: list[str] = field(default_factory=list)


class Pace:
    """How many objects may still be worked on: None for any number; tests hold jobs and let them go."""

    def __init__(self) -> None:
        self._allowed: int | None = None
        self._changed = threading.Condition()

    def set(self, allowed: int | None) -> None:
        """Let so many more objects through from now on; None lets all."""
        with self._changed:
            self._allowed = allowed
            self._changed.notify_all()

    def take(self, stop: threading.Event) -> bool:
        """Wait for a turn; False when the job was stopped meanwhile."""
        with self._changed:
            while not stop.is_set():
                if self._allowed is None:
                    return True
                if self._allowed > 0:
                    self._allowed -= 1
                    return True
                self._changed.wait(0.05)
        return False


class BadRecordError(Exception):
    """A record that the container refused, or that could not be cut out of its object."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """Carries out jobs against an S3 API. `reverse` writes the lines of each output back to front."""

    s3: Any
    container: Container
    pace: Pace
    object_seconds: float = 0.0
    reverse: bool = False

    def run(self, job: Job, *, breakdown: tuple[str, int] | None) -> None:
        """Work on all objects of a job; `breakdown` is a reason to fail for, after so many objects."""
        try:
            self._run(job, breakdown)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job has failed by it
            job.failure, job.status = f"InternalServerError: {error!r}", "Failed"
        finally:
            job.ended = time.time()
            job.over.set()

    def _run(self, job: Job, breakdown: tuple[str, int] | None) -> None:
        job.started = time.time()
        for done, (bucket, key, name) in enumerate(_inputs(self.s3, job.request)):
            if breakdown is not None and done >= breakdown[1]:
                job.failure, job.status = breakdown[0], "Failed"
                return
            if not self.pace.take(job.stop):
                break
            if self.object_seconds and job.stop.wait(self.object_seconds):
                break
            self._object(job, bucket, key, name)
        if job.stop.is_set():
            for bucket, key in (_split_url(url) for url in job.written):
                self.s3.delete_object(Bucket=bucket, Key=key)
            job.written.clear()
            job.status = "Stopped"
        elif breakdown is not None:
            job.failure, job.status = breakdown[0], "Failed"
        elif job.failed_objects:
            job.status = "Failed"
        else:
            job.status = "Completed"

    def _object(self, job: Job, bucket: str, key: str, name: str) -> None:
        data = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        request = job.request
        source = request["TransformInput"]
        try:
            answers = [self._record(request, record) for record in _records(data, request)]
        except BadRecordError as error:
            job.failed_objects.append(name)
            job.failure = f"ClientError: {error}. {SEE_LOGS}" if source.get("ContentType") else SEE_LOGS
            return
        if self.reverse:
            answers.reverse()
        joint = b"\n" if request["TransformOutput"].get("AssembleWith") == "Line" else b""
        body = b"".join(answer + joint for answer in answers)
        out_bucket, prefix = _split_url(request["TransformOutput"]["S3OutputPath"])
        out_key = f"{prefix.rstrip('/')}/{name}.out".lstrip("/")
        self.s3.put_object(Bucket=out_bucket, Key=out_key, Body=body)
        job.written.append(f"s3://{out_bucket}/{out_key}")

    def _record(self, request: dict[str, Any], record: bytes) -> bytes:
        processing = request.get("DataProcessing") or {}
        asked, whole = record, None
        joins = processing.get("JoinSource") == "Input"
        try:
            if joins or processing.get("InputFilter", "$") != "$":
                whole = msgspec.json.decode(record)
                asked = msgspec.json.encode(apply_filter(processing.get("InputFilter", "$"), whole))
            limit = request.get("MaxPayloadInMB", 6) << 20
            if limit and len(asked) > limit:
                msg = "Too much data for max payload size"
                raise BadRecordError(msg)
            answered = self.container.invoke(
                asked, content_type=request["TransformInput"].get("ContentType") or ""
            )
            if answered.status >= 400:  # noqa: PLR2004 - an error of HTTP
                msg = f"Bad HTTP status received from algorithm: {answered.status}"
                raise BadRecordError(msg)
            output = answered.body if answered.events is None else answered.events
            if joins:
                joined = {"SageMakerOutput": msgspec.json.decode(output)}
                whole = (
                    {**whole, **joined} if isinstance(whole, dict) else {"SageMakerInput": whole, **joined}
                )
            elif processing.get("OutputFilter", "$") != "$":
                whole = msgspec.json.decode(output)
            else:
                return output
            return _encode_sorted(apply_filter(processing.get("OutputFilter", "$"), whole))
        except (msgspec.DecodeError, FilterError, UnicodeDecodeError) as error:
            msg = f"Unable to parse data as JSON ({error})"
            raise BadRecordError(msg) from error


def _records(data: bytes, request: dict[str, Any]) -> Iterator[bytes]:
    if request["TransformInput"].get("SplitType", "None") != "Line":
        yield data
        return
    lines = [line for line in data.split(b"\n") if line]
    if request.get("BatchStrategy") == "SingleRecord":
        yield from lines
        return
    limit = request.get("MaxPayloadInMB", 6) << 20
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) + 1 > limit:
            yield b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield b"\n".join(batch)


def _inputs(s3: Any, request: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Give bucket, key and name of each object; the name is the key behind the input's folder."""
    source = request["TransformInput"]["DataSource"]["S3DataSource"]
    bucket, prefix = _split_url(source["S3Uri"])
    if source["S3DataType"] == "ManifestFile":
        first, *names = msgspec.json.decode(s3.get_object(Bucket=bucket, Key=prefix)["Body"].read())
        bucket, folder = _split_url(first["prefix"])
        return [(bucket, folder + name, name) for name in names]
    folder = prefix[: prefix.rfind("/") + 1]
    keys: list[str] = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        keys.extend(found["Key"] for found in page.get("Contents", ()) if not found["Key"].endswith("/"))
    return [(bucket, key, key.removeprefix(folder)) for key in keys]


def _split_url(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key
