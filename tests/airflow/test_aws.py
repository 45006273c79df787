"""Connections of type `aws` in their forms, and where what they hold goes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Connection

from corpusmill.airflow import EnrichOperator
from corpusmill.airflow.aws import aws_access
from corpusmill.airflow.jobs import AwsAccess, Given, assemble
from corpusmill.chat.aws_session import aws_session
from corpusmill.endpoints.sagemaker import AwsCredentials, SageMakerEndpoint, SageMakerTransform
from corpusmill.endpoints.secret import Secret
from corpusmill.errors import AuthenticationError, UsageError
from corpusmill.transform.aws import ControlPlane

if TYPE_CHECKING:
    from tests.airflow.conftest import Amazon

KEY, SECRET, TOKEN = "AKIDPLANTED000000000", "planted/secret+0123456789", "planted-token-0123456789"
ROLE = "arn:aws:iam::123456789012:role/nightly"

REAL_TIME = {"endpoint_name": "tilde", "model": "m"}
TRANSFORM: dict[str, Any] = {
    "model_name": "m",
    "model": "m",
    "instance_type": "ml.any",
    "s3": "s3://bucket/nightly",
}
VALUES: dict[str, Any] = {
    "source": "in.parquet",
    "sink": "out",
    "prompts": [{"ask": {"template": "{text}", "into": "topic"}}],
}


def connection(**fields: Any) -> Connection:
    """Make a connection as a form does."""
    extra = fields.pop("extra", {})
    return Connection(conn_id="c", conn_type="aws", extra=json.dumps(extra), **fields)


@pytest.mark.parametrize(
    "made",
    [
        connection(login=KEY, password=SECRET, extra={"region_name": "eu-north-1"}),
        connection(login=f" {KEY}\n", password=f"{SECRET}\n", extra={"region_name": "eu-north-1"}),
        connection(
            extra={
                "aws_access_key_id": KEY,
                "aws_secret_access_key": SECRET,
                "session_kwargs": {"region_name": "eu-north-1"},
            }
        ),
        Connection.from_uri(
            f"aws://{KEY}:planted%2Fsecret%2B0123456789@/?region_name=eu-north-1", conn_id="c"
        ),
    ],
)
def test_every_form_gives_one_key_and_one_region(made: Connection) -> None:
    """Fields, extras and URIs mean the same; blanks that copying left are taken off; the secret shows as stars."""
    access = aws_access(made)
    assert access == AwsAccess(
        region="eu-north-1", credentials=AwsCredentials(access_key=KEY, secret_key=Secret(SECRET))
    )
    assert SECRET not in repr(access)


def test_tokens_roles_and_addresses_are_read() -> None:
    """An address of one service goes before that of all."""
    extra = {
        "aws_session_token": TOKEN,
        "profile_name": "team",
        "role_arn": ROLE,
        "assume_role_kwargs": {"ExternalId": "e"},
        "endpoint_url": "https://aws.example",
        "service_config": {"s3": {"endpoint_url": "https://s3.example"}, "sts": {}},
    }
    access = aws_access(connection(login=KEY, password=SECRET, extra=extra))
    assert (access.sagemaker_url, access.runtime_url, access.s3_url, access.profile) == (
        "https://aws.example",
        "https://aws.example",
        "https://s3.example",
        "team",
    )
    found = access.credentials
    assert found is not None
    assert found.session_token == Secret(TOKEN)
    assert found.role is not None
    assert (found.role.arn, found.role.options, found.role.endpoint_url) == (
        ROLE,
        {"ExternalId": "e"},
        "https://aws.example",
    )
    assert TOKEN not in repr(access)


def test_a_connection_without_keys_leaves_credentials_to_the_worker() -> None:
    """It may still say where AWS is."""
    assert aws_access(connection(extra={"region_name": "eu-north-1"})) == AwsAccess(region="eu-north-1")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"login": KEY}, "no secret key"),
        ({"password": SECRET}, "no access key"),
        ({"login": KEY, "password": f"{SECRET} {SECRET}"}, "'c' has a blank"),
        ({"extra": {"aws_session_token": TOKEN}}, "no access key"),
        ({"extra": {"role_arn": "nightly"}}, "role_arn is 'nightly'"),
        ({"extra": {"role_arn": ROLE, "assume_role_kwargs": {"SerialNumber": "device"}}}, "code of a device"),
        (
            {"extra": {"role_arn": ROLE, "assume_role_method": "assume_role_with_saml"}},
            "'c' assumes its role",
        ),
    ],
)
def test_a_connection_that_could_not_work_is_refused(fields: dict[str, Any], message: str) -> None:
    """The message shows no secret."""
    with pytest.raises(UsageError, match=message) as caught:
        aws_access(connection(**fields))
    assert SECRET not in str(caught.value)
    assert TOKEN not in str(caught.value)


ACCESS = AwsAccess(
    region="eu-north-1",
    profile="team",
    sagemaker_url="https://jobs.example",
    runtime_url="https://runtime.example",
    s3_url="https://s3.example",
    credentials=AwsCredentials(access_key=KEY, secret_key=Secret(SECRET)),
)


def test_what_a_connection_holds_lies_under_the_endpoint_and_never_in_what_is_written_down() -> None:
    """Region and addresses are those of the job where it has any; the rest in real time has the same credentials."""
    endpoint = {"sagemaker_transform": {**TRANSFORM, "real_time": {**REAL_TIME, "region": "eu-west-1"}}}
    job = assemble(Given(values={**VALUES, "endpoint": endpoint}, aws=ACCESS)).job
    made = job.endpoint
    assert isinstance(made, SageMakerTransform)
    assert (made.region, made.endpoint_url, made.s3_endpoint_url, made.profile) == (
        "eu-north-1",
        "https://jobs.example",
        "https://s3.example",
        "team",
    )
    assert made.real_time is not None
    assert (made.real_time.region, made.real_time.endpoint_url) == ("eu-west-1", "https://runtime.example")
    assert made.credentials == made.real_time.credentials == ACCESS.credentials
    assert SECRET not in repr(made) + str(job.written)
    assert KEY not in str(job.written)


def test_an_endpoint_that_is_given_as_an_object_gets_the_credentials_and_the_addresses() -> None:
    """In real time as well, but for what it says itself; what is no endpoint on SageMaker is refused."""
    real_time = SageMakerEndpoint(
        endpoint_name="tilde", region="eu-west-1", model="m", endpoint_url="https://own.example"
    )
    endpoint = SageMakerTransform(**TRANSFORM, region="eu-west-1", real_time=real_time)
    made = assemble(Given(values={**VALUES, "endpoint": endpoint}, aws=ACCESS)).job.endpoint
    assert isinstance(made, SageMakerTransform)
    assert (made.region, made.endpoint_url, made.s3_endpoint_url, made.profile) == (
        "eu-west-1",
        "https://jobs.example",
        "https://s3.example",
        "team",
    )
    assert made.real_time is not None
    assert (made.real_time.endpoint_url, made.real_time.profile) == ("https://own.example", "team")
    assert made.credentials == made.real_time.credentials == ACCESS.credentials
    alone = assemble(Given(values={**VALUES, "endpoint": replace(real_time, endpoint_url=None)}, aws=ACCESS))
    assert isinstance(alone.job.endpoint, SageMakerEndpoint)
    assert (alone.job.endpoint.endpoint_url, alone.job.endpoint.credentials) == (
        "https://runtime.example",
        ACCESS.credentials,
    )
    other = {"openai_compatible": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}
    with pytest.raises(UsageError, match="aws_conn_id is given"):
        assemble(Given(values={**VALUES, "endpoint": other}, aws=ACCESS))


def test_keys_that_are_given_are_used_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of the environment, and a profile that it names and that does not exist, are not looked at."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOTHER00000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "other")
    monkeypatch.setenv("AWS_PROFILE", "gone")
    credentials = AwsCredentials(access_key=KEY, secret_key=Secret(SECRET))
    before = dict(os.environ)
    session = aws_session(region="eu-north-1", credentials=credentials)
    found = session.get_credentials().get_frozen_credentials()
    assert (found.access_key, found.secret_key, found.token) == (KEY, SECRET, None)
    assert session.create_client("sagemaker").meta.region_name == "eu-north-1"
    assert dict(os.environ) == before


def test_a_role_is_assumed_by_the_holder_of_the_key(amazon: Amazon) -> None:
    """The role's own keys are used then, and fetched again before they expire."""
    extra = {"role_arn": ROLE, "service_config": {"sts": {"endpoint_url": amazon.s3_url}}}
    credentials = aws_access(connection(login=KEY, password=SECRET, extra=extra)).credentials
    found = aws_session(region="eu-north-1", credentials=credentials).get_credentials()
    frozen = found.get_frozen_credentials()
    assert found.method == "assume-role"
    assert frozen.access_key.startswith("ASIA")
    assert frozen.token
    assert not found.refresh_needed()


