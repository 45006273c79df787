"""An Airflow of the tests' own: a home that is thrown away, a database in it, and Dags that run in this process."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import json
import os
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from corpusmill.testing.sagemaker import FakeSageMaker

BUCKETS = itertools.count()

# The script that starts a real Airflow is imported from the root of the project, whatever started pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

# Airflow reads its configuration when it is imported, and test files import it.
HOME = Path(tempfile.mkdtemp(prefix="corpusmill-airflow-"))
DAGS = HOME / "dags"
EVENTS = HOME / "openlineage.jsonl"
DAGS.mkdir()
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
        "AIRFLOW__API__BASE_URL": "http://airflow.invalid",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(EVENTS), "append": True}
        ),
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "60",
    }
)

# Airflow before 3.3 has no retry policies, of which this file tells.
collect_ignore = (
    [] if importlib.util.find_spec("airflow.sdk.definitions.retry_policy") else ["test_retries.py"]
)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """Make Airflow's database, once."""
    from airflow.utils.db import initdb

    initdb()
    return HOME


@pytest.fixture
def load_dag(airflow_home: Path) -> Iterator[Callable[..., ModuleType]]:
    """Write a Dag file into Airflow's folder of Dags, and import it as Airflow would."""
    written: list[Path] = []

    def load(source: str, *, name: str = "dag_under_test", **values: Any) -> ModuleType:
        path = DAGS / f"{name}.py"
        written.append(path)
        assigned = "".join(f"{key} = {value!r}\n" for key, value in values.items())
        path.write_text(f"{assigned}{textwrap.dedent(source)}", "utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for path in written:
        path.unlink()
        sys.modules.pop(path.stem, None)


class Ran:
    """A run of a Dag: the state of each task instance, and what it left in XCom."""

    def __init__(self, run: Any) -> None:
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        self.state = str(run.state)
        self.run_id: str = run.run_id
        self.dag_id: str = run.dag_id
        self.tries = {(ti.task_id, ti.map_index): ti.try_number for ti in run.get_task_instances()}
        self.states = {(ti.task_id, ti.map_index): str(ti.state) for ti in run.get_task_instances()}
        with create_session() as session:
            found: Any = session.scalars(XComModel.get_many(run_id=run.run_id, dag_ids=run.dag_id)).all()
            self.xcoms = {
                (xcom.task_id, xcom.map_index, xcom.key): XComModel.deserialize_value(xcom) for xcom in found
            }

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Give one XCom; JSON is read."""
        value = self.xcoms.get((task_id, map_index, key))
        return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value


@pytest.fixture
def run_dag() -> Callable[..., Ran]:
    """Run a Dag to its end with `dag.test()`."""

    def run(dag: Any, **options: Any) -> Ran:
        return Ran(dag.test(**options))

    return run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write sixty rows, three of them blank and some alike."""
    texts = [None if row % 20 == 7 else f"The clock of house {row % 40} strikes {row}." for row in range(60)]
    path = tmp_path / "corpus.parquet"
    pq.write_table(pa.table({"id": range(60), "text": texts}), path)
    return path


@pytest.fixture
def events() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Read the OpenLineage events that were written during the test."""
    EVENTS.unlink(missing_ok=True)

    def read() -> list[dict[str, Any]]:
        return [json.loads(line) for line in EVENTS.read_text("utf-8").splitlines()]

    yield read
    EVENTS.unlink(missing_ok=True)


@pytest.fixture
def asset_events() -> Callable[[str], list[Any]]:
    """Give the events on an asset, the oldest first."""

    def read(uri: str) -> list[Any]:
        from airflow.models.asset import AssetEvent, AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            found = list(session.scalars(query.where(AssetModel.uri == uri).order_by(AssetEvent.id)))
            session.expunge_all()
        return found

    return read


class Amazon:
    """A fake SageMaker and an S3 server beside it, with one bucket."""

    def __init__(self, fake: FakeSageMaker, s3_url: str, bucket: str) -> None:
        self.fake, self.s3_url, self.bucket = fake, s3_url, bucket

    @property
    def connection(self) -> dict[str, Any]:
        """A connection of type `aws` that holds the fake's only key."""
        from corpusmill.testing.sagemaker.server import KEY

        services = {"s3": {"endpoint_url": self.s3_url}}
        return {
            "conn_type": "aws",
            "login": KEY.key,
            "password": KEY.secret,
            "extra": {
                "region_name": self.fake.region,
                "endpoint_url": self.fake.url,
                "service_config": services,
            },
        }

    def transform(self, **changes: Any) -> dict[str, Any]:
        """An endpoint of transform jobs; where AWS is and who asks stands in the connection."""
        fields = {
            "model_name": "tildeopen-30b-64k",
            "model": "tildeopen-30b-64k",
            "instance_type": "ml.g6.48xlarge",
            "s3": f"s3://{self.bucket}/nightly",
            "shard_rows": 20,
            "poll_seconds": 0.05,
            "patience_seconds": 5.0,
        }
        return {"sagemaker_transform": {**fields, **changes}}

    @property
    def jobs(self) -> list[Any]:
        """The jobs, in the order of their creation."""
        return sorted(self.fake.jobs.jobs.values(), key=lambda job: job.created)


@pytest.fixture
def amazon(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Amazon]:
    """A fake without faults; nothing of this machine's own settings is seen, and no credentials."""
    import boto3

    from corpusmill.testing.sagemaker import FakeSageMaker
    from corpusmill.testing.sagemaker.server import REGION

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    s3 = boto3.client(
        "s3",
        endpoint_url=s3_url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    bucket = f"airflow-{next(BUCKETS)}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    with FakeSageMaker(s3=s3) as fake:
        made = Amazon(fake, s3_url, bucket)
        monkeypatch.setenv("AIRFLOW_CONN_AWS_FOR_TESTS", json.dumps(made.connection))
        yield made
    s3.close()
