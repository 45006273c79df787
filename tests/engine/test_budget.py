"""A budget is hard: kept by run key over kills and shards, waited for while it may fit, and never exceeded."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import Ask, Budget, Limits, OpenAICompatible, enrich
from corpusmill.cli import main
from corpusmill.errors import BudgetUsedUpError, UsageError
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill import RunReport

ROWS = 40
CONCURRENCY = 8
CEILING = 60
TEMPLATE = "Name the topic of: {text}"

MOST = CEILING + 60
"""More tokens than any of the requests can take."""


def corpus(folder: Path) -> Path:
    """The source: forty different rows."""
    source = folder / "in.parquet"
    if not source.exists():
        pq.write_table(
            pa.table({"text": [f"Text number {number} of many." for number in range(ROWS)]}), source
        )
    return source


def run(folder: Path, endpoint: FakeEndpoint, sink: str = "out", **more: Any) -> RunReport:
    """Ask about each row, for at most sixty tokens."""
    return enrich(
        corpus(folder),
        folder / sink,
        Ask(TEMPLATE, into="topic", max_tokens=CEILING),
        endpoint=OpenAICompatible(endpoint.base_url, "any"),
        store=f"sqlite:///{folder / 'store.db'}",
        limits=Limits(concurrency=CONCURRENCY),
        **more,
    )


def paid(endpoint: FakeEndpoint) -> int:
    """The tokens of all answers that were computed."""
    stats = endpoint.stats()
    return stats.prompt_tokens + stats.completion_tokens


@pytest.fixture(scope="module")
def needed(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The tokens that the whole job takes."""
    with FakeEndpoint() as endpoint:
        report = run(tmp_path_factory.mktemp("whole"), endpoint)
        assert paid(endpoint) == report.prompt_tokens + report.completion_tokens
    return report.prompt_tokens + report.completion_tokens


def test_a_budget_that_suffices_serves_every_row(tmp_path: Path, needed: int) -> None:
    """Reservations that do not fit at first wait for what is in flight, and fit then."""
    with FakeEndpoint(latency=0.01) as endpoint:
        report = run(tmp_path, endpoint, budget=Budget(tokens=needed + MOST))
        assert report.outcomes == {"completed": ROWS}
        assert endpoint.stats().requests == ROWS


def test_no_more_requests_are_out_than_the_budget_can_pay(tmp_path: Path) -> None:
    """Where the budget holds two requests at a time, a third one waits."""
    with FakeEndpoint(latency=0.05) as endpoint, pytest.raises(BudgetUsedUpError):
        run(tmp_path, endpoint, budget=Budget(tokens=250))
    assert 1 <= endpoint.stats().max_in_flight <= 2
    assert 0 < paid(endpoint) <= 250


@pytest.mark.parametrize("part", [0.3, 0.8])
def test_a_used_up_budget_commits_nothing_and_keeps_what_was_paid(
    tmp_path: Path, needed: int, part: float
) -> None:
    """What was spent is within the budget, all of it is in the store, and a larger budget asks only the rest."""
    budget = int(needed * part)
    with FakeEndpoint() as endpoint:
        with pytest.raises(BudgetUsedUpError, match=f"of {budget:,} tokens are spent") as refused:
            run(tmp_path, endpoint, budget=Budget(tokens=budget))
        first = endpoint.stats().requests
        assert not (tmp_path / "out").exists()
        assert 0 < paid(endpoint) <= budget
        assert refused.value.report is not None
        assert refused.value.report.attempts == first
        with pytest.raises(BudgetUsedUpError):
            run(tmp_path, endpoint, budget=Budget(tokens=budget))
        assert endpoint.stats().requests == first, "the same budget allows no more the second time"
        report = run(tmp_path, endpoint, budget=Budget(tokens=10 * needed))
        assert (report.cached, report.live) == (first, ROWS - first)
        assert endpoint.stats().requests == ROWS