def test_a_role_that_nobody_can_assume_is_an_error_that_says_what_to_do(amazon: Amazon) -> None:
    """The connection has no key, and neither has the worker."""
    extra = {"role_arn": ROLE, "region_name": "eu-north-1"}
    credentials = aws_access(connection(extra=extra)).credentials
    with pytest.raises(AuthenticationError, match="log in again"):
        ControlPlane(region="eu-north-1", endpoint_url=amazon.fake.url, credentials=credentials)


def test_an_enriching_task_asks_in_real_time_with_the_keys_of_a_connection(
    amazon: Amazon, tmp_path: Any
) -> None:
    """The fake checks each signature, and the worker has no credentials of its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["one", "two"]}), tmp_path / "in.parquet")
    operator = EnrichOperator(
        task_id="t",
        source=str(tmp_path / "in.parquet"),
        sink=str(tmp_path / "out"),
        prompts=VALUES["prompts"],
        endpoint={"sagemaker": {**REAL_TIME, "model": "tildeopen-30b-64k"}},
        aws_conn_id="aws_for_tests",
        store=f"sqlite:///{tmp_path}/store.db",
    )
    operator.asset = None  # there are no events of outlets outside of a run

    class Ti:
        def xcom_push(self, key: str, value: object) -> None:
            assert amazon.connection["password"] not in str(value)

    made = operator.enriched({"ti": Ti()})  # type: ignore[typeddict-item]
    assert made["outcomes"] == {"completed": 2}
