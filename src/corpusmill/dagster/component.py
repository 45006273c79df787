"""`EnrichmentComponent`: an enriched asset in a `defs.yaml`.

What the component says of source, sink, prompts and so on has the form of a job file, and means the same. Dagster
reads YAML 1.1, in which `no`, `0123` and `22:30` are no texts: where that makes a difference the component is refused
and says what to put in quotation marks. Texts with Jinja's `{{ }}` are rendered; others stay as they are written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, Field, PlainSerializer, WrapValidator

from corpusmill.dagster.assets import enriched_asset
from corpusmill.dagster.blueprint import stand_in
from corpusmill.dagster.partitions import Dimension
from corpusmill.dagster.quality import RULES, Rule
from corpusmill.dagster.transform import transform_assets
from corpusmill.dagster.yaml_form import refuse_wrong_form
from corpusmill.dagster.yaml_versions import refuse_differences
from corpusmill.errors import JobError
from corpusmill.job.models import (
    BudgetModel,
    EndpointModel,
    FailuresModel,
    LimitsModel,
    PricesModel,
    RetryModel,
    SinkModel,
    SourceModel,
    StoreModel,
    Text,
)
from corpusmill.job.prompts import PromptModel  # noqa: TC001 - Dagster reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

_JINJA = re.compile(r"\{\{|\{%")


class DimensionModel(dg.Model):
    """One dimension of the partitions."""

    type: Literal["static", "hourly", "daily", "weekly", "monthly", "dynamic"]
    keys: list[str] | None = Field(None, description="static: the keys, such as language codes")
    start: str | None = Field(None, description="windows of time: the first day, such as 2026-01-01")
    end: str | None = Field(
        None, description="windows of time: the day before which they end; open by default"
    )
    timezone: str | None = Field(None, description="windows of time: UTC by default")
    name: str | None = Field(None, description="dynamic: the name of the set of keys")
    column: str | None = Field(
        None, description="the source's column that is narrowed to the key; none by default"
    )
    hive: str | None = Field(
        None, description="the key's name in the sink's folders; the dimension's by default, '' for no folder"
    )


class RuleModel(dg.Model):
    """What a check allows."""

    most: float | None = Field(
        None, ge=0, le=1, description="the share of rows that may be of the counted kind"
    )
    blocking: bool = Field(default=False, description="a failure keeps assets downstream from running")
    severity: Literal["WARN", "ERROR"] | None = None


def _rendered(value: Any, context: dg.ResolutionContext) -> Any:
    """Render the texts of a value that hold Jinja, and leave all others as they are written."""
    if isinstance(value, dict):
        return {key: _rendered(item, context) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rendered(item, context) for item in value]
    if not isinstance(value, str) or not _JINJA.search(value):
        return value
    from jinja2 import Environment, meta

    unknown = meta.find_undeclared_variables(Environment().parse(value)) - set(context.scope)  # noqa: S701 - no HTML
    if unknown:
        name = min(unknown)
        raise JobError(
            f"{'.'.join(map(str, context.path))}: {value!r} uses {{{{ {name} }}}}, which is a variable of Dagster's "
            f"templates and is not set; a column is written {{{name}}}"
        )
    return context.resolve_value(value)


def _plain(context: dg.ResolutionContext, value: Any) -> Any:
    """Give what the YAML says, after a check of its version, with its templates rendered."""
    if isinstance(value, dict):
        value = {
            key: item.model_dump(by_alias=True, exclude_unset=True) if isinstance(item, BaseModel) else item
            for key, item in value.items()
        }
    refuse_differences(context.source_position_tree, context.path)
    return _rendered(value, context)


def _field(model: Any, description: str) -> Any:
    return dg.Resolver(_plain, model_field_type=model, description=description)


def _unchecked(value: Any, _: Any) -> Any:
    return value


def _as_written(value: Any) -> Any:
    return value


def _of_a_job(model: Any, description: str) -> Any:
    """Describe a key of a job file: in the schema by its model, while its check is that of job files.

    Pydantic alone would complain once for each alternative of a union, and know no nearest key. Nor may it complain
    when Dagster writes the model out again.
    """
    return _field(Annotated[model, WrapValidator(_unchecked), PlainSerializer(_as_written)], description)


class EnrichmentScaffolder(dg.Scaffolder[Any]):
    """Write a component that loads as it stands, to be changed where it must be."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the `defs.yaml` of a translation."""
        name = re.sub(r"\W", "_", Path(request.target_path).name)
        dg.scaffold_component(
            request,
            {
                "asset": {"key": name},
                "source": "corpus.parquet",
                "sink": name,
                "prompts": [{"translate": {"column": "text", "into": "translation", "to": "lv"}}],
                "endpoint": {
                    "openai_compatible": {
                        "base_url": "http://127.0.0.1:8000/v1",
                        "model": "name-of-the-model",
                        "api_key": "${CORPUSMILL_API_KEY}",
                    }
                },
            },
        )


