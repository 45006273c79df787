"""A used-up quota: waited for in the step, or failed with the moment of its reset and resumed by the sensor."""

from __future__ import annotations

import datetime as dt
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from corpusmill.dagster import Dimension, enriched_asset, resume_after_quota
from corpusmill.dagster.execution import Execution
from corpusmill.dagster.failures import MOST_WAITS, RESETS_AT, WAITS_FOR
from corpusmill.dagster.sensor import RESUMES
from corpusmill.errors import ComeBackLaterError
from corpusmill.testing.faults import Fault

if TYPE_CHECKING:
    from tests.dagster.conftest import Runs

    from corpusmill.testing import FakeEndpoint


def used_up(seconds: float) -> Fault:
    """Make the answer of an endpoint whose daily quota resets after so many seconds."""
    return Fault(
        "reply",
        status=429,
        headers={"retry-after": f"{seconds:.0f}"},
        body=b'{"error": {"message": "quota", "code": "insufficient_quota", "type": "insufficient_quota"}}',
    )


def test_a_quota_that_resets_tomorrow_is_resumed_by_the_sensor(
    job: dict[str, Any], runs: Runs, endpoint: FakeEndpoint
) -> None:
    """The failure says when; after that moment the sensor starts the same partitions once, and no sooner."""
    endpoint.script(lambda *_: used_up(86_400))
    days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])
    job["sink"] = {"path": job["sink"], "columns": ["text"]}
    definitions = enriched_asset(
        "translated", job, partitions={"day": Dimension(definition=days, column="day")}
    )
    failed = runs.materialise(definitions, span=("2026-01-01", "2026-01-02"), assets=["translated"])
    description, told = runs.failure(failed)
    assert "The sensor resumes this run" in description
    resets_at = dt.datetime.fromtimestamp(told["corpusmill/resets_at"], dt.UTC)
    assert resets_at > dt.datetime.now(dt.UTC) + dt.timedelta(hours=23)
    endpoint.script(None)
    sensor = resume_after_quota()

    def evaluate() -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=runs.instance)
        return [each for each in sensor(context) or () if isinstance(each, dg.RunRequest)]

    assert evaluate() == []
    passed = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    runs.instance.add_run_tags(failed.run_id, {RESETS_AT: passed.isoformat()})
    (request,) = evaluate()
    assert request.tags["dagster/asset_partition_range_end"] == "2026-01-02"
    assert request.tags[RESUMES] == failed.run_id
    assert list(request.asset_selection or ()) == [dg.AssetKey("translated")]
    graph = definitions.resolve_implicit_global_asset_job_def()
    resumed = graph.execute_in_process(
        instance=runs.instance, tags=dict(request.tags), asset_selection=list(request.asset_selection or ())
    )
    assert set(runs.events(resumed, "translated")) == {"2026-01-01", "2026-01-02"}
    assert evaluate() == []
    run = runs.instance.get_run_by_id(failed.run_id)
    assert run is not None
    assert run.tags[WAITS_FOR] == "resumed"


def test_a_quota_that_resets_soon_is_asked_again_by_the_step() -> None:
    """Within ten minutes the step asks Dagster for another try, and says how long to wait before it."""
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=5)
    context: Any = SimpleNamespace(retry_number=0, log=logging.getLogger("corpusmill.tests"))
    execution = Execution(
        context=context, dimensions={}, spec=dg.AssetSpec("translated"), rules={}, work=lambda _: None
    )
    with pytest.raises(dg.RetryRequested) as raised:
        execution.give_up(ComeBackLaterError("used up", resets_at=soon))
    assert raised.value.seconds_to_wait == pytest.approx(301, abs=20)
    assert raised.value.max_retries == MOST_WAITS
