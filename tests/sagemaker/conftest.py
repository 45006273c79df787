"""A fake SageMaker, an S3 server beside it, and the unmodified clients of boto3 that speak to both."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from corpusmill.testing.sagemaker import FakeSageMaker
from corpusmill.testing.sagemaker.server import KEY, REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKETS = itertools.count()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of the fake, and none of the machine's own settings."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)


@pytest.fixture(scope="session")
def s3(s3_url: str) -> Iterator[Any]:
    """An S3 client."""
    client = boto3.client(
        "s3",
        endpoint_url=s3_url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(s3={"addressing_style": "path"}),
    )
    yield client
    client.close()


@pytest.fixture
def bucket(s3: Any) -> str:
    """The name of a new, empty bucket."""
    name = f"bucket-{next(BUCKETS)}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


@pytest.fixture
def fake_factory(s3: Any) -> Iterator[Callable[..., FakeSageMaker]]:
    """A function that starts a fake SageMaker with options."""
    with contextlib.ExitStack() as running:

        def start(**options: Any) -> FakeSageMaker:
            return running.enter_context(FakeSageMaker(**{"s3": s3, **options}))

        yield start


@pytest.fixture
def fake(fake_factory: Callable[..., FakeSageMaker]) -> FakeSageMaker:
    """A fake SageMaker without faults."""
    return fake_factory()


@pytest.fixture
def boto(fake: FakeSageMaker) -> Iterator[Callable[[str], Any]]:
    """A function that gives a client of boto3 for a service of the fake, without retries."""
    with contextlib.ExitStack() as made:

        def client(service: str) -> Any:
            found = boto3.client(
                service,
                endpoint_url=fake.url,
                region_name=REGION,
                config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
            )
            made.callback(found.close)
            return found

        yield client
