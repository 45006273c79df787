"""The page behind a task's link and its tab: the report that the task recorded, served by Airflow's own server.

Whoever asks must be allowed to read the XComs of the Dag. What is shown is the report that the task recorded and no
other: the record, an XCom, holds the report's digest beside its place, and what is read is drawn anew, not passed on.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse

from corpusmill.airflow.link import REPORT_KEY, UNMAPPED
from corpusmill.errors import CorpusmillError

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The page holds no script; were one to get in, it would not run. Only Airflow's own pages may frame it."""


NOTHING = (
    "This task instance has recorded no report: it enriches nothing, it has not ended yet, or it ended before the "
    "first row. Its log says more."
)


def build() -> FastAPI:
    """Make the application."""
    app = FastAPI(title="corpusmill", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route(
        "/report/{dag_id}/{run_id}/{task_id}/{map_index}",
        show,
        methods=["GET"],
        response_class=HTMLResponse,
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.XCOM))],
    )
    return app


def show(dag_id: str, run_id: str, task_id: str, map_index: str) -> HTMLResponse:
    """Answer with the report of one task instance; `map_index` is UNMAPPED, or none at all, for one that has none."""
    number = -1 if map_index == UNMAPPED else _number(map_index)
    record = record_of(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=number)
    page, status = (_notice(NOTHING), 404) if record is None else drawn(record)
    headers = {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(page, status_code=status, headers=headers)


def record_of(*, dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[str, Any] | None:
    """Give the record of a task instance out of Airflow's database; None when there is none."""
    query = XComModel.get_many(
        key=REPORT_KEY, dag_ids=dag_id, run_id=run_id, task_ids=task_id, map_indexes=map_index
    )
    with create_session() as session:
        found = session.scalar(query)
        value = None if found is None else XComModel.deserialize_value(found)
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, dict) else None


def drawn(record: dict[str, Any]) -> tuple[str, int]:
    """Give the page of a record, and the HTTP status."""
    from corpusmill.page import render
    from corpusmill.tables.reports import read_report

    try:
        report, digest = read_report(str(record.get("address")))
    except CorpusmillError as error:
        return _notice(f"The report cannot be shown here: {escape(str(error))}."), 404
    if digest != record.get("sha256"):
        return _notice("A later run has written in the same place, and replaced the report of this one."), 410
    return render(report), 200


def _number(map_index: str) -> int:
    try:
        return int(map_index)
    except ValueError:
        raise HTTPException(404, "There is no such task instance.") from None


def _notice(text: str) -> str:
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>corpusmill</title>"
        "<style>body{font:15px system-ui,sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem;color:#444}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#ccc}}</style>"
        f"<main><p>{text}</p></main></html>"
    )