@dg.scaffold_with(EnrichmentScaffolder)
class EnrichmentComponent(dg.Component, dg.Resolvable, dg.Model):
    """Columns that a model fills, as an asset: translated, summarised, questioned, extracted, or freely asked."""

    asset: dg.ResolvedAssetSpec = Field(
        description="The asset: its key, and group_name, description, owners, tags, deps, automation_condition, …"
    )
    job: Annotated[
        str | None,
        dg.Resolver.default(
            description="The path of a job file, from this file's folder; or give its keys here."
        ),
    ] = None
    source: Annotated[
        Any, _of_a_job(Text | SourceModel | None, "The table that is read: a path or URL, or a mapping.")
    ] = None
    sink: Annotated[
        Any, _of_a_job(Text | SinkModel | None, "Where the output goes: a folder or a .parquet file.")
    ] = None
    prompts: Annotated[
        Any, _of_a_job(list[PromptModel] | None, "What is asked of each row; all of them in one pass.")
    ] = None
    endpoint: Annotated[Any, _of_a_job(EndpointModel | None, "Who is asked; or name endpoint_resource.")] = (
        None
    )
    store: Annotated[Any, _of_a_job(Text | StoreModel | None, "Where answers are kept.")] = None
    limits: Annotated[Any, _of_a_job(LimitsModel | None, "How fast the endpoint may be asked.")] = None
    retry: Annotated[Any, _of_a_job(RetryModel | None, "How failures of one row are met.")] = None
    failures: Annotated[Any, _of_a_job(FailuresModel | None, "How many rows may fail.")] = None
    budget: Annotated[Any, _of_a_job(BudgetModel | None, "The most that a run may spend.")] = None
    prices: Annotated[Any, _of_a_job(PricesModel | None, "US dollars for a million tokens.")] = None
    telemetry: Annotated[
        bool | None, dg.Resolver.default(description="Add attempts, seconds and origin to each outcome.")
    ] = None
    endpoint_resource: Annotated[
        str | None, dg.Resolver.default(description="The resource that says who is asked.")
    ] = None
    endpoint_model: Annotated[
        str | None, dg.Resolver.default(description="The model that is asked of the endpoint's resource.")
    ] = None
    store_resource: Annotated[
        str | None, dg.Resolver.default(description="The resource that says where answers are kept.")
    ] = None
    limits_resource: Annotated[
        str | None, dg.Resolver.default(description="The resource that says how fast may be asked.")
    ] = None
    source_asset: Annotated[
        str | None,
        dg.Resolver.default(
            description="The key of the asset that the source is, where another one writes it; "
            "by default a spec named after the source's path is made."
        ),
    ] = None
    partitions: Annotated[
        Any,
        _field(
            dict[str, DimensionModel] | None, "One or two dimensions by name; ${PARTITION_<NAME>} is the key."
        ),
    ] = None
    checks: Annotated[
        Any, _field(dict[str, RuleModel | bool] | None, "Changes to the usual checks; false leaves one out.")
    ] = None
    preview_rows: Annotated[
        int, dg.Resolver.default(description="Rows shown in the metadata; 0 keeps texts out of it.")
    ] = 5
    partitions_per_run: Annotated[
        int | None,
        dg.Resolver.default(description="The most partitions of one run of a backfill; all by default."),
    ] = None
    submits_apart: Annotated[
        bool,
        dg.Resolver.default(
            description="For transform jobs: an asset of its own submits, a sensor waits, and this asset collects."
        ),
    ] = False
    pool: Annotated[
        str | None, dg.Resolver.default(description="The pool that limits how many runs go on.")
    ] = None
    op_tags: Annotated[dict[str, Any] | None, dg.Resolver.default(description="Tags of the step.")] = None

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> EnrichmentComponent:
        """Make the component from its YAML; raise `JobError` where its keys are not those of a job file."""
        made: EnrichmentComponent = super().resolve_from_model(context, model)
        if made.job is None:
            values = made._given()
            if made.endpoint_resource is not None and "endpoint" not in values:
                values["endpoint"] = stand_in(made.endpoint_model)
            refuse_wrong_form(values, context.source_position_tree, context.path)
        return made

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the asset, or both of transform jobs, and the spec of the source; raise `JobError` for what is wrong."""
        return (transform_assets if self.submits_apart else enriched_asset)(
            self.asset,
            self._job(Path(context.path)),
            partitions={
                name: dimension_of(name, DimensionModel.model_validate(values))
                for name, values in (self.partitions or {}).items()
            },
            source_asset=dg.AssetKey.from_user_string(self.source_asset) if self.source_asset else None,
            endpoint_resource=self.endpoint_resource,
            endpoint_model=self.endpoint_model,
            store_resource=self.store_resource,
            limits_resource=self.limits_resource,
            checks={name: _rule(name, value) for name, value in (self.checks or {}).items()},
            preview_rows=self.preview_rows,
            backfill_policy=(
                dg.BackfillPolicy.multi_run(self.partitions_per_run) if self.partitions_per_run else None
            ),
            pool=self.pool,
            op_tags=self.op_tags,
        )

    def _given(self) -> dict[str, Any]:
        """Give the keys of the job that stand in the component itself."""
        names = (
            "source",
            "sink",
            "prompts",
            "endpoint",
            "store",
            "limits",
            "retry",
            "failures",
            "budget",
            "prices",
            "telemetry",
        )
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _job(self, folder: Path) -> Path | Mapping[str, Any]:
        given = self._given()
        if self.job is None:
            return given
        if given:
            raise JobError(
                f"job names a file, and {', '.join(given)} stand beside it; say it in the file or here, not in both"
            )
        return (folder if folder.is_dir() else folder.parent) / self.job


def dimension_of(name: str, model: DimensionModel) -> Dimension:
    """Make a dimension; raise `JobError` for what its type needs and does not have, or has and does not need."""
    needed = {"static": ("keys",), "dynamic": ("name",)}.get(model.type, ("start",))
    allowed = {*needed, *(("end", "timezone") if needed == ("start",) else ())}
    for field in ("keys", "start", "end", "timezone", "name"):
        value = getattr(model, field)
        if value is None and field in needed:
            raise JobError(f"partitions.{name}: {model.type} partitions need {field}")
        if value is not None and field not in allowed:
            raise JobError(f"partitions.{name}: {model.type} partitions have no {field}")
    definition: dg.PartitionsDefinition[str]
    windows: dict[str, Any] = {"start_date": model.start, "end_date": model.end, "timezone": model.timezone}
    match model.type:
        case "static":
            definition = dg.StaticPartitionsDefinition(model.keys or [])
        case "dynamic":
            definition = dg.DynamicPartitionsDefinition(name=model.name)
        case "hourly":
            definition = dg.HourlyPartitionsDefinition(**{**windows, "start_date": f"{model.start}-00:00"})
        case "daily":
            definition = dg.DailyPartitionsDefinition(**windows)
        case "weekly":
            definition = dg.WeeklyPartitionsDefinition(**windows)
        case _:
            definition = dg.MonthlyPartitionsDefinition(**windows)
    return Dimension(definition=definition, column=model.column, hive=model.hive)


def _rule(name: str, value: Any) -> Rule | bool:
    if isinstance(value, bool):
        return value
    model = RuleModel.model_validate(value)
    usual = RULES.get(name, Rule())
    return Rule(
        most=usual.most if model.most is None else model.most,
        blocking=model.blocking,
        severity=model.severity or usual.severity,
    )
