"""Texts that people wrote: Python's help, whole, and Django's message catalogues."""

from __future__ import annotations

import gettext
import importlib.util
import pydoc_data.topics
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.proof.material import answer_to, endpoint_at, rows_of, store_in

import corpusmill
from corpusmill.testing import expected_answer

if TYPE_CHECKING:
    from corpusmill.testing import FakeEndpoint

_DJANGO = importlib.util.find_spec("django")
assert _DJANGO is not None
assert _DJANGO.origin is not None
CATALOGUES = Path(_DJANGO.origin).parent / "conf" / "locale"
LANGUAGES = ("ar", "lv", "ja", "ta", "zh_Hans")


def help_topics() -> dict[str, str]:
    """Give Python's help topics, by their names."""
    return dict(pydoc_data.topics.topics)


def messages() -> list[dict[str, str]]:
    """Give the messages of Django with their translations, one a language and message."""
    found = []
    for language in LANGUAGES:
        with (CATALOGUES / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
            catalogue = gettext.GNUTranslations(file)
        for key, text in sorted(catalogue._catalog.items(), key=str):  # type: ignore[attr-defined]
            if key and isinstance(key, str):
                found.append({"lang": language, "msgid": key, "msgstr": text})
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_help_topics_of_up_to_60_000_characters_go_through_whole(
    tmp_path: Path, endpoint: FakeEndpoint, *, stream: bool
) -> None:
    """What was sent is what the endpoint read, to the last character, and the text passes through unchanged."""
    topics = help_topics()
    assert max(map(len, topics.values())) > 50_000
    pq.write_table(
        pa.table({"topic": list(topics), "text": list(topics.values())}), tmp_path / "topics.parquet"
    )
    report = corpusmill.enrich(
        tmp_path / "topics.parquet",
        tmp_path / "out",
        corpusmill.Ask(template="Name the topic of: {text}", into="about"),
        endpoint=endpoint_at(endpoint, stream=stream),
        store=store_in(tmp_path),
    )
    assert report.outcomes == {"completed": len(topics)}
    rows = rows_of(tmp_path / "out")
    assert {row["topic"]: row["text"] for row in rows} == topics
    assert all(row["about"] == answer_to(row["text"]) for row in rows)


def test_django_s_messages_with_placeholders_plurals_and_all_scripts_are_text_and_nothing_else(
    tmp_path: Path, endpoint: FakeEndpoint
) -> None:
    """`%(name)s`, `{name}`, no-break spaces and line feeds reach the endpoint as they are, in two prompts at once."""
    rows = messages()
    assert any("%(" in row["msgid"] for row in rows)
    assert any("{" in row["msgid"] for row in rows)
    assert any("\N{NO-BREAK SPACE}" in row["msgstr"] for row in rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "messages.parquet", row_group_size=200)
    template = "Is {msgstr} a translation of {msgid} into {lang}? {} {0} %s"
    report = corpusmill.enrich(
        tmp_path / "messages.parquet",
        corpusmill.SinkSpec(path=tmp_path / "out", columns=["msgid", "lang"], rows_per_part=500),
        corpusmill.Ask(template=template, into="verdict"),
        corpusmill.Ask(template="Name the topic of: {msgid}", into="topic"),
        endpoint=endpoint_at(endpoint),
        store=store_in(tmp_path),
        limits=corpusmill.Limits(concurrency=128),
    )
    assert report.rows == len(rows)
    assert report.outcomes == {"completed": 2 * len(rows)}
    # The same English message stands in each catalogue: it is asked once.
    assert report.prompts[1].live == len({row["msgid"] for row in rows})
    out = rows_of(tmp_path / "out")
    assert list(out[0]) == ["lang", "msgid", "verdict", "verdict_outcome", "topic", "topic_outcome"]
    for row, result in zip(rows, out, strict=True):
        assert (result["lang"], result["msgid"]) == (row["lang"], row["msgid"])
        filled = f"Is {row['msgstr']} a translation of {row['msgid']} into {row['lang']}? {{}} {{0}} %s"
        assert result["verdict"] == expected_answer([{"role": "user", "content": filled}])
        assert result["topic"] == answer_to(row["msgid"])
