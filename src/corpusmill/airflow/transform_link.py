"""The link from a task to its transform job in the console of AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_DOMAINS = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"}


@attrs.define()
class TransformJobLink(BaseOperatorLink):
    """The page of the youngest transform job that the task has waited for."""

    @property
    def name(self) -> str:
        """The words on the button."""
        return "Transform job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Give the address, "" where the task has seen no job; it is made on the worker."""
        return str(getattr(operator, "console_url", "") or "")


def console_url(region: str, name: str) -> str:
    """Give the address of a transform job's page in the console."""
    domain = next((host for start, host in _DOMAINS.items() if region.startswith(start)), None)
    host = domain or f"{region}.console.aws.amazon.com"
    return f"https://{host}/sagemaker/home?region={region}#/transform-jobs/{quote(name, safe='')}"
