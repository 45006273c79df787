"""What Airflow's processes load of us: where the page of the report lies, and the link to it.

Every process of Airflow loads its plugins, and only the server shows pages, so that the page is built with the first
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from corpusmill.airflow.link import PREFIX, ReportLink
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


class CorpusmillPlugin(AirflowPlugin):
    """The report's page and the link to it."""

    name = "corpusmill"
    fastapi_apps: list[Any] = [{"app": Pages(), "url_prefix": PREFIX, "name": "corpusmill"}]  # noqa: RUF012 - as Airflow has it
    operator_extra_links: list[Any] = [ReportLink(), TransformJobLink()]  # noqa: RUF012
