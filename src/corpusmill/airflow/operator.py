"""`EnrichOperator`: one task that enriches one table."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseHook, BaseOperator

from corpusmill.airflow.jobs import SOME_REGION, AwsAccess, Given, assemble
from corpusmill.airflow.link import REPORT_KEY, ReportLink
from corpusmill.errors import ComeBackLaterError, RunEndedError, SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context

    from corpusmill.airflow.jobs import Assembled
    from corpusmill.endpoints import Endpoint
    from corpusmill.engine.engine import Engine
    from corpusmill.policy import Budget, FailurePolicy, Limits, RetryPolicy
    from corpusmill.prompts.prompt import Prompt
    from corpusmill.report import RunReport
    from corpusmill.tables import SinkSpec, SourceSpec

GRACE = 5.0
"""Seconds that answers on their way get to arrive when the task is killed politely."""

ONE_MACHINE = frozenset({"LocalExecutor", "SequentialExecutor", "DebugExecutor"})
"""The executors under which all tasks share one machine, and so may share one SQLite file."""

LONGEST_KEY = 250
"""Characters of a partition's key that Airflow keeps."""


class EnrichOperator(BaseOperator):
    """Ask prompts of every row of a table, and write the table with their columns.

    Args:
        job: a job file (YAML); everything below lies over what it says.
        source: path or URL of files, a mapping as in a job file, or a `SourceSpec`.
        sink: path or URL, a mapping as in a job file, or a `SinkSpec`.
        prompts: mappings as in a job file (`{"translate": {...}}`), or prompt objects.
        endpoint: a mapping as in a job file, or an endpoint; or else `conn_id`.
        conn_id: a connection of type `sambanova`, `openai_compatible` or `openai`.
        aws_conn_id: a connection of type `aws`, whose credentials, region and addresses an endpoint on SageMaker is
            asked with; without it the worker's own are used.
        model: the model to ask in place of the one that the connection names.
        store: URL of the store, without a password in it; or else `store_conn_id`, a connection of type `postgres`.
        overrides: a mapping in the words of a job file that lies over everything else.
        parameters: values for `${NAME}` in the job file and in mappings, before the environment.
        partition: the sink is this one partition of a dataset, such as `{"day": "{{ ds }}"}`.
        partition_key: the key of that partition for Airflow; by default made of `partition`.
        asset: the output as an asset; by default made of a sink that is written without a template.
        overwrite: replace what lies in the sink, whatever it is.
        quota_wait: when a quota is used up, the task is deferred until it resets if that is not further away; then
            no worker is held. None: never deferred, so that the retry policy decides.
        show_rows: let the log quote rows that failed. They are text of the corpus.

    XCom holds the counts of the report, the run key, and where output and report are.
    """

    template_fields: Sequence[str] = (
        "job",
        "source",
        "sink",
        "store",
        "conn_id",
        "aws_conn_id",
        "store_conn_id",
        "model",
        "overrides",
        "parameters",
        "partition",
        "partition_key",
    )
    # A path that ends in .yaml is a path. Airflow would put the file's content in its place.
    template_ext: Sequence[str] = ()
    operator_extra_links: Sequence[BaseOperatorLink] = (ReportLink(),)
    ui_color: str = "#d7e8d0"
    makes_asset = True

    def __init__(
        self,
        *,
        job: str | None = None,
        source: str | Mapping[str, Any] | SourceSpec | None = None,
        sink: str | Mapping[str, Any] | SinkSpec | None = None,
        prompts: Sequence[Mapping[str, Any] | Prompt] | None = None,
        endpoint: Mapping[str, Any] | Endpoint | None = None,
        conn_id: str | None = None,
        aws_conn_id: str | None = None,
        model: str | None = None,
        store: str | Mapping[str, Any] | None = None,
        store_conn_id: str | None = None,
        limits: Mapping[str, Any] | Limits | None = None,
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        failures: Mapping[str, Any] | FailurePolicy | None = None,
        budget: Mapping[str, Any] | Budget | None = None,
        prices: Mapping[str, float] | None = None,
        telemetry: bool | None = None,
        overrides: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        partition: Mapping[str, str | None] | None = None,
        partition_key: str | None = None,
        asset: Asset | str | None = None,
        overwrite: bool = False,
        quota_wait: timedelta | None = timedelta(hours=36),
        show_rows: bool = False,
        **kwargs: Any,
    ) -> None:
        # Without retry policies (before Airflow 3.3) retries go by their number alone.
        with contextlib.suppress(ImportError):
            from corpusmill.airflow.retries import EnrichRetryPolicy

            if kwargs.get("retry_policy") is None:
                kwargs["retry_policy"] = EnrichRetryPolicy()
        super().__init__(**kwargs)
        self.job = job
        self.source = source
        self.sink = sink
        self.prompts = prompts
        self.endpoint = endpoint
        self.conn_id = conn_id
        self.aws_conn_id = aws_conn_id
        self.model = model
        self.store = store
        self.store_conn_id = store_conn_id
        self.limits = limits
        self.retry = retry
        self.failures = failures
        self.budget = budget
        self.prices = prices
        self.telemetry = telemetry
        self.overrides = overrides
        self.parameters = parameters
        self.partition = partition
        self.partition_key = partition_key
        self.overwrite = overwrite
        self.quota_wait = quota_wait
        self.show_rows = show_rows
        self.asset = _asset(asset, sink) if self.makes_asset else None
        if self.asset is not None and self.asset not in self.outlets:
            self.outlets = [*self.outlets, self.asset]
        self._engine: Engine | None = None
        self._assembled: Assembled | None = None
        self._report: RunReport | None = None

    def execute(self, context: Context) -> Any:
        """Enrich, and give the small manifest that becomes the XCom."""
        return self.enriched(context)

    def enriched(self, context: Context) -> dict[str, Any]:
        """Do the work of `execute`, which Airflow wants to call itself."""
        assembled = self.assembled()
        job = assembled.job

        from corpusmill.enrich_job import enrich_job

        self.warn_of_store(job.store)
        with self.running(context):
            report = enrich_job(
                job,
                source=assembled.source,
                overwrite=self.overwrite,
                progress=self.log_lines(),
                on_start=self.take_engine,
            )
        return self.finished(context, report)

    def resume(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Go on after a quota has been reset. Everything that was answered before comes from the store."""
        self.log.info("the wait is over (%s); going on", (event or {}).get("moment"))
        return self.execute(context)

    def on_kill(self) -> None:
        """Send nothing new; what is on its way gets a few seconds to be kept."""
        if self._engine is not None:
            self._engine.stop(grace=GRACE)

    # the pieces of `execute`, which the tasks of a sharded run share

    def assembled(self) -> Assembled:
        """Make the job, with what connections hold. Called before Arrow is loaded and before any event loop runs."""
        from corpusmill.allocator import spare_memory

        spare_memory()
        endpoint: dict[str, Any] | None = None
        store_url: str | None = None
        aws: AwsAccess | None = None
        if self.aws_conn_id is not None:
            from corpusmill.airflow.aws import aws_access

            aws = aws_access(BaseHook.get_connection(self.aws_conn_id))
        if self.conn_id is not None:
            from corpusmill.airflow.hook import endpoint_values

            endpoint = endpoint_values(BaseHook.get_connection(self.conn_id), model=self.model)
        if self.store_conn_id is not None:
            from corpusmill.airflow import hook

            store_url = hook.store_url(BaseHook.get_connection(self.store_conn_id))
        _refuse_password(self.store)
        self._assembled = assemble(self.given(endpoint=endpoint, store_url=store_url, aws=aws))
        return self._assembled

    def given(
        self,
        *,
        endpoint: dict[str, Any] | None = None,
        store_url: str | None = None,
        aws: AwsAccess | None = None,
    ) -> Given:
        """Gather what the operator was given, as it stands after its templates were filled in."""
        if aws is None and self.aws_conn_id is not None:
            aws = AwsAccess(region=SOME_REGION)
        values = {
            "source": self.source,
            "sink": self.sink,
            "prompts": self.prompts,
            "endpoint": self.endpoint,
            "store": self.store,
            "limits": self.limits,
            "retry": self.retry,
            "failures": self.failures,
            "budget": self.budget,
            "prices": self.prices,
            "telemetry": self.telemetry,
        }
        return Given(
            path=self.job,
            values=values,
            overrides=self.overrides or {},
            parameters=self.parameters or {},
            partition=self.partition,
            endpoint=endpoint,
            store_url=store_url,
            aws=aws,
        )

    def warn_of_store(self, store: str) -> None:
        """Say so when tasks may run on several machines and the store is a file of one."""
        from airflow.sdk.configuration import conf

        if not store.startswith("sqlite:"):
            return
        named = getattr(self, "executor", None) or conf.get("core", "executor", fallback="LocalExecutor")
        executors = {part.rpartition(":")[2].rpartition(".")[2].strip() for part in str(named).split(",")}
        if executors - ONE_MACHINE:
            self.log.warning(
                "the store is an SQLite file, and %s may run tasks on several machines, which would share neither "
                "answers nor limits nor budget: set store to a postgresql:// URL, or store_conn_id to a connection "
                "of type postgres",
                ", ".join(sorted(executors - ONE_MACHINE)),
            )

    def log_lines(self) -> Any:
        """Give what writes a line into the log every half minute."""
        from corpusmill.airflow.lines import LogLines

        return LogLines(self.log.info)

    def take_engine(self, engine: Engine) -> None:
        """Hear which engine runs, so that a kill can stop it."""
        self._engine = engine

    @contextlib.contextmanager
    def running(self, context: Context) -> Iterator[None]:
        """Turn what ends a run early into what Airflow knows: a deferral, or a failure with counts in the log."""
        try:
            yield
        except RunEndedError as error:
            if isinstance(error, ComeBackLaterError):
                self._defer(error)
            self.ended_early(context, error)
            raise
        finally:
            self._engine = None

    def ended_early(self, context: Context, error: RunEndedError) -> None:
        """Tell what was done until the run ended, and record where its report lies. What ended it stays the error."""
        if error.report is None:
            return
        from corpusmill.airflow.outcome import record_at

        self._report = error.report
        self._tell_failures(error.report)
        if error.report_address is None:
            return
        try:
            record = record_at(error.report_address)
        except SourceError as trouble:
            self.log.warning("the report of this run cannot be shown: %s", trouble)
        else:
            context["ti"].xcom_push(REPORT_KEY, record)

    def _defer(self, error: ComeBackLaterError) -> None:
        """Give the worker back until the quota resets, if that is known and near enough."""
        if self.quota_wait is None or error.resets_at is None:
            return
        wait = error.resets_at - datetime.now(UTC)
        if wait > self.quota_wait:
            self.log.warning(
                "the quota resets in %s, which is more than quota_wait (%s)", wait, self.quota_wait
            )
            return
        from corpusmill.airflow.trigger import QuotaResetTrigger

        self.log.info("%s", error)
        self.defer(
            trigger=QuotaResetTrigger(moment=error.resets_at.isoformat(), reason="a quota is used up"),
            method_name="resume",
        )

    def _tell_failures(self, report: RunReport) -> None:
        from corpusmill.airflow.lines import failures

        self.log.error("%s", failures(report))
        if self.show_rows:
            for sample in report.failures[:10]:
                self.log.error(
                    "row %d, %s: %s: %s", sample.row, sample.into, sample.error, dict(sample.inputs)
                )

    def finished(self, context: Context, report: RunReport) -> dict[str, Any]:
        """Record what was done: log, report, asset event; give the XCom."""
        from corpusmill.airflow.lines import ending
        from corpusmill.airflow.outcome import manifest, recorded

        assert self._assembled is not None
        self._report = report
        self.log.info("%s", ending(report))
        record = recorded(self._assembled.job.sink)
        made = manifest(report, record=record)
        if record is not None:
            context["ti"].xcom_push(REPORT_KEY, record)
        if self.asset is not None:
            self._tell_asset(context, made)
        return made

    def _tell_asset(self, context: Context, made: Mapping[str, Any]) -> None:
        from corpusmill.airflow.outcome import event_extra, key_of_partition

        assert self.asset is not None
        event = context["outlet_events"][self.asset]
        event.extra.update(event_extra(made))
        key = self.partition_key or (key_of_partition(self.partition) if self.partition else None)
        if key is None or not hasattr(event, "add_partitions"):
            return
        if len(key) > LONGEST_KEY:
            self.log.warning(
                "the partition's key has %d characters and Airflow keeps %d", len(key), LONGEST_KEY
            )
            return
        event.add_partitions(key)

    # lineage

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Name the datasets before the run."""
        from corpusmill.airflow.lineage import lineage_of

        return lineage_of(self.given(), model=self.model, assembled=self._assembled, report=None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002
        """Name the same datasets after it, with schema, columns and counts."""
        from corpusmill.airflow.lineage import lineage_of

        return lineage_of(self.given(), model=self.model, assembled=self._assembled, report=self._report)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Name the same datasets after a failure, with what was counted until then."""
        return self.get_openlineage_facets_on_complete(task_instance)


def _asset(asset: Asset | str | None, sink: object) -> Asset | None:
    if isinstance(asset, Asset):
        return asset
    if isinstance(asset, str):
        return Asset(asset)
    path = sink.get("path") if isinstance(sink, Mapping) else sink
    if not isinstance(path, str) or "{{" in path or "{%" in path or "${" in path:
        return None
    if path.startswith(("s3://", "gs://", "file://")):
        return Asset(path.rstrip("/"))
    return Asset(f"file://{path.rstrip('/')}") if path.startswith("/") else None


def _refuse_password(store: object) -> None:
    url = store.get("url") if isinstance(store, Mapping) else store
    if isinstance(url, str) and "@" in url and ":" in url.partition("://")[2].rpartition("@")[0]:
        raise UsageError(
            "store is a URL with a password in it, which Airflow would show; put it into a connection of type "
            "postgres and name that as store_conn_id"
        )
