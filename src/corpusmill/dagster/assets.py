"""`enriched_asset`: a job as an asset, with its source in the graph.

Dagster compares the annotations of a step's function as they are, so that those of this module are no texts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.dagster.blueprint import Blueprint
from corpusmill.dagster.partitions import partitions_definition
from corpusmill.dagster.quality import DESCRIPTIONS, Rule, rules_of
from corpusmill.errors import UsageError
from corpusmill.fingerprint import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpusmill.dagster.partitions import Dimension, Keys
    from corpusmill.job import Job

_WILD = re.compile(r"[*?\[]")
_VARIABLE = re.compile(r"(?<!\$)\$\{\w+\}")


def enriched_asset(
    asset: dg.AssetSpec | dg.AssetKey | str,
    job: "str | Path | Mapping[str, Any] | Job | Callable[[Keys], Job]",
    *,
    partitions: "Mapping[str, Dimension] | None" = None,
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
) -> dg.Definitions:
    """Make the asset that a job writes, and the spec of the source that it reads.

    `asset` is its key, or an `AssetSpec` with whatever else is to be said of it. `job` is the path of a job file, its
    content as a mapping, a `Job`, or a function from the keys of a partition (by dimension) to a `Job`.
    `partitions` are one or two dimensions by name. `source_asset` is the asset that the source is, where another one
    writes it; without it a spec named after the source's path is part of what is returned.

    `endpoint_resource`, `store_resource` and `limits_resource` name resources that take the place of what the job
    says; `endpoint_model` is asked of the endpoint's. `checks` change the usual checks, and False leaves one out.
    `preview_rows` of 0 keeps texts out of the metadata. An output of the same asset is replaced when its code
    changes; anything else that lies in the sink is refused, unless told to `overwrite`. Several partitions are
    made in one run unless `backfill_policy` says otherwise.

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
    design = designed(asset, blueprint, source_asset=source_asset, checks=checks or {})

    def events(context: dg.AssetExecutionContext) -> Iterator[Any]:
        from corpusmill.dagster.execution import Enrichment, Execution

        enrichment = Enrichment(
            context=context,
            blueprint=blueprint,
            spec=design.spec,
            source_key=design.dep.asset_key,
            rules=design.rules,
            preview_rows=preview_rows,
            overwrite=overwrite,
        )
        yield from Execution(
            context=context,
            dimensions=blueprint.dimensions,
            spec=design.spec,
            rules=design.rules,
            work=enrichment.one,
        ).events()

    enriched = step_of(
        design.spec,
        blueprint,
        events,
        rules=design.rules,
        backfill_policy=backfill_policy,
        pool=pool,
        op_tags=op_tags,
        retry_policy=retry_policy,
    )
    return dg.Definitions(assets=[enriched, *design.sources])


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is known of an asset before any of its runs: its spec, its dependency on the source, and its checks.

    `sources` holds the spec of the source, unless another asset is it.
    """

    spec: dg.AssetSpec
    dep: dg.AssetDep
    sources: "Sequence[dg.AssetSpec]"
    rules: Mapping[str, Rule]


def designed(
    asset: dg.AssetSpec | dg.AssetKey | str,
    blueprint: Blueprint,
    *,
    source_asset: dg.AssetDep | dg.AssetKey | str | None,
    checks: Mapping[str, Rule | bool],
) -> Design:
    """Describe the asset that a blueprint's jobs write; raise `UsageError` for a job that is wrong."""
    specimen = blueprint.specimen()
    rules = rules_of(checks, specimen.prompts if specimen is not None else None)
    given = asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset)
    source_spec, dep = _source(source_asset, blueprint, specimen)
    return Design(
        spec=_described(given, blueprint, specimen, dep),
        dep=dep,
        sources=[] if source_spec is None else [source_spec],
        rules=rules,
    )


def op_name(key: dg.AssetKey) -> str:
    """Give the name of the step that makes an asset."""
    return "__".join(re.sub(r"\W", "_", part) for part in key.path)


