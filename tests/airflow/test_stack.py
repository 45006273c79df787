"""A real Airflow: tasks that are killed, deferred over a restart, stopped; a report in a browser, no secrets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.airflow.stack import USER, Stack

import corpusmill
from corpusmill.airflow.link import REPORT_KEY
from corpusmill.testing import FakeEndpoint
from corpusmill.testing.limits import RateLimits
from corpusmill.testing.sagemaker import AccessKey, FakeSageMaker
from corpusmill.testing.sagemaker.server import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("CORPUSMILL_AIRFLOW_STACK") != "1",
        reason="a real Airflow takes minutes: make test-airflow",
    ),
    pytest.mark.timeout(1200),
]

KEY = "sk-planted-0123456789abcdef"
WRONG_KEY = "sk-planted-and-wrong-0123456789"
AWS_KEY = AccessKey(key="AKIDPLANTED000000000", secret="planted/secret+0123456789")
ROWS = 240
CONCURRENCY = 8

DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from corpusmill.airflow import EnrichOperator

def enrich(name, conn_id, **options):
    with DAG(name, schedule=None) as dag:
        EnrichOperator(
            task_id="translate",
            source=folder + "/corpus.parquet",
            sink=folder + "/" + name,
            prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
            conn_id=conn_id,
            store="sqlite:///" + folder + "/" + name + ".db",
            limits={"concurrency": 8},
            retries=2,
            retry_delay=timedelta(seconds=1),
            **options,
        )
    return dag

killed = enrich("killed", "slow")
refused = enrich("refused", "wrong")
deferred = enrich("deferred", "quota")
"""

NIGHTS = """
from datetime import timedelta
from airflow.sdk import DAG
from corpusmill.airflow import TransformJobOperator

def transform(name, **options):
    with DAG(name, schedule=None) as dag:
        TransformJobOperator(
            task_id="translate",
            source=folder + "/corpus.parquet",
            sink=folder + "/" + name,
            prompts=[{"translate": {"column": "text", "into": "text_lv", "from": "en", "to": "lv"}}],
            endpoint={"sagemaker_transform": {
                "model_name": "tildeopen-30b-64k", "model": "tildeopen-30b-64k", "instance_type": "ml.g6.48xlarge",
                "s3": "s3://nights/" + name, "shard_rows": 80, "poll_seconds": 0.5,
            }},
            aws_conn_id="amazon",
            store="sqlite:///" + folder + "/" + name + ".db",
            retries=3,
            retry_delay=timedelta(seconds=1),
            **options,
        )
    return dag

night = transform("night")
watch = transform("watch", deferrable=False)
stopped = transform("stopped", stop_on_kill=True)
ended = transform("ended", stop_on_kill=True, deferrable=False)
"""


