"""What Airflow's processes load of us: where the page of the report lies, the tab that shows it, the link to it.

Every process of Airflow loads its plugins, and only the server shows pages, so that the page is built with the first
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from corpusmill.airflow.link import NAME, PREFIX, ReportLink, view_path
from corpusmill.airflow.transform_link import TransformJobLink

if TYPE_CHECKING:
    from fastapi import FastAPI


class Pages:
    """The application of `corpusmill.airflow.pages`, built when somebody asks for something."""

    def __init__(self) -> None:
        self._built: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer as ASGI has it."""
        if self._built is None:
            from corpusmill.airflow.pages import build

            self._built = build()
        await self._built(scope, receive, send)


def tabs() -> list[dict[str, str]]:
    """Give the tab on the page of each task instance, unless the configuration says that there is to be none.

    Airflow's pages cannot ask which tasks have a report, so that the tab is there for every task.
    """
    if not conf.getboolean("corpusmill", "report_tab", fallback=True):
        return []
    return [
        {
            "name": NAME,
            "href": view_path(str(conf.get("api", "base_url", fallback="/"))),
            "destination": "task_instance",
            "url_route": "enrichment-report",
        }
    ]


class CorpusmillPlugin(AirflowPlugin):
    """The report's page, the tab that shows it, and the link to it."""

    name = "corpusmill"
    fastapi_apps: list[Any] = [{"app": Pages(), "url_prefix": PREFIX, "name": "corpusmill"}]  # noqa: RUF012 - as Airflow has it
    external_views: list[Any] = tabs()
    operator_extra_links: list[Any] = [ReportLink(), TransformJobLink()]  # noqa: RUF012
