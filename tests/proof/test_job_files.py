"""A job file means what it says, wherever YAML would read it otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proof.material import rows_of

import corpusmill
from corpusmill.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proof.warm import Warm

    from corpusmill.testing import FakeEndpoint

JOB = """
source: {path: %(folder)s/corpus.parquet, filter: [[lang, "=", no]]}
sink: {path: %(folder)s/out, partition: {lang: no, at: 22:30, code: 0123, day: 2024-01-01}}
prompts:
  - ask: {template: "Name the topic of: {text}", into: topic, stop: [off, 1e3]}
endpoint:
  openai_compatible: {base_url: "%(url)s", model: any, api_key: "${MY_KEY}"}
store: sqlite:///%(folder)s/store.db
limits: {patience: 1m30s}
"""


def test_no_is_a_word_and_a_time_is_no_number(tmp_path: Path, warm: Warm, endpoint: FakeEndpoint) -> None:
    """Language codes, times, numbers with a leading zero and dates are taken as they are written."""
    pq.write_table(
        pa.table({"lang": ["no", "lv", "no"], "text": ["en", "divi", "tre"]}), tmp_path / "corpus.parquet"
    )
    (tmp_path / "job.yaml").write_text(JOB % {"folder": tmp_path, "url": endpoint.base_url}, "utf-8")
    ended = warm.run("run", str(tmp_path / "job.yaml"), "--quiet", environment={"MY_KEY": "k"})
    assert ended.code == 0, ended.err
    (folder,) = (tmp_path / "out").glob("lang=no/at=22%3A30/code=0123/day=2024-01-01")
    rows = rows_of(folder)
    assert [row["text"] for row in rows] == ["en", "tre"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("model: any,", "model: any, model: other,", "model"),
        ("${MY_KEY}", "${NOT_THERE}", "NOT_THERE"),
        ("into: topic", "into: topic, temprature: 1", "temperature"),
        ("patience: 1m30s", "patience: soon", "patience"),
        ("prompts:\n", "prompts: [\n", "job.yaml"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, *, old: str, new: str, words: str) -> None:
    """A key that stands twice, a variable that is not set, a file that is no YAML."""
    text = (JOB % {"folder": tmp_path, "url": "http://127.0.0.1:9/v1"}).replace(old, new)
    (tmp_path / "job.yaml").write_text(text, "utf-8")
    with pytest.raises(JobError, match=r"job\.yaml:\d+") as raised:
        corpusmill.load_job(tmp_path / "job.yaml", environment={"MY_KEY": "k"})
    assert words in str(raised.value)
