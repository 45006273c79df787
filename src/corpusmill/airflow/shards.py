"""A table enriched by many tasks at once: planned, mapped over its shards, committed as one dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup

from corpusmill.airflow.operator import EnrichOperator
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context
    from airflow.sdk.definitions.xcom_arg import XComArg

_OF_THE_OUTPUT = ("asset", "outlets", "partition_key", "overwrite")


def enrich_shards(
    group_id: str = "enrich",
    *,
    rows_per_shard: int | None = None,
    shards: int | None = None,
    **options: Any,
) -> TaskGroup:
    """Make a group of tasks that plans the shards of a table, enriches them side by side, and commits them as one.

    `options` are those of `EnrichOperator`, and of any operator. A shard holds `rows_per_shard` rows, or the table is
    cut into about `shards` of them (8 by default), always in whole parts of the sink: a table that fits into one part
    has one shard, so that `rows_per_part` of the sink is what to lower for small tables. The tasks `plan`, `shard` and
    `commit` lie in the group; the XCom of `commit` is that of an `EnrichOperator`.
    """
    of_shards = {name: value for name, value in options.items() if name not in _OF_THE_OUTPUT}
    overwrite = bool(options.get("overwrite", False))
    with TaskGroup(group_id) as group:
        plan = PlanShardsOperator(
            task_id="plan", rows_per_shard=rows_per_shard, shards=shards, overwrite=overwrite, **of_shards
        )
        work = EnrichShardOperator.partial(task_id="shard", **of_shards).expand(shard=plan.output)
        commit = CommitShardsOperator(
            # A sink that is up to date has no shards to ask, and is still told of.
            **{"task_id": "commit", "trigger_rule": "none_failed", "planned": plan.output, **options}
        )
        plan >> work >> commit
    return group


class _PieceOperator(EnrichOperator):
    """A task that writes no dataset itself: it has no report, no asset and no lineage of its own."""

    operator_extra_links: Sequence[BaseOperatorLink] = ()
    makes_asset = False

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Say nothing: the commit says all."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """Say nothing."""
        return self.get_openlineage_facets_on_start()


class PlanShardsOperator(_PieceOperator):
    """Cuts the source into shards, pinned to the files that hold them; its XCom is their list."""

    def __init__(
        self, *, rows_per_shard: int | None = None, shards: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rows_per_shard = rows_per_shard
        self.shards = shards

    def execute(self, context: Context) -> list[dict[str, Any]]:  # noqa: ARG002
        """Plan; raises `UsageError` when there would be more shards than Airflow maps."""
        assembled = self.assembled()

        from airflow.sdk.configuration import conf

        from corpusmill.shards import plan_shards

        _refuse_memory(assembled.source)
        self.warn_of_store(assembled.job.store)
        plan = plan_shards(
            assembled.job,
            rows_per_shard=self.rows_per_shard,
            shards=self.shards,
            overwrite=self.overwrite,
        )
        most = conf.getint("core", "max_map_length", fallback=1024)
        if len(plan.shards) > most:
            raise UsageError(
                f"{plan.rows:,} rows make {len(plan.shards):,} shards, and Airflow maps at most {most:,} tasks "
                f"(core.max_map_length): set rows_per_shard to {-(-plan.rows // most):,} or more"
            )
        if plan.done:
            self.log.info("the sink is up to date (%s rows): there is nothing to ask", f"{plan.rows:,}")
        else:
            self.log.info("%s rows in %d shards", f"{plan.rows:,}", len(plan.shards))
        return [shard.as_dict() for shard in plan.shards]


class EnrichShardOperator(_PieceOperator):
    """Asks the rows of one shard and stages its parts."""

    def __init__(self, *, shard: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shard = shard

    def execute(self, context: Context) -> dict[str, Any]:
        """Enrich the shard; its XCom are its counts."""
        assembled = self.assembled()

        from corpusmill.airflow.lines import ending
        from corpusmill.airflow.outcome import manifest
        from corpusmill.shards import enrich_shard, shard_of

        shard = shard_of(self.shard)
        self.log.info(
            "shard %d of %d: rows %d to %d", shard.index + 1, shard.count, shard.start, shard.stop - 1
        )
        with self.running(context):
            report = enrich_shard(assembled.job, shard, progress=self.log_lines(), on_start=self.take_engine)
        self.log.info("%s", ending(report))
        return manifest(report, record=None)


class CommitShardsOperator(EnrichOperator):
    """Makes the staged parts of all shards one dataset, with one manifest and one report."""

    template_fields: Sequence[str] = (*EnrichOperator.template_fields, "planned")

    def __init__(self, *, planned: Sequence[Mapping[str, Any]] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned = planned

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit."""
        assembled = self.assembled()

        from corpusmill.shards import commit_shards, shard_of

        planned: Any = self.planned  # by now the list that the plan's XCom holds
        shards = [shard_of(values) for values in planned]
        with self.running(context):
            report = commit_shards(assembled.job, shards, overwrite=self.overwrite)
        return self.finished(context, report)


def _refuse_memory(source: object) -> None:
    """Raise `UsageError` for a source that other tasks could not open."""
    from corpusmill.tables import SourceSpec

    if not isinstance(source, SourceSpec | str):
        raise UsageError(
            f"shards are cut from files, and the source is a {type(source).__name__}: write it to Parquet first"
        )
