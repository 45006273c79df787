"""The sensor that resumes runs which a used-up quota has ended, once the quota has reset."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator  # noqa: TC003 - Dagster reads the annotations of a sensor

import dagster as dg

from corpusmill.dagster.failures import RESETS_AT, WAITS_FOR

RESUMES = "corpusmill/resumes"
"""The tag of a run that the sensor started: the run that it resumes."""

MOST_AT_ONCE = 20
"""Runs that one evaluation looks at and starts: a sensor has a minute, and a backfill may have failed in hundreds."""

MOST_LOOKED_AT = 200

REMEMBERED = dt.timedelta(days=14)
"""How long ago a run may have failed to be resumed at all."""

_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


def resume_after_quota(
    name: str = "resume_after_quota",
    *,
    target: dg.AssetSelection | None = None,
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Make the sensor: it re-executes failed runs that carry the moment of a reset which has passed.

    The new run materialises the same assets and partitions, and goes on from what was answered. A run is resumed
    once; if the quota is used up again, its successor is the one that is resumed next.
    """

    @dg.sensor(
        name=name,
        target=target or dg.AssetSelection.all(),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description="Resumes runs that a used-up quota has ended, once it has reset.",
    )
    def resume(context: dg.SensorEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        now = dt.datetime.now(dt.UTC)
        requests = list(_due(context.instance, now))
        if not requests:
            yield dg.SkipReason("No run waits for a quota that has reset.")
        yield from requests

    return resume


def _due(instance: dg.DagsterInstance, now: dt.datetime) -> Iterator[dg.RunRequest]:
    """Give a request for each failed run whose quota has reset by `now` (UTC), oldest first."""
    waiting = instance.get_run_records(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.FAILURE],
            tags={WAITS_FOR: "quota"},
            updated_after=now - REMEMBERED,
        ),
        limit=MOST_LOOKED_AT,
        ascending=True,
    )
    started = 0
    for record in waiting:
        run = record.dagster_run
        if started >= MOST_AT_ONCE:
            return
        if dt.datetime.fromisoformat(run.tags[RESETS_AT]) > now:
            continue
        if instance.get_runs(dg.RunsFilter(tags={RESUMES: run.run_id}), limit=1):
            # It need not be looked at again.
            instance.add_run_tags(run.run_id, {WAITS_FOR: "resumed"})
            continue
        started += 1
        yield _resumption(run)


def _resumption(run: dg.DagsterRun) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{RESUMES}/{run.run_id}",
        asset_selection=sorted(run.asset_selection) if run.asset_selection else None,
        partition_key=run.tags.get("dagster/partition"),
        tags={
            **{tag: run.tags[tag] for tag in _RANGE if tag in run.tags},
            RESUMES: run.run_id,
            "dagster/parent_run_id": run.run_id,
            "dagster/root_run_id": run.tags.get("dagster/root_run_id", run.run_id),
        },
    )
