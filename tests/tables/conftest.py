from __future__ import annotations

import logging
import os
import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs as pafs

from corpusmill.tables import Manifest, Sink, open_sink, open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def fill() -> Callable[..., Manifest]:
    """A function that writes a table to a sink: under its lock, in parts, in chunks, committed."""

    def write(
        sink: Sink | str,
        table: pa.Table,
        *,
        rows_per_part: int = 65_536,
        run_key: str | None = "run",
        job_key: str = "job",
        **commit: Any,
    ) -> Manifest:
        sink = sink if isinstance(sink, Sink) else open_sink(sink)
        with sink.lock():
            writing = sink.begin(table.schema, run_key=run_key, job_key=job_key)
            for index, start in enumerate(range(0, table.num_rows, rows_per_part)):
                part = writing.part(index, start)
                for chunk in open_source(table.slice(start, rows_per_part)).chunks():
                    part.write(chunk.batch)
                part.close()
            return writing.commit(**commit)

    return write


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server on loopback."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket that the environment leads to."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_server,
        "AWS_ACCESS_KEY_ID": "fake",
        "AWS_SECRET_ACCESS_KEY": "fake",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{secrets.token_hex(4)}"
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
    s3 = pafs.S3FileSystem(endpoint_override=endpoint, scheme="http", allow_bucket_creation=True)
    s3.create_dir(name)
    return f"s3://{name}"