def step_of(
    spec: dg.AssetSpec,
    blueprint: Blueprint,
    events: "Callable[[dg.AssetExecutionContext], Iterator[Any]]",
    *,
    rules: Mapping[str, Rule],
    backfill_policy: dg.BackfillPolicy | None,
    pool: str | None,
    op_tags: Mapping[str, Any] | None,
    retry_policy: dg.RetryPolicy | None,
) -> dg.AssetsDefinition:
    """Make the asset whose step yields `events`; several partitions are one run unless the policy says otherwise."""
    definition = partitions_definition(blueprint.dimensions)

    @dg.multi_asset(
        name=op_name(spec.key),
        specs=[spec],
        check_specs=[
            dg.AssetCheckSpec(name, asset=spec.key, blocking=rule.blocking, description=DESCRIPTIONS[name])
            for name, rule in rules.items()
        ],
        partitions_def=definition,
        backfill_policy=(backfill_policy or dg.BackfillPolicy.single_run())
        if definition is not None
        else None,
        required_resource_keys=blueprint.resource_keys,
        pool=pool,
        op_tags=dict(op_tags or {}),
        retry_policy=retry_policy,
    )
    def made(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from events(context)

    return made


def _described(
    given: dg.AssetSpec, blueprint: Blueprint, specimen: "Job | None", dep: dg.AssetDep
) -> dg.AssetSpec:
    deps = [*(each for each in given.deps if each.asset_key != dep.asset_key), dep]
    said: dict[str, Any] = {}
    if specimen is not None:
        said["corpusmill/columns"] = ", ".join(prompt.into for prompt in specimen.prompts)
        said["corpusmill/model"] = blueprint.endpoint_model or specimen.endpoint.model
    kinds = given.kinds or {"corpusmill", "parquet"}
    return given.replace_attributes(
        deps=deps,
        skippable=True,
        kinds=kinds,
        metadata={**said, **given.metadata},
        partitions_def=partitions_definition(blueprint.dimensions),
        code_version=given.code_version or code_version(blueprint, specimen),
    )


def code_version(blueprint: Blueprint, specimen: "Job | None") -> str:
    """Give the version of what makes an asset: prompts, model, parameters, and how answers are read.

    Answers are read by this package, so that its version is part of it. A new version rebuilds an asset through the
    store and pays for nothing.
    """
    content: dict[str, Any] = {
        "corpusmill": metadata.version("corpusmill"),
        "endpoint": [blueprint.endpoint_resource, blueprint.endpoint_model],
        "partitions": {
            name: [dimension.column, dimension.hive] for name, dimension in blueprint.dimensions.items()
        },
    }
    if specimen is not None:
        content["written"] = [specimen.written.get("prompts"), specimen.written.get("sink")]
        content["prompts"] = [prompt.content() for prompt in specimen.prompts]
        content["columns"] = None if specimen.sink.columns is None else list(specimen.sink.columns)
        content["telemetry"] = specimen.telemetry
        if blueprint.endpoint_resource is None:
            content["identity"] = specimen.endpoint.identity
    else:
        content["written"] = _written(blueprint)
    return digest(canonical(content, ordered=True)).hex()[:16]


def _written(blueprint: Blueprint) -> Any:
    """Give what is known of a job that only a run can make."""
    from corpusmill.job.masking import masked
    from corpusmill.job.yaml_text import plain, read_job

    job = blueprint.job
    if isinstance(job, Mapping):
        return masked(plain(dict(job)))
    if isinstance(job, str | Path):
        return masked(plain(read_job(job).values))
    return getattr(job, "__qualname__", type(job).__name__)


def _source(
    named: dg.AssetDep | dg.AssetKey | str | None, blueprint: Blueprint, specimen: "Job | None"
) -> tuple[dg.AssetSpec | None, dg.AssetDep]:
    """Give the spec of the source, None where another asset is it, and the dependency on it."""
    if named is not None:
        return None, named if isinstance(named, dg.AssetDep) else dg.AssetDep(named)
    written = specimen.written if specimen is not None and specimen.written else _written(blueprint)
    source = written.get("source") if isinstance(written, dict) else None
    path = source.get("path") if isinstance(source, dict) else source
    if path is None:
        if specimen is None:
            raise UsageError("the asset's source is known in a run only; name it as source_asset")
        path = str(specimen.source.path)
    path = str(path)
    spec = dg.AssetSpec(
        source_key(path),
        description="A table that is read.",
        metadata={"dagster/uri": path},
        kinds={"parquet"},
    )
    return spec, dg.AssetDep(spec)


def source_key(path: str) -> dg.AssetKey:
    """Name an asset after the path of a table: its last two parts that hold no wildcard, without the ending."""
    parts = [
        part
        for part in re.split(r"[/\\]+", _VARIABLE.sub("", path.partition("://")[2] or path))
        if part and not _WILD.search(part) and not re.fullmatch(r"\.+|[^=]*=", part)
    ]
    names = [re.sub(r"\W+", "_", re.sub(r"\.\w+$", "", part)).strip("_") for part in parts[-2:]]
    return dg.AssetKey([name for name in names if name] or ["source"])