def test_spend_is_kept_over_a_kill(tmp_path: Path, needed: int) -> None:
    """What a killed run has spent is spent: the next one with the same budget ends with exit code 4."""
    budget = int(needed * 0.6)
    job = tmp_path / "job.yaml"
    store = tmp_path / "store.db"
    with FakeEndpoint() as endpoint:
        job.write_text(
            f"source: {corpus(tmp_path)}\nsink: {tmp_path / 'out'}\n"
            f"prompts: [{{ask: {{template: '{TEMPLATE}', into: topic, max_tokens: {CEILING}}}}}]\n"
            f"endpoint: {{openai_compatible: {{base_url: '{endpoint.base_url}', model: any}}}}\n"
            f"store: sqlite:///{store}\nlimits: {{concurrency: {CONCURRENCY}}}\nbudget: {{tokens: {budget}}}\n",
            "utf-8",
        )
        child = subprocess.run(
            [sys.executable, "-m", "corpusmill", "run", str(job), "--quiet"],
            env={**os.environ, "CORPUSMILL_KILL_AT": "stored:6"},
            capture_output=True,
            timeout=100,
            check=False,
        )
        assert child.returncode == -9
        before = spent(store)
        assert before > 0
        assert main(["run", str(job), "--quiet"]) == 4
        assert not (tmp_path / "out").exists()
        assert before < spent(store) <= budget
        # What was out at the moment of the kill was paid, and nobody can know how much it was.
        assert paid(endpoint) <= budget + CONCURRENCY * MOST


def spent(store: Path) -> int:
    """The tokens in the account of the one run key of a store."""
    with closing(sqlite3.connect(store)) as connection:
        ((tokens,),) = connection.execute("SELECT prompt_tokens + completion_tokens FROM runs").fetchall()
    return int(tokens)


def test_runs_of_one_key_share_a_budget(tmp_path: Path, needed: int) -> None:
    """Two at once over the same rows stay within the budget together, also with what they have in flight."""
    budget = int(needed * 0.5)
    ended: list[BaseException] = []
    corpus(tmp_path)

    def one(sink: str) -> None:
        try:
            run(tmp_path, endpoint, sink, budget=Budget(tokens=budget))
        except BudgetUsedUpError as error:
            ended.append(error)

    with FakeEndpoint(latency=0.01) as endpoint:
        threads = [threading.Thread(target=one, args=(name,)) for name in ("out", "other")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ended) == 2
    assert 0 < paid(endpoint) <= budget
    assert endpoint.stats().computed_again == 0


def test_the_next_run_of_a_finished_job_has_the_whole_budget(tmp_path: Path, needed: int) -> None:
    """Finishing closes the account: asking everything again may cost as much as the first time."""
    budget = Budget(tokens=needed + MOST)
    with FakeEndpoint() as endpoint:
        run(tmp_path, endpoint, budget=budget)
        again = run(tmp_path, endpoint, budget=budget, mode="refresh")
    assert again.live == ROWS


def test_dollars_are_reserved_by_the_prices_of_both_ways(tmp_path: Path) -> None:
    """With answers a hundred times as dear as texts, what was spent stays within the dollars."""
    prices = (1.0, 100.0)
    with FakeEndpoint() as endpoint:
        cost = run(tmp_path, endpoint, "whole", prices=prices, mode="off").cost
        assert cost is not None
        endpoint.reset()
        with pytest.raises(BudgetUsedUpError, match=re.escape(f"of ${cost * 0.8:,.4f} are spent")):
            run(tmp_path, endpoint, prices=prices, budget=Budget(usd=cost * 0.8))
        stats = endpoint.stats()
    assert 0 < (stats.prompt_tokens + 100 * stats.completion_tokens) / 1e6 <= cost * 0.8


def test_a_budget_in_dollars_without_prices_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    """What cannot be counted cannot be kept."""
    with FakeEndpoint() as endpoint:
        with pytest.raises(UsageError, match=r"budget.usd is 5, and what a token costs is not known"):
            run(tmp_path, endpoint, budget=Budget(usd=5))
        assert endpoint.stats().requests == 0
    assert not (tmp_path / "store.db").exists()
