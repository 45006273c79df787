"""The link from a task to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import attrs
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

NAME = "Enrichment report"
"""The words on the button and on the tab."""

PREFIX = "/corpusmill"
"""Where the plugin's pages lie in Airflow's server."""

UNMAPPED = "{MAP_INDEX}"
"""What Airflow's pages leave in an address, in place of the number, where a task is not mapped."""

REPORT_KEY = "corpusmill_report"
"""The XCom under which a task records where its report lies; the plugin serves no other."""


@attrs.define()
class ReportLink(BaseOperatorLink):
    """A page of Airflow's own server that shows the report which the task recorded."""

    @property
    def name(self) -> str:
        """The words on the button."""
        return NAME

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Give the address of the page; it is made on the worker, which knows the base URL by configuration."""
        from airflow.sdk.configuration import conf

        base = str(conf.get("api", "base_url", fallback="/"))
        return base.rstrip("/") + report_path(
            ti_key.dag_id, ti_key.run_id, ti_key.task_id, getattr(ti_key, "map_index", -1)
        )


def view_path(base_url: str) -> str:
    """Give the address in which Airflow's pages fill in a task instance; below the path of the base URL."""
    below = urlsplit(base_url).path.rstrip("/")
    return f"{below}{PREFIX}/report/{{DAG_ID}}/{{RUN_ID}}/{{TASK_ID}}/{UNMAPPED}"


def report_path(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Give the path of the page of one task instance."""
    names = "/".join(quote(name, safe="") for name in (dag_id, run_id, task_id))
    return f"{PREFIX}/report/{names}/{map_index}"
