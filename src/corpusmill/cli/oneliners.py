"""`corpusmill translate` and `corpusmill summarise`: a job of one prompt, written as options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from corpusmill.cli.run import json_option, limit_option, quiet_option, run_job
from corpusmill.job import job_of
from corpusmill.policy import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Command = Callable[..., None]


def job_options(command: Command) -> Command:
    """Add what the one-liners have in common: source, sink, endpoint and conduct."""
    options = [
        click.argument("source"),
        click.argument("out"),
        click.option("--column", required=True, help="The column of texts."),
        click.option("--into", help="The new column; by default made from the column's name."),
        click.option("--base-url", help="URL of a server that speaks the chat-completions protocol."),
        click.option("--model", help="The model's name at that server."),
        click.option("--sambanova-model", help="Instead of both: a model of SambaNova Cloud."),
        click.option(
            "--api-key-env",
            metavar="NAME",
            help="The environment variable that holds the key of the endpoint.",
        ),
        click.option("--instruction", help="What else the model should mind."),
        click.option("--store", default=DEFAULT_STORE, show_default=True, help="URL of the store."),
        click.option("--concurrency", type=click.IntRange(min=1), help="The most requests in flight."),
        limit_option,
        click.option("--overwrite", is_flag=True, help="Remove all that lies in OUT, whoever wrote it."),
        json_option,
        quiet_option,
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("translate", short_help="Translate a column.")
@click.option("--to", required=True, help="Target language, a code or an English name.")
@click.option("--from", "from_", help="Source language; the model finds it out by default.")
@click.option("--glossary", help="Terms and what they are called: a CSV, TSV or Parquet file.")
@click.option("--register", help="How formal, such as formal or informal.")
@job_options
def translate_command(
    *, to: str, from_: str | None, glossary: str | None, register: str | None, **given: Any
) -> None:
    """Translate a text column of SOURCE (Parquet or Arrow files), and write the table with the translations to OUT.

    What was paid for is kept at every moment: after a kill, a failure or Ctrl-C the same command goes on.
    """
    given["into"] = given["into"] or f"{given['column']}_{to}"
    _run("translate", {"to": to, "from": from_, "glossary": glossary, "register": register}, given)


@click.command("summarise", short_help="Summarise a column (summarize will do).")
@click.option("--length", help="The most words, or a text such as 'three sentences'.")
@click.option("--language", help="Language of the summary; that of the text by default.")
@job_options
def summarise_command(*, length: str | None, language: str | None, **given: Any) -> None:
    """Summarise a text column of SOURCE (Parquet or Arrow files), and write the table with the summaries to OUT.

    What was paid for is kept at every moment: after a kill, a failure or Ctrl-C the same command goes on.
    """
    given["into"] = given["into"] or f"{given['column']}_summary"
    _run("summarise", {"length": length, "language": language}, given)


def _run(task: str, prompt: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    job = job_of(job_values(task, prompt, given), name=f"corpusmill {task}")
    run_job(
        job,
        command="the same command",
        limit=given["limit"],
        overwrite=given["overwrite"],
        as_json=given["as_json"],
        quiet=given["quiet"],
    )


def job_values(task: str, prompt: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a job file would say that does the same."""
    common = {name: given[name] for name in ("column", "into", "instruction")}
    values: dict[str, Any] = {
        "source": given["source"],
        "sink": given["out"],
        "prompts": [{task: _stated({**common, **prompt})}],
        "endpoint": endpoint_values(
            base_url=given["base_url"],
            model=given["model"],
            sambanova_model=given["sambanova_model"],
            api_key_env=given["api_key_env"],
        ),
        "store": given["store"],
    }
    if given["concurrency"] is not None:
        values["limits"] = {"concurrency": given["concurrency"]}
    return values


def endpoint_values(
    *, base_url: str | None, model: str | None, sambanova_model: str | None, api_key_env: str | None
) -> dict[str, Any]:
    """Give the endpoint as a job file has it; the key stays in the environment."""
    key = None if api_key_env is None else "${" + api_key_env + "}"
    if sambanova_model is not None:
        if base_url is not None or model is not None:
            raise click.UsageError(
                "--sambanova-model stands instead of --base-url and --model, not beside them"
            )
        return {"sambanova": _stated({"model": sambanova_model, "api_key": key})}
    if base_url is None or model is None:
        raise click.UsageError("say whom to ask: --base-url and --model, or --sambanova-model")
    return {"openai_compatible": _stated({"base_url": base_url, "model": model, "api_key": key})}


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
