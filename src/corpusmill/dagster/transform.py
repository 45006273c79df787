"""`transform_assets`: a job that SageMaker's transform jobs answer, as an asset that submits and one that collects.

Neither waits, so that no run is held for the hours of a job. The first asset sends the rows that have no answer and
ends; a sensor looks at the jobs, and requests a run of the second asset when they have ended. That takes the outputs
into the store and writes the asset as any other; where rows are left over it sends them in the next job instead, and
the sensor goes on. Each of the three may be killed anywhere and is taken up by being run again: what a job holds is
written down under its prefix in S3, and its rows are never in a second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.dagster.assets import designed, op_name, step_of
from corpusmill.dagster.blueprint import Blueprint
from corpusmill.dagster.partitions import partitions_definition
from corpusmill.dagster.transform_sensor import MOST_POLLS, collecting_sensor, transform_of
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from corpusmill.dagster.execution import Enrichment
    from corpusmill.dagster.partitions import Dimension, Keys
    from corpusmill.dagster.quality import Rule
    from corpusmill.job import Job


def transform_assets(
    asset: dg.AssetSpec | dg.AssetKey | str,
    job: str | Path | Mapping[str, Any] | Job | Callable[[Keys], Job],
    *,
    submit_asset: dg.AssetSpec | dg.AssetKey | str | None = None,
    partitions: Mapping[str, Dimension] | None = None,
    source_asset: dg.AssetDep | dg.AssetKey | str | None = None,
    endpoint_resource: str | None = None,
    endpoint_model: str | None = None,
    store_resource: str | None = None,
    limits_resource: str | None = None,
    checks: Mapping[str, Rule | bool] | None = None,
    preview_rows: int = 5,
    overwrite: bool = False,
    backfill_policy: dg.BackfillPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    sensor: str | None = None,
    minimum_interval_seconds: int = 60,
    most_polls: int = MOST_POLLS,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.Definitions:
    """Make the asset that submits, the asset that collects, the sensor between them, and the spec of the source.

    `asset` is the one that is written, as in `enriched_asset`; all that has the same name there means the same. The
    endpoint of the job is a `SageMakerTransform`. `submit_asset` is the asset that stands for the jobs, with the key
    of `asset` and `_jobs` behind it by default. The sensor is called `sensor` (`collect_` and the asset's name by
    default), looks once in `minimum_interval_seconds`, and at one submission `most_polls` times at most.

    Raises a `UsageError` for a job that is wrong whatever the environment holds.
    """
    blueprint = Blueprint(
        job=job,
        dimensions=dict(partitions or {}),
        endpoint_resource=endpoint_resource,
        endpoint_model=endpoint_model,
        store_resource=store_resource,
        limits_resource=limits_resource,
    )
    specimen = blueprint.specimen()
    if specimen is not None and endpoint_resource is None:
        transform_of(specimen.endpoint)
    if most_polls < 1:
        raise UsageError(f"most_polls is {most_polls}; it must be 1 or more")
    design = designed(asset, blueprint, source_asset=source_asset, checks=checks or {})
    submitted = _submitted(submit_asset, design.spec, design.dep, partitioned=blueprint)
    collected = design.spec.replace_attributes(deps=[*design.spec.deps, dg.AssetDep(submitted.key)])

    def enrichment(context: dg.AssetExecutionContext) -> Enrichment:
        from corpusmill.dagster.execution import Enrichment

        return Enrichment(
            context=context,
            blueprint=blueprint,
            spec=collected,
            source_key=design.dep.asset_key,
            rules=design.rules,
            preview_rows=preview_rows,
            overwrite=overwrite,
        )

    def submit(context: dg.AssetExecutionContext) -> Iterator[Any]:
        from corpusmill.dagster.execution import Execution
        from corpusmill.dagster.transform_work import Submission

        work = Submission(enrichment=enrichment(context))
        yield from Execution(
            context=context, dimensions=blueprint.dimensions, spec=submitted, rules={}, work=work.one
        ).events()

    def collect(context: dg.AssetExecutionContext) -> Iterator[Any]:
        from corpusmill.dagster.execution import Execution
        from corpusmill.dagster.transform_work import Collection

        work = Collection(enrichment=enrichment(context), submitted=submitted)
        yield from Execution(
            context=context,
            dimensions=blueprint.dimensions,
            spec=collected,
            rules=design.rules,
            work=work.one,
        ).events()

    made = [
        step_of(
            spec,
            blueprint,
            events,
            rules=rules,
            backfill_policy=backfill_policy,
            pool=pool,
            op_tags=op_tags,
            retry_policy=retry_policy,
        )
        for spec, events, rules in ((submitted, submit, {}), (collected, collect, design.rules))
    ]
    watching = collecting_sensor(
        sensor or f"collect_{op_name(collected.key)}",
        blueprint,
        submitted=submitted.key,
        collected=collected.key,
        minimum_interval_seconds=minimum_interval_seconds,
        most_polls=most_polls,
        default_status=default_status,
    )
    return dg.Definitions(assets=[*made, *design.sources], sensors=[watching])


def _submitted(
    given: dg.AssetSpec | dg.AssetKey | str | None,
    asset: dg.AssetSpec,
    source: dg.AssetDep,
    *,
    partitioned: Blueprint,
) -> dg.AssetSpec:
    key = dg.AssetKey([*asset.key.path[:-1], f"{asset.key.path[-1]}_jobs"])
    spec = given if isinstance(given, dg.AssetSpec) else dg.AssetSpec(given or key)
    return spec.replace_attributes(
        deps=[*(each for each in spec.deps if each.asset_key != source.asset_key), source],
        skippable=True,
        group_name=spec.group_name or asset.group_name,
        kinds=spec.kinds or {"corpusmill", "sagemaker"},
        description=spec.description or "The transform jobs that hold the rows which have no answer yet.",
        partitions_def=partitions_definition(partitioned.dimensions),
        code_version=spec.code_version or asset.code_version,
    )
