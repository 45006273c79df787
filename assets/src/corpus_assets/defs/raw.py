"""The raw corpus: paragraphs of the help text that Python carries, and the schedule that takes them up again."""

import pydoc_data.topics
from collections.abc import Iterator

import dagster as dg
import pyarrow as pa

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "topic": pa.string(), "text": pa.string()}
SCHEMA = pa.schema(COLUMNS)
TOPICS = (
    "assert",
    "break",
    "continue",
    "del",
    "global",
    "import",
    "pass",
    "return",
    "while",
    "with",
    "yield",
)


@dg.asset(group_name="corpus", kinds={"parquet"})
def raw_corpus() -> pa.RecordBatchReader:
    """Paragraphs of Python's help text, one a row."""

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for topic in TOPICS:
            paragraphs = [text for text in pydoc_data.topics.topics[topic].split("\n\n") if text.strip()]
            ids = range(row, row + len(paragraphs))
            row += len(paragraphs)
            yield pa.record_batch([list(ids), [topic] * len(paragraphs), paragraphs], schema=SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


refresh = dg.define_asset_job("refresh", selection=[raw_corpus])


@dg.schedule(job=refresh, cron_schedule="0 2 * * *", default_status=dg.DefaultScheduleStatus.STOPPED)
def nightly() -> dg.RunRequest:
    """Take the corpus up again each night; what depends on it follows by its automation condition."""
    return dg.RunRequest()
