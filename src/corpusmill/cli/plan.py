"""`corpusmill plan`: what a job would do and cost; nothing is sent and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpusmill.cli.progress import duration
from corpusmill.cli.run import write_json
from corpusmill.estimate import plan_job
from corpusmill.job import load_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.estimate import JobPlan
    from corpusmill.rows.tokens import Interval


@click.command("plan", short_help="Say what a job would do and cost; spends nothing.")
@click.argument("job", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON on standard output.")
def plan_command(job: str, *, as_json: bool) -> None:
    """Say what the job in the file JOB would do and cost.

    Rows are read and looked up in the store; nothing is sent, nothing is written. Tokens are estimates from what
    servers have counted before, with the range in which the truth is expected.
    """
    plan = plan_job(load_job(job))
    if as_json:
        write_json(plan.as_dict())
        return
    Console().print(_table(plan))
    for line in told(plan):
        click.echo(line)


def _table(plan: JobPlan) -> Table:
    table = Table(title=f"{plan.rows:,} rows", title_justify="left")
    for name in ("column", "blank", "unaskable", "from the store", "same as another", "requests"):
        table.add_column(name, justify="left" if name == "column" else "right")
    for prompt in plan.prompts:
        counts = (prompt.blank, prompt.unaskable, prompt.stored, prompt.duplicates, prompt.requests)
        table.add_row(Text(prompt.into), *(f"{count:,}" for count in counts))
    return table


def told(plan: JobPlan) -> Iterator[str]:
    """Say what a plan comes to, a line each."""
    yield f"requests to send: {plan.requests:,}"
    yield f"tokens: {ranged(plan.prompt_tokens)} in, {ranged(plan.completion_tokens)} out"
    for prompt in plan.prompts:
        if prompt.requests:
            tokens = f"{ranged(prompt.prompt_tokens)} in, {ranged(prompt.completion_tokens)} out"
            yield f"  {prompt.into}: {tokens}; by {prompt.rests_on}"
    if plan.cost is None:
        yield "cost: no price is known; state prices in the job ({prompt: …, completion: …}, US dollars a million)"
    else:
        yield f"cost: {ranged(plan.cost, money=True)}, by the prices of {plan.prices}"
    if plan.seconds is None:
        yield "time: the job states no rates; it depends on how fast the endpoint answers"
    else:
        yield f"time: at least {duration(plan.seconds)} at the stated limits"
    if plan.sink == "skip":
        yield "a run would find the output up to date and do nothing"
    if plan.sink == "rebuild":
        yield "a run would replace the output"
    for note in plan.notes:
        yield f"note: {note}"


def ranged(interval: Interval, *, money: bool = False) -> str:
    """Write an interval as its middle and its range."""
    low, expected, high = (
        _dollars(value) if money else _rounded(value)
        for value in (interval.low, interval.expected, interval.high)
    )
    return expected if low == high else f"{expected} ({low} to {high})"


def _rounded(value: float) -> str:
    digits = max(0, len(str(round(value))) - 3)
    return f"{round(value, -digits):,.0f}"


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.2g}"
