"""HTML in the corpus, in answers, in names and in errors is text in the report of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.page.test_page import Elements, Witness, hostile, shown_by_chromium, witness
from tests.proof.material import store_in

import corpusmill
from corpusmill.testing import FakeEndpoint, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["witness"]


@pytest.mark.needs_system("chromium")
def test_a_report_of_hostile_rows_answers_names_and_errors_runs_nothing_and_asks_nobody(
    tmp_path: Path, witness: Witness
) -> None:
    """Opened in a browser as it lies beside the dataset; what was planted can be read there."""
    planted = hostile(witness.url)

    def script(request: Mapping[str, object], _attempt: int) -> Fault | None:
        if "fail" in str(request["messages"]):
            return Fault("reply", status=400, body=planted, headers={"content-type": "text/html"})
        return None

    with FakeEndpoint() as endpoint:
        endpoint.script(script)
        corpusmill.enrich(
            pa.table({"text": [*(f"{planted} {row}" for row in range(6)), "fail", f"fail {planted}"]}),
            tmp_path / "out",
            corpusmill.Translate("text", planted, from_="en", to="lv"),
            endpoint=corpusmill.OpenAICompatible(endpoint.base_url, planted.replace("\x1b", "")),
            store=store_in(tmp_path),
            failures=corpusmill.FailurePolicy(max_failed=1.0),
        )
    page = (tmp_path / "out" / "_corpusmill" / "report.html").read_text("utf-8")
    assert page.count("&lt;script&gt;fetch(") > 5
    document = shown_by_chromium(page, tmp_path)
    assert "&lt;script&gt;fetch(" in document
    assert Elements(document).names.isdisjoint({"script", "img", "iframe", "link", "base"})
    assert witness.asked == []
