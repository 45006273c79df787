"""The sensor of `transform_assets`: looks at the jobs that were submitted, and requests a run when they have ended.

Its cursor holds up to which event it has seen submissions, and which of them it waits for. A submission is looked at
a stated number of times at most; then it is given up, which is told of on its asset. The key of a run that is
requested is made from the names of the jobs, so that none is collected twice, whatever becomes of the cursor.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import dagster as dg
import msgspec

from corpusmill.dagster.partitions import keys_of
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from corpusmill.dagster.blueprint import Blueprint
    from corpusmill.endpoints import Endpoint
    from corpusmill.endpoints.sagemaker import SageMakerTransform

JOBS: Final = "corpusmill/transform_jobs"
"""The metadata of a submission: the names of its jobs. And the tag of the run that collects them."""

MOST_POLLS: Final = 4_320
"""Looks at one submission: three days of one a minute."""

MOST_NEW: Final = 100
"""Submissions that one evaluation begins to wait for, and the most of them that it looks at: a sensor has a minute."""

MOST_SHOWN: Final = 5

LOOK_SECONDS: Final = 5.0
"""How long a look at a job waits for an answer, each of the three times that it is tried."""


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that is waited for: its jobs, the event that told of it, and how often it was looked at."""

    jobs: list[str]
    event: int
    polls: int = 0


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """What the sensor knows: up to where events are seen (Dagster's own cursor), and submissions by partition.

    The partition of an asset that has none is "". Those that wait longest for a look come first.
    """

    seen: str | None = None
    awaited: dict[str, Awaited] = {}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation comes to: submissions that have ended, that are given up (and why), and that go on."""

    ended: dict[str, Awaited]
    given_up: dict[str, str]
    waits: dict[str, str]
    awaited: dict[str, Awaited]


def read_cursor(text: str | None) -> Cursor:
    """Read a cursor; raise `UsageError` for one that this sensor has not written."""
    if not text:
        return Cursor()
    try:
        return msgspec.json.decode(text, type=Cursor)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the sensor's cursor cannot be read ({error}); reset it, and every submission is looked at again"
        ) from None


def judge(
    awaited: Mapping[str, Awaited],
    statuses: Mapping[str, str],
    troubles: Mapping[str, str],
    *,
    most_polls: int,
) -> Verdict:
    """Decide about submissions after a look at their jobs, whose `statuses` are the service's words.

    `troubles` say why jobs could not be looked at, which says nothing of the jobs. Submissions that nobody has tried to
    look at go on uncounted, and come first at the next look.
    """
    from corpusmill.transform.settling import TERMINAL

    verdict = Verdict(ended={}, given_up={}, waits={}, awaited={})
    looked: dict[str, Awaited] = {}
    for partition, each in awaited.items():
        unread = [name for name in each.jobs if name not in statuses]
        if unread and not any(name in troubles for name in unread):
            verdict.awaited[partition] = each
            verdict.waits[partition] = f"{', '.join(unread)} is to be looked at next time"
            continue
        if not unread and all(statuses[name] in TERMINAL for name in each.jobs):
            verdict.ended[partition] = each
            continue
        polls = each.polls + 1
        stands = ", ".join(_stands(name, statuses.get(name), troubles.get(name)) for name in each.jobs)
        told = f"{stands}; looked at {polls:,} of at most {most_polls:,} times"
        if polls >= most_polls:
            verdict.given_up[partition] = told
        else:
            verdict.waits[partition] = told
            looked[partition] = msgspec.structs.replace(each, polls=polls)
    verdict.awaited.update(looked)
    return verdict


def _stands(name: str, status: str | None, trouble: str | None) -> str:
    if status is None:
        return f"{name} could not be looked at ({trouble or 'it was not tried'})"
    return f"{name} is {status or 'not known to the service'}"


def jobs_in(event: dg.AssetMaterialization) -> list[str]:
    """Give the names of the jobs that a submission tells of."""
    value = event.metadata[JOBS].value if JOBS in event.metadata else []
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def transform_of(endpoint: Endpoint) -> SageMakerTransform:
    """Give an endpoint as what it has to be; raise `UsageError` for another one."""
    from corpusmill.endpoints.sagemaker import SageMakerTransform

    if not isinstance(endpoint, SageMakerTransform):
        raise UsageError(
            f"the endpoint is {type(endpoint).__name__}, which has no transform jobs; give a SageMakerTransform, "
            "or make the asset by enriched_asset"
        )
    return endpoint


def collecting_sensor(
    name: str,
    blueprint: Blueprint,
    *,
    submitted: dg.AssetKey,
    collected: dg.AssetKey,
    minimum_interval_seconds: int,
    most_polls: int,
    default_status: dg.DefaultSensorStatus,
) -> dg.SensorDefinition:
    """Make the sensor that waits for what the asset `submitted` tells of, and requests runs of `collected`."""

    @dg.sensor(
        name=name,
        target=dg.AssetSelection.assets(collected),
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys=(
            set() if blueprint.endpoint_resource is None else {blueprint.endpoint_resource}
        ),
        description=f"Requests {collected.to_user_string()} when the transform jobs of a submission have ended.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        before = _with_news(read_cursor(context.cursor), context.instance, submitted)

        def endpoint_for(partition: str) -> Endpoint:
            keys = keys_of(blueprint.dimensions, partition) if partition else {}
            return blueprint.endpoint_for(keys, context.resources)

        statuses, troubles = _looked(before.awaited, endpoint_for)
        verdict = judge(before.awaited, statuses, troubles, most_polls=most_polls)
        events = [_given_up(submitted, partition, why) for partition, why in verdict.given_up.items()]
        for event in events:
            context.log.error(event.description)
        requests = [_request(collected, partition, each) for partition, each in verdict.ended.items()]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(_reason(verdict)),
            cursor=msgspec.json.encode(Cursor(seen=before.seen, awaited=verdict.awaited)).decode(),
            asset_events=events,
        )

    return watch


def _with_news(cursor: Cursor, instance: dg.DagsterInstance, submitted: dg.AssetKey) -> Cursor:
    """Add the submissions that have come since; the latest of a partition takes the place of those before it."""
    found = instance.fetch_materializations(submitted, limit=MOST_NEW, cursor=cursor.seen, ascending=True)
    awaited = dict(cursor.awaited)
    for record in found.records:
        event = record.asset_materialization
        if event is None:
            continue
        awaited.pop(event.partition or "", None)
        awaited[event.partition or ""] = Awaited(jobs=jobs_in(event), event=record.storage_id)
    return Cursor(seen=found.cursor, awaited=awaited)


def _looked(
    awaited: Mapping[str, Awaited], endpoint_for: Callable[[str], Endpoint]
) -> tuple[dict[str, str], dict[str, str]]:
    """Look at the jobs of the first submissions: statuses, and why some could not be looked at, both by name.

    After the first trouble no other endpoint is looked at: each may take a good part of the minute that there is.
    """
    from corpusmill.transform.aws import ControlPlane
    from corpusmill.transform.watching import Watcher

    statuses: dict[str, str] = {}
    for endpoint, names in _by_endpoint(list(awaited.items())[:MOST_NEW], endpoint_for):
        plane = ControlPlane(
            region=endpoint.region,
            endpoint_url=endpoint.endpoint_url,
            profile=endpoint.profile,
            credentials=endpoint.credentials,
            timeout=LOOK_SECONDS,
        )
        with contextlib.closing(plane):
            watcher = Watcher(plane, names, poll_seconds=1.0, patience_seconds=endpoint.patience_seconds)
            seen = watcher.look()
        statuses.update(seen.statuses)
        if seen.troubles:
            return statuses, dict(seen.troubles)
    return statuses, {}


def _by_endpoint(
    awaited: Iterable[tuple[str, Awaited]], endpoint_for: Callable[[str], Endpoint]
) -> list[tuple[SageMakerTransform, list[str]]]:
    groups: list[tuple[SageMakerTransform, list[str]]] = []
    for partition, each in awaited:
        if not each.jobs:
            continue
        endpoint = transform_of(endpoint_for(partition))
        names = next((names for known, names in groups if known == endpoint), None)
        if names is None:
            names = []
            groups.append((endpoint, names))
        names.extend(name for name in each.jobs if name not in names)
    return groups


def _request(collected: dg.AssetKey, partition: str, each: Awaited) -> dg.RunRequest:
    # A submission without a job has nothing to be told apart by but its event.
    jobs = " ".join(each.jobs)
    run_key = f"{collected.to_user_string()}|{partition}|{jobs or each.event}"
    tags: dict[str, Any] = {JOBS: jobs} if jobs else {}
    return dg.RunRequest(
        run_key=run_key, asset_selection=[collected], partition_key=partition or None, tags=tags
    )


def _given_up(submitted: dg.AssetKey, partition: str, why: str) -> dg.AssetObservation:
    where = f" of the partition {partition}" if partition else ""
    return dg.AssetObservation(
        submitted,
        partition=partition or None,
        description=f"The submission{where} is not waited for any longer: {why}. Materialise "
        f"{submitted.to_user_string()} again to wait anew: it finds the jobs and starts none.",
        metadata={"corpusmill/given_up": why},
    )


def _reason(verdict: Verdict) -> str:
    """Say what the sensor waits for, and what it has given up."""
    told = [*_shown("Waits no longer for", verdict.given_up), *_shown("Waits for", verdict.waits)]
    return " ".join(told) or "No transform job is waited for."


def _shown(what: str, by_partition: Mapping[str, str]) -> Sequence[str]:
    lines = [
        f"{partition}: {line}" if partition else line
        for partition, line in list(by_partition.items())[:MOST_SHOWN]
    ]
    more = len(by_partition) - len(lines)
    if more:
        lines.append(f"and {more:,} more")
    return [f"{what} {'; '.join(lines)}."] if lines else []
