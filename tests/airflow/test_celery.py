"""Celery workers that share no disk: one dies, the other finishes; nobody sees half, and nothing is paid twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs as pafs
from tests.airflow.stack import Stack, free_port

import corpusmill
from corpusmill.errors import SourceError
from corpusmill.testing import FakeEndpoint
from corpusmill.testing.limits import RateLimits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("CORPUSMILL_AIRFLOW_CELERY") != "1",
        reason="Celery workers take minutes: make test-celery",
    ),
    pytest.mark.needs_system("redis-server"),
    pytest.mark.timeout(1500),
]

ROWS = 600
PER_MINUTE = 600
KEY = "sk-planted-0123456789abcdef"

DAG = """
from datetime import timedelta
from airflow.sdk import DAG
from corpusmill.airflow import enrich_shards

with DAG("sharded", schedule=None, default_args={"retries": 3, "retry_delay": timedelta(seconds=2)}) as dag:
    enrich_shards(
        "translate",
        rows_per_shard=50,
        source="s3://corpus/in.parquet",
        sink={"path": "s3://corpus/out", "rows_per_part": 50},
        prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
        conn_id="endpoint",
        store_conn_id="store",
        limits={"concurrency": 4, "requests_per_minute": 600},
        budget={"tokens": 1_000_000},
    )
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Run Debian's Redis, in memory only."""
    port = free_port()
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def s3(s3_url: str) -> Iterator[dict[str, str]]:
    """Make a bucket; give the environment in which it is found."""
    environment = {
        "AWS_ENDPOINT_URL": s3_url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        filesystem = pafs.S3FileSystem(
            endpoint_override=s3_url.removeprefix("http://"),
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        filesystem.create_dir("corpus")
        table = pa.table({"id": range(ROWS), "text": [f"Sentence {row} speaks." for row in range(ROWS)]})
        pq.write_table(table, "corpus/in.parquet", filesystem=filesystem)
        yield environment
    finally:
        os.environ.clear()
        os.environ.update(before)


def databases(server: str) -> tuple[str, str]:
    """Make two databases on the server; give the host of both: Airflow's own one, and that of the store."""
    with psycopg.connect(server, autocommit=True) as connection:
        for name in ("airflow", "corpus"):
            connection.execute(f"CREATE DATABASE {name}".encode())
        (folder,) = connection.execute("SHOW unix_socket_directories").fetchone() or ("",)
    return str(folder), server


class Reader(threading.Thread):
    """Looks at the sink again and again, as somebody does who waits for it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.counts: set[int] = set()
        self.looks = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            self.looks += 1
            try:
                self.counts.add(corpusmill.read("s3://corpus/out").count_rows())
            except SourceError:
                self.counts.add(0)
            time.sleep(0.2)


def test_one_of_two_workers_dies_and_the_dataset_is_whole_and_paid_once(
    tmp_path: Path, redis: str, s3: dict[str, str], postgres_server: str
) -> None:
    """The rate holds for both together, a reader sees nothing or all, and no finished request is asked again."""
    folder, _ = databases(postgres_server)
    metadata = f"postgresql+psycopg://postgres@/airflow?host={folder}"
    limits = RateLimits(requests_per_minute=int(PER_MINUTE * 1.1), burst=20)
    with FakeEndpoint(latency=0.1, limits=limits, api_key=KEY) as endpoint:
        environment = {
            **s3,
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
            "AIRFLOW__CELERY__BROKER_URL": f"{redis}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"{redis}/1",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "AIRFLOW_CONN_ENDPOINT": json.dumps(
                {
                    "conn_type": "openai_compatible",
                    "host": endpoint.base_url,
                    "password": KEY,
                    "extra": {"model": "fake"},
                }
            ),
            "AIRFLOW_CONN_STORE": json.dumps(
                {
                    "conn_type": "postgres",
                    "schema": "corpus",
                    "login": "postgres",
                    "extra": {"host": folder},
                }
            ),
        }
        (tmp_path / "dags").mkdir()
        (tmp_path / "dags" / "sharded.py").write_text(DAG, "utf-8")
        with Stack(tmp_path, environment=environment) as stack:
            for worker in ("one", "two"):
                start_worker(stack, worker)
            reader = Reader()
            reader.start()
            run = stack.trigger("sharded")
            stack.wait_for(
                lambda: endpoint.stats(details=False).computed >= 120 and shards_running(stack, run) > 1,
                what="answers",
            )
            stack.kill("one")
            committed = stack.wait_for_state(
                "sharded", run, "translate.commit", "success", "failed", "upstream_failed"
            )
            assert committed["state"] == "success"
            reader.looks = 0
            stack.wait_for(lambda: reader.looks > 2, what="the reader to look")
            reader.over.set()
            reader.join()
            path = f"/dags/sharded/dagRuns/{run}/taskInstances/translate.commit/xcomEntries/return_value"
            made: Any = stack.call("GET", path)["value"]
            made = json.loads(made) if isinstance(made, str) else made
            tries = [
                task["try_number"]
                for task in stack.tasks("sharded", run)
                if task["task_id"] == "translate.shard"
            ]
            written = stack.written()
    stats = endpoint.stats(details=False)
    assert made["rows"] == ROWS
    assert reader.counts == {0, ROWS}
    assert max(tries) > 1
    assert (stats.distinct, stats.rate_limited) == (ROWS, 0)
    assert stats.computed_again <= made["possibly_paid_twice"] <= 16
    assert corpusmill.read("s3://corpus/out").to_table().column("id").to_pylist() == list(range(ROWS))
    assert KEY not in written


def shards_running(stack: Stack, run: str) -> int:
    """Count the shards that are being asked."""
    tasks = stack.tasks("sharded", run)
    return sum(task["task_id"] == "translate.shard" and task["state"] == "running" for task in tasks)


def start_worker(stack: Stack, name: str) -> None:
    """Start a worker that has a home, a folder of Dags and temporary files of its own."""
    home = stack.folder / f"worker-{name}"
    (home / "tmp").mkdir(parents=True)
    shutil.copytree(stack.dags, home / "dags")
    stack.start(
        "celery",
        "worker",
        "--concurrency",
        "2",
        "--celery-hostname",
        f"{name}@localhost",
        label=name,
        environment={
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(stack.logs / name),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "TMPDIR": str(home / "tmp"),
        },
    )
