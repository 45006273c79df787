"""`corpusmill plan`: what a job would do and cost; nothing is sent and nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpusmill.cli.job_file import job_of_file
from corpusmill.cli.run import write_json
from corpusmill.estimate import plan_job
from corpusmill.page.numbers import duration
from corpusmill.report import STATED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.estimate import JobPlan, PromptPlan
    from corpusmill.rows.tokens import Interval


@click.command("plan", short_help="Say what a job would do and cost; spends nothing.")
@click.argument("job", type=click.Path(dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON on standard output.")
def plan_command(job: str, *, as_json: bool) -> None:
    """Say what the job in the file JOB would do and cost.

    Rows are read and looked up in the store; nothing is sent, nothing is written. Tokens are estimates from what
    servers have counted before, with the range in which the truth is expected.
    """
    with job_of_file(job) as loaded:
        plan = plan_job(loaded)
    if as_json:
        write_json(plan.as_dict())
        return
    Console().print(_table(plan))
    for line in told(plan):
        click.echo(line)


def _table(plan: JobPlan) -> Table:
    table = Table(title=f"{plan.rows:,} rows, and what becomes of them", title_justify="left")
    for name in (
        "new column",
        "blank",
        "cannot be asked",
        "in the store",
        "same as another row",
        "to be asked",
    ):
        table.add_column(name, justify="left" if name == "new column" else "right")
    for prompt in plan.prompts:
        counts = (prompt.blank, prompt.unaskable, prompt.stored, prompt.duplicates, prompt.requests)
        table.add_row(Text(prompt.into), *(f"{count:,}" for count in counts))
    return table


def told(plan: JobPlan) -> Iterator[str]:
    """Say what a plan comes to, a line each."""
    yield f"requests to send: {plan.requests:,}"
    if plan.requests:
        yield f"tokens, estimated: {_tokens(plan)}"
    for prompt in plan.prompts:
        if prompt.requests:
            yield f"  {prompt.into}: {_tokens(prompt)}, judging by {prompt.rests_on}"
    yield from _cost_and_time(plan)
    if plan.sink == "skip":
        yield "output: it is up to date; a run would do nothing"
    if plan.sink == "rebuild":
        yield "output: there is one already, which a run would replace"
    if any(prompt.unaskable for prompt in plan.prompts):
        yield (
            "note: rows that cannot be asked have broken messages or are too long for the model; they fail without "
            "a request"
        )
    for note in plan.notes:
        yield f"note: {note}"


def _cost_and_time(plan: JobPlan) -> Iterator[str]:
    """Say what is known of both; where hours are paid for, the note about the job says both."""
    if plan.cost is not None:
        yield f"cost: {ranged(plan.cost, money=True)}, by {_prices(plan.prices)}"
    elif plan.billed_by == "tokens":
        yield (
            "cost: no price is known; the job may state prices, in US dollars for a million tokens: "
            "prices: {prompt: 0.10, completion: 0.40}"
        )
    if plan.seconds is not None:
        yield f"time: at least {duration(plan.seconds)} at the limits that the job states"
    elif plan.billed_by == "tokens":
        yield "time: it depends on how fast the endpoint answers, as the job states no limits a minute"


def _tokens(plan: JobPlan | PromptPlan) -> str:
    return f"{ranged(plan.prompt_tokens)} in requests, {ranged(plan.completion_tokens)} in answers"


def _prices(origin: str | None) -> str:
    return "the prices that the job states" if origin == STATED else str(origin)


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
