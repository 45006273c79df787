"""The web interface in a real browser: what a user sees of the project after some materialisations."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

PROJECT = Path(__file__).parents[2] / "assets"
PATIENCE = 240
"""Seconds to wait for `dagster dev`, four processes that load everything, on a machine that has other work."""


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def dagster_dev(home: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the web interface and the daemon of an instance; give its address at once, before it answers."""
    port = free_port()
    with (home / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("dagster")), "dev", "-m", "corpus_assets.definitions"),
                *("-h", "127.0.0.1", "-p", str(port)),
            ],
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the web interface answers."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{address}/server_info", timeout=10)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            assert process.poll() is None, log.read_text("utf-8")[-3000:]
            assert time.monotonic() < until, log.read_text("utf-8")[-3000:]
            time.sleep(0.2)
        else:
            return


@contextmanager
def browser() -> Iterator[Chrome]:
    """Start Debian's Chromium without a screen."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1600,2400"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def seen(driver: Chrome, *words: str) -> str:
    """Wait until a page shows all words, and give its text."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    def shown(found: Chrome) -> str:
        text: str = found.find_element("tag name", "body").text
        return text if all(word in text for word in words) else ""

    wait = WebDriverWait(driver, 60, ignored_exceptions=[StaleElementReferenceException])
    return wait.until(shown, f"{driver.current_url} does not show {words}")


def press(driver: Chrome, name: str) -> None:
    """Press the one button of that name; a page that is drawn anew meanwhile is looked at again."""
    from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    def pressed(found: Chrome) -> bool:
        (button,) = [each for each in found.find_elements("tag name", "button") if each.text == name]
        button.click()
        return True

    redrawn = [StaleElementReferenceException, ElementClickInterceptedException, ValueError]
    wait = WebDriverWait(driver, 60, ignored_exceptions=redrawn)
    wait.until(pressed, f"{driver.current_url} has no one button {name}")


@pytest.mark.needs_system("chromium", "chromedriver")
@pytest.mark.timeout(2 * PATIENCE)
def test_a_user_sees_the_graph_the_materialisation_its_plots_checks_and_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph with sources, metadata and numbers that are plotted, checks that passed, partitions that are filled."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n", "utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("CORPUS_FOLDER", str(tmp_path / "tables"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT / "src"), os.environ["PYTHONPATH"]]))
    monkeypatch.syspath_prepend(str(PROJECT / "src"))
    from corpus_assets.definitions import defs

    with dg.DagsterInstance.get() as instance, dagster_dev(tmp_path) as (address, process):
        job = defs().resolve_implicit_global_asset_job_def()
        for asset in ("raw_corpus", "summarised_corpus", "summarised_corpus"):
            assert job.execute_in_process(instance=instance, asset_selection=[dg.AssetKey(asset)]).success
        job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("translated_corpus")],
            tags={"dagster/asset_partition_range_start": "lv", "dagster/asset_partition_range_end": "lt"},
        )
        wait_for(address, process, tmp_path / "dev.log")
        with browser() as driver:
            driver.get(f"{address}/asset-groups")
            seen(driver, "raw_corpus", "summarised_corpus", "extracted_facts", "4 / 4 Passed", "66% filled")
            driver.get(f"{address}/assets/summarised_corpus?view=events")
            page = seen(
                driver, "corpusmill/lineage", "corpusmill/preview", "corpusmill/cost_usd", "report.html"
            )
            assert "summarise" in page
            driver.get(f"{address}/assets/summarised_corpus?view=overview")
            seen(driver, "Upstream assets", "raw_corpus", "Plots")
            press(driver, "Plots")
            seen(driver, "corpusmill/answers/cached", "corpusmill/seconds")
            assert driver.find_elements("tag name", "canvas")
            driver.get(f"{address}/assets/translated_corpus?view=checks")
            page = seen(driver, "failed_rows", "untranslated_copies", "Passed")
            assert "Failed" not in page
            driver.get(f"{address}/assets/translated_corpus?view=partitions")
            seen(driver, "Materialized (2)", "Missing (1)")
            keep = os.environ.get("CORPUSMILL_SCREENSHOTS")
            if keep:
                driver.save_screenshot(str(Path(keep) / "dagster-partitions.png"))