class Running(NamedTuple):
    """The Airflow of these tests, and the services that its Dags ask."""

    stack: Stack
    slow: FakeEndpoint
    quota: FakeEndpoint
    amazon: FakeSageMaker

    def jobs_of(self, name: str) -> list[str]:
        """Name the transform jobs of a Dag, as the control plane lists them to whoever asks."""
        pages = control_plane(self.amazon).get_paginator("list_transform_jobs").paginate()
        listed = [job["TransformJobName"] for page in pages for job in page["TransformJobSummaries"]]
        jobs = self.amazon.jobs.jobs
        place = f"s3://nights/{name}/"
        return [
            job for job in listed if jobs[job].request["TransformOutput"]["S3OutputPath"].startswith(place)
        ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, s3_url: str) -> Iterator[Running]:
    """Start Airflow over its Dags, and all that they ask."""
    folder = tmp_path_factory.mktemp("stack")
    table = pa.table({"id": range(ROWS), "text": [f"Sentence {row} speaks." for row in range(ROWS)]})
    pq.write_table(table, folder / "corpus.parquet")
    (folder / "dags").mkdir()
    for name, source in (("enriching", DAGS), ("nights", NIGHTS)):
        (folder / "dags" / f"{name}.py").write_text(f"folder = {str(folder)!r}\n{source}", "utf-8")
    limits = RateLimits(requests_per_day=ROWS - 60, day_seconds=90)
    with (
        FakeEndpoint(latency=0.2, api_key=KEY) as slow,
        FakeEndpoint(limits=limits, api_key=KEY) as quota,
        amazon_on_loopback(s3_url) as (amazon, amazon_connection),
    ):
        connections = {
            "AIRFLOW_CONN_AMAZON": json.dumps(amazon_connection),
            **{
                f"AIRFLOW_CONN_{name}": json.dumps(
                    {
                        "conn_type": "openai_compatible",
                        "host": endpoint.base_url,
                        "password": key,
                        "extra": {"model": "fake"},
                    }
                )
                for name, endpoint, key in (
                    ("SLOW", slow, KEY),
                    ("QUOTA", quota, KEY),
                    ("WRONG", slow, WRONG_KEY),
                )
            },
            # A worker dies in the moment in which it has created a job and nobody knows it yet but the service.
            "CORPUSMILL_KILL_AT": "transform.created",
            "CORPUSMILL_KILL_LOG": str(folder / "kills"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        with Stack(folder, environment=connections) as stack:
            yield Running(stack, slow, quota, amazon)


@contextlib.contextmanager
def amazon_on_loopback(s3_url: str) -> Iterator[tuple[FakeSageMaker, dict[str, Any]]]:
    """Start a SageMaker whose jobs are held, beside that S3; give the connection that leads there."""
    s3 = boto3.client(
        "s3", endpoint_url=s3_url, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x"
    )
    s3.create_bucket(Bucket="nights", CreateBucketConfiguration={"LocationConstraint": REGION})
    with FakeSageMaker(s3=s3, keys=[AWS_KEY]) as amazon:
        amazon.pace.set(0)
        yield (
            amazon,
            {
                "conn_type": "aws",
                "login": AWS_KEY.key,
                "password": AWS_KEY.secret,
                "extra": {
                    "region_name": REGION,
                    "endpoint_url": amazon.url,
                    "service_config": {"s3": {"endpoint_url": s3_url}},
                },
            },
        )
    s3.close()


def control_plane(amazon: FakeSageMaker) -> Any:
    """Give an unmodified client of the control plane."""
    return boto3.client(
        "sagemaker",
        endpoint_url=amazon.url,
        region_name=REGION,
        aws_access_key_id=AWS_KEY.key,
        aws_secret_access_key=AWS_KEY.secret,
    )


def asking_process(store: Path) -> int | None:
    """Tell which process asks on behalf of a store."""
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
        row = connection.execute("SELECT pid FROM owners ORDER BY id DESC").fetchone()
    connection.close()
    return None if row is None else int(row[0])


def test_a_task_that_is_killed_in_mid_run_goes_on_and_asks_no_finished_request_again(
    running: Running,
) -> None:
    """SIGKILL to the task's process; the retry finishes, and the endpoint counts at most what was in flight."""
    stack, endpoint = running.stack, running.slow
    run = stack.trigger("killed")
    stack.wait_for(lambda: endpoint.stats(details=False).computed >= 60, what="sixty answers")
    pid = asking_process(stack.folder / "killed.db")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    task = stack.wait_for_state("killed", run, "translate", "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    value = stack.xcom("killed", run, "translate", "return_value")
    stats = endpoint.stats(details=False)
    assert stats.distinct == ROWS
    assert stats.computed_again <= value["possibly_paid_twice"] <= CONCURRENCY
    assert value["live"] + value["cached"] == ROWS
    assert value["cached"] >= 60 - CONCURRENCY
    table = corpusmill.read(stack.folder / "killed").to_table()
    assert table.column("id").to_pylist() == list(range(ROWS))


def test_a_deferred_task_survives_a_restart_of_the_triggerer(running: Running) -> None:
    """The quota is used up, the task waits without a worker, its triggerer dies, another one wakes it."""
    stack, endpoint = running.stack, running.quota
    run = stack.trigger("deferred")
    stack.wait_for_state("deferred", run, "translate", "deferred")
    stack.stop("triggerer", signal.SIGKILL)
    stack.start("triggerer")
    task = stack.wait_for_state("deferred", run, "translate", "success", "failed")
    assert task["state"] == "success"
    stats = endpoint.stats(details=False)
    assert (stats.distinct, stats.computed_again) == (ROWS, 0)


def check_night(running: Running, dag_id: str, run: str) -> str:
    """Check that one job has answered every row, each one once; give its name."""
    stack, amazon = running.stack, running.amazon
    (name,) = running.jobs_of(dag_id)
    assert amazon.jobs.jobs[name].status == "Completed"
    made = stack.xcom(dag_id, run, "translate", "return_value")
    assert (made["rows"], made["outcomes"], made["cached"]) == (ROWS, {"completed": ROWS}, ROWS)
    table = corpusmill.read(stack.folder / dag_id).to_table()
    assert table.column("id").to_pylist() == list(range(ROWS))
    assert table.column("text_lv").null_count == 0
    return name


def wait_for_looks(running: Running) -> None:
    """Wait until somebody has looked at jobs a few times; no other task does while this is called."""
    looks = running.amazon.operations.count("DescribeTransformJob")
    running.stack.wait_for(
        lambda: running.amazon.operations.count("DescribeTransformJob") > looks + 2,
        what="the triggerer to look",
    )


def test_a_transform_survives_a_killed_worker_and_a_restart_of_the_triggerer(running: Running) -> None:
    """The worker dies right after it has created the job, then the triggerer dies: one job, and the output is right."""
    stack, amazon = running.stack, running.amazon
    run = stack.trigger("night")
    task = stack.wait_for_state("night", run, "translate", "deferred")
    assert task["try_number"] == 2
    assert (stack.folder / "kills").read_text() == "transform.created\n"
    (name,) = running.jobs_of("night")
    wait_for_looks(running)
    stack.stop("triggerer", signal.SIGKILL)
    amazon.pace.set(None)
    assert amazon.jobs.jobs[name].over.wait(60)
    amazon.pace.set(0)
    stack.start("triggerer")
    task = stack.wait_for_state("night", run, "translate", "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert check_night(running, "night", run) == name
    assert link_of(stack, "night", "Transform job").endswith(f"#/transform-jobs/{name}")


def test_a_worker_that_waits_is_killed_and_the_next_one_takes_the_job_up(running: Running) -> None:
    """SIGKILL while it looks at the job; the next attempt finds the name in the task's state."""
    stack, amazon = running.stack, running.amazon
    run = stack.trigger("watch")
    # The first attempt ends by the kill point, the second one looks.
    stack.wait_for(lambda: stack.state("watch", run, "translate"), what="the name in the task's state")
    task = stack.wait_for_state("watch", run, "translate", "running")
    os.kill(task["pid"], signal.SIGKILL)
    stack.wait_for(
        lambda: "there are jobs from before" in stack.log("watch", run, "translate"), what="the next attempt"
    )
    amazon.pace.set(None)
    task = stack.wait_for_state("watch", run, "translate", "success", "failed")
    amazon.pace.set(0)
    assert (task["state"], task["try_number"]) == ("success", 3)
    check_night(running, "watch", run)


def test_a_deferred_transform_that_a_user_fails_is_stopped_if_that_was_asked_for(running: Running) -> None:
    """The triggerer tells the service; after the task is cleared another job is started, since nothing is kept."""
    stack, amazon = running.stack, running.amazon
    run = stack.trigger("stopped")
    stack.wait_for_state("stopped", run, "translate", "deferred")
    (first,) = running.jobs_of("stopped")
    wait_for_looks(running)  # Airflow tells a trigger only when it runs
    stack.fail("stopped", run, "translate")
    stack.wait_for(lambda: amazon.jobs.jobs[first].status == "Stopped", what="the job to be stopped")
    stack.clear("stopped", run, "translate")
    stack.wait_for(lambda: len(running.jobs_of("stopped")) == 2, what="another job")
    amazon.pace.set(None)
    task = stack.wait_for_state("stopped", run, "translate", "success", "failed")
    amazon.pace.set(0)
    assert task["state"] == "success"
    assert corpusmill.read(stack.folder / "stopped").count_rows() == ROWS
    assert sorted(job.status for job in map(amazon.jobs.jobs.get, running.jobs_of("stopped")) if job) == [
        "Completed",
        "Stopped",
    ]


def test_a_wrong_key_fails_the_task_at_once_and_its_report_is_recorded(running: Running) -> None:
    """The retry policy tries no second time; the record is there and the link leads to a page."""
    stack = running.stack
    run = stack.trigger("refused")
    task = stack.wait_for_state("refused", run, "translate", "success", "failed")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    record = stack.xcom("refused", run, "translate", REPORT_KEY)
    assert record["address"] == f"{stack.folder}/refused.failed.report.json"
    assert "/corpusmill/report/refused/" in link_of(stack, "refused")


def test_a_running_transform_that_a_user_fails_is_stopped_if_that_was_asked_for(running: Running) -> None:
    """The worker that looks at the job tells the service, on its way out."""
    stack, amazon = running.stack, running.amazon
    run = stack.trigger("ended")
    stack.wait_for(lambda: stack.state("ended", run, "translate"), what="the name in the task's state")
    (name,) = running.jobs_of("ended")
    assert amazon.jobs.jobs[name].status == "InProgress"
    stack.fail("ended", run, "translate")
    stack.wait_for(lambda: amazon.jobs.jobs[name].status == "Stopped", what="the job to be stopped")


def link_of(stack: Stack, dag_id: str, name: str = "Enrichment report") -> str:
    """Give the address behind a link of a Dag's only task."""
    run = stack.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"][0]["dag_run_id"]
    found = stack.call("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/translate/links")
    address: str = found["extra_links"][name]
    return address


def test_the_report_is_refused_to_whoever_has_not_logged_in(running: Running) -> None:
    """No cookie and no token: no report, whatever is asked for."""
    for address in (
        link_of(running.stack, "killed"),
        f"{running.stack.base_url}/corpusmill/report/killed/no/translate/-1",
        f"{running.stack.base_url}/corpusmill/report/killed/no/translate/%7BMAP_INDEX%7D",
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address, timeout=60)
        assert caught.value.code == 401
        caught.value.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chrome]:
    """Start Debian's Chromium without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
        f"--user-data-dir={tmp_path}/profile",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


def waiting(browser: Chrome) -> Any:
    """Give what waits for a page, patiently: pages redraw while they are looked at."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 120, ignored_exceptions=(WebDriverException,))


def show_task(stack: Stack, browser: Chrome, dag_id: str) -> None:
    """Log in, and open the page of a Dag's only task."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support import expected_conditions as until

    wait = waiting(browser)
    browser.get(f"{stack.base_url}/")  # which leads on to the login by itself
    name = wait.until(until.element_to_be_clickable((By.NAME, "username")))
    name.send_keys(USER)
    browser.find_element(By.NAME, "password").send_keys(stack.password)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    wait.until(lambda driver: "/auth/" not in driver.current_url)
    run = stack.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"][0]["dag_run_id"]
    browser.get(f"{stack.base_url}/dags/{dag_id}/runs/{run}/tasks/translate")


def read_tab(browser: Chrome) -> str:
    """Click the tab, and give what the report in it says."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support import expected_conditions as until

    wait = waiting(browser)
    wait.until(until.element_to_be_clickable((By.LINK_TEXT, "Enrichment report"))).click()
    wait.until(until.frame_to_be_available_and_switch_to_it((By.TAG_NAME, "iframe")))
    text: str = wait.until(until.visibility_of_element_located((By.TAG_NAME, "main"))).text
    browser.switch_to.default_content()
    return text


@pytest.mark.needs_system("chromium", "chromedriver")
def test_one_click_leads_from_the_task_to_its_report(running: Running, browser: Chrome) -> None:
    """A tab of the task's page shows the right number of rows, and a link among the details opens the same page."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support import expected_conditions as until

    wait = waiting(browser)
    show_task(running.stack, browser, "killed")
    told = read_tab(browser)
    _keep_picture(browser, "tab")
    assert f"{ROWS} rows" in told
    wait.until(until.element_to_be_clickable((By.LINK_TEXT, "Details"))).click()
    link = wait.until(until.element_to_be_clickable((By.CSS_SELECTOR, "a[href*='/corpusmill/report/']")))
    _keep_picture(browser, "task")
    before = set(browser.window_handles)
    link.click()
    wait.until(lambda driver: set(driver.window_handles) - before or "/corpusmill/" in driver.current_url)
    opened = set(browser.window_handles) - before
    if opened:
        browser.switch_to.window(opened.pop())
    wait.until(lambda driver: "corpusmill" in driver.title)
    _keep_picture(browser, "report")
    assert browser.find_element(By.TAG_NAME, "main").text == told


@pytest.mark.needs_system("chromium", "chromedriver")
def test_the_tab_of_a_failed_task_says_what_ended_it(running: Running, browser: Chrome) -> None:
    """The report is there, and does not say that anything is done."""
    show_task(running.stack, browser, "refused")
    told = read_tab(browser)
    _keep_picture(browser, "failed")
    assert "ended early, nothing committed" in told
    assert "HTTP 401" in told


def _keep_picture(browser: Chrome, name: str) -> None:
    """Keep what the browser shows, where somebody wants to look at it."""
    folder = os.environ.get("CORPUSMILL_PICTURES")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"airflow-{name}.png"))


def test_planted_secrets_are_nowhere(running: Running) -> None:
    """Not in logs, XComs, events, rendered fields, arguments of triggers or reports."""
    stack = running.stack
    with contextlib.closing(sqlite3.connect(stack.folder / "airflow.db")) as database:
        rows = database.execute("SELECT * FROM task_state_store").fetchall()
    shown: list[Any] = [stack.written(), rows]
    for dag_id in ("killed", "deferred", "refused", "night", "watch", "stopped"):
        for run in stack.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]:
            path = f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances"
            shown.append(stack.call("GET", path))
            entries = stack.call("GET", f"{path}/translate/xcomEntries")["xcom_entries"]
            shown.extend(
                stack.call("GET", f"{path}/translate/xcomEntries/{entry['key']}") for entry in entries
            )
        report = stack.folder / dag_id / "_corpusmill" / "report.json"
        failed = stack.folder / f"{dag_id}.failed.report.json"
        shown.append((failed if dag_id == "refused" else report).read_text("utf-8"))
    everything = "\n".join(map(str, shown))
    assert "rendered_fields" in everything
    assert "conn_id" in everything
    assert "AMAZON" in everything.upper()
    assert KEY not in everything
    assert WRONG_KEY not in everything
    assert AWS_KEY.key not in everything
    assert AWS_KEY.secret not in everything
