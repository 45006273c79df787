"""`@task.enrich`: the decorated function returns a source, and the task enriches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from corpusmill.airflow.operator import EnrichOperator
from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator


class EnrichDecoratedOperator(DecoratedOperator, EnrichOperator):
    """Calls the function on the worker; what it returns never passes through a template or an XCom."""

    template_fields: Sequence[str] = ("op_args", "op_kwargs", *EnrichOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"op_args": "py", "op_kwargs": "py"}
    custom_operator_name: str = "@task.enrich"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any],
        op_kwargs: Mapping[str, Any],
        **kwargs: Any,
    ) -> None:
        if kwargs.get("source") is not None:
            raise UsageError("@task.enrich takes its source from the function; leave source out")
        super().__init__(
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            **kwargs,
        )

    def execute(self, context: Context) -> Any:
        """Call the function, then enrich what it returns: a path, a mapping, a table, a reader, a dataset."""
        source = self.python_callable(*self.op_args, **self.op_kwargs)
        if source is None:
            raise UsageError(
                f"{self.python_callable.__name__} returned None; @task.enrich wants a source: a path, a table or "
                "a reader"
            )
        self.source = source
        return EnrichOperator.execute(self, context)


def enrich_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a task of a function that returns a source; the options are those of `EnrichOperator`."""
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=False,
        decorated_operator_class=EnrichDecoratedOperator,
        **kwargs,
    )
