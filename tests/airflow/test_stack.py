"""A real Airflow: a task that is killed, one that is deferred over a restart, a report in a browser, no secrets."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.airflow.stack import USER, Stack

import corpusmill
from corpusmill.testing import FakeEndpoint
from corpusmill.testing.limits import RateLimits

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
deferred = enrich("deferred", "quota")
"""


class Running(NamedTuple):
    """The Airflow of these tests, and the endpoints that its Dags ask."""

    stack: Stack
    slow: FakeEndpoint
    quota: FakeEndpoint


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start Airflow over two Dags."""
    folder = tmp_path_factory.mktemp("stack")
    table = pa.table({"id": range(ROWS), "text": [f"Sentence {row} speaks." for row in range(ROWS)]})
    pq.write_table(table, folder / "corpus.parquet")
    (folder / "dags").mkdir()
    (folder / "dags" / "enriching.py").write_text(f"folder = {str(folder)!r}\n{DAGS}", "utf-8")
    limits = RateLimits(requests_per_day=ROWS - 60, day_seconds=90)
    with (
        FakeEndpoint(latency=0.2, api_key=KEY) as slow,
        FakeEndpoint(limits=limits, api_key=KEY) as quota,
    ):
        connections = {
            f"AIRFLOW_CONN_{name}": json.dumps(
                {
                    "conn_type": "openai_compatible",
                    "host": endpoint.base_url,
                    "password": KEY,
                    "extra": {"model": "fake"},
                }
            )
            for name, endpoint in (("SLOW", slow), ("QUOTA", quota))
        }
        with Stack(folder, environment=connections) as stack:
            yield Running(stack, slow, quota)


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
    stack, endpoint, _ = running
    run = stack.trigger("killed")
    stack.wait_for(lambda: endpoint.stats(details=False).computed >= 60, what="sixty answers")
    pid = asking_process(stack.folder / "killed.db")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    task = stack.wait_for_state("killed", run, "translate", "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    made = stack.call("GET", f"/dags/killed/dagRuns/{run}/taskInstances/translate/xcomEntries/return_value")
    value = made["value"]
    value = json.loads(value) if isinstance(value, str) else value
    stats = endpoint.stats(details=False)
    assert stats.distinct == ROWS
    assert stats.computed_again <= value["possibly_paid_twice"] <= CONCURRENCY
    assert value["live"] + value["cached"] == ROWS
    assert value["cached"] >= 60 - CONCURRENCY
    table = corpusmill.read(stack.folder / "killed").to_table()
    assert table.column("id").to_pylist() == list(range(ROWS))


def test_a_deferred_task_survives_a_restart_of_the_triggerer(running: Running) -> None:
    """The quota is used up, the task waits without a worker, its triggerer dies, another one wakes it."""
    stack, _, endpoint = running
    run = stack.trigger("deferred")
    stack.wait_for_state("deferred", run, "translate", "deferred")
    stack.stop("triggerer", signal.SIGKILL)
    stack.start("triggerer")
    task = stack.wait_for_state("deferred", run, "translate", "success", "failed")
    assert task["state"] == "success"
    stats = endpoint.stats(details=False)
    assert (stats.distinct, stats.computed_again) == (ROWS, 0)


def link_of(stack: Stack, dag_id: str) -> str:
    """Give the address behind the link of a Dag's only task."""
    run = stack.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"][0]["dag_run_id"]
    found = stack.call("GET", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/translate/links")
    address: str = found["extra_links"]["Enrichment report"]
    return address


def test_the_report_is_refused_to_whoever_has_not_logged_in(running: Running) -> None:
    """No cookie and no token: no report, whatever is asked for."""
    for address in (
        link_of(running.stack, "killed"),
        f"{running.stack.base_url}/corpusmill/report/killed/no/translate/-1",
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


@pytest.mark.needs_system("chromium", "chromedriver")
def test_a_click_leads_from_the_task_to_its_report(running: Running, browser: Chrome) -> None:
    """After the login, the button on the task's page opens the page with the right number of rows."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support import expected_conditions as until
    from selenium.webdriver.support.wait import WebDriverWait

    stack = running.stack
    # The first page leads on to the login by itself, and pages redraw while they are looked at.
    wait = WebDriverWait(browser, 120, ignored_exceptions=(WebDriverException,))
    run = stack.call("GET", "/dags/killed/dagRuns")["dag_runs"][0]["dag_run_id"]
    browser.get(f"{stack.base_url}/")
    name = wait.until(until.element_to_be_clickable((By.NAME, "username")))
    name.send_keys(USER)
    browser.find_element(By.NAME, "password").send_keys(stack.password)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    wait.until(lambda driver: "/auth/" not in driver.current_url)
    browser.get(f"{stack.base_url}/dags/killed/runs/{run}/tasks/translate")
    wait.until(until.element_to_be_clickable((By.LINK_TEXT, "Details"))).click()
    link = wait.until(until.element_to_be_clickable((By.LINK_TEXT, "Enrichment report")))
    _keep_picture(browser, "task")
    before = set(browser.window_handles)
    link.click()
    wait.until(lambda driver: set(driver.window_handles) - before or "/corpusmill/" in driver.current_url)
    opened = set(browser.window_handles) - before
    if opened:
        browser.switch_to.window(opened.pop())
    wait.until(lambda driver: "corpusmill" in driver.title)
    _keep_picture(browser, "report")
    assert f"{ROWS}" in browser.find_element(By.TAG_NAME, "main").text


def _keep_picture(browser: Chrome, name: str) -> None:
    """Keep what the browser shows, where somebody wants to look at it."""
    folder = os.environ.get("CORPUSMILL_PICTURES")
    if folder:
        browser.save_screenshot(str(Path(folder) / f"airflow-{name}.png"))


def test_planted_secrets_are_nowhere(running: Running) -> None:
    """Not in logs, XComs, events, rendered fields or reports."""
    stack = running.stack
    shown: list[Any] = [stack.written()]
    for dag_id in ("killed", "deferred"):
        for run in stack.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]:
            path = f"/dags/{dag_id}/dagRuns/{run['dag_run_id']}/taskInstances"
            shown.append(stack.call("GET", path))
            entries = stack.call("GET", f"{path}/translate/xcomEntries")["xcom_entries"]
            shown.extend(
                stack.call("GET", f"{path}/translate/xcomEntries/{entry['key']}") for entry in entries
            )
        report = stack.folder / dag_id / "_corpusmill" / "report.json"
        shown.append(report.read_text("utf-8"))
    everything = "\n".join(map(str, shown))
    assert "rendered_fields" in everything
    assert "conn_id" in everything
    assert KEY not in everything
