"""The demonstration that `make demo` runs: a corpus is planned, enriched, killed, resumed and looked at.

Everything is local: the corpus is the help text that every Python carries, the endpoint is the fake one of this
package. Run it as `python examples/demo.py [folder]`; the folder (`demo-output` by default) is made anew.
"""

from __future__ import annotations

import importlib
import json
import os
import pydoc_data.topics
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = [sys.executable, "-m", "corpusmill"]
WIDTH = 100

JOB = """\
# What to read, what to ask, where to write. For a real endpoint change the two lines marked with ->.
source: {folder}/corpus.parquet
sink: {folder}/enriched/
prompts:
  - translate: {{column: text, into: text_lv, from: en, to: lv}}
  - summarise: {{column: text, into: summary, length: one sentence}}
endpoint:
  openai_compatible:
    base_url: {base_url}        # -> https://api.sambanova.ai/v1
    model: fake-model           # -> the name of a model there, and api_key: "${{SAMBANOVA_API_KEY}}"
store: sqlite:///{store}
limits: {{concurrency: 64}}
"""


def say(text: str = "") -> None:
    """Print a paragraph, wrapped."""
    print(textwrap.fill(text, WIDTH) if text else "", flush=True)


def heading(text: str) -> None:
    """Print a heading."""
    print(f"\n── {text} {'─' * max(0, WIDTH - len(text) - 4)}", flush=True)


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Show a command and run it."""
    print(f"\n$ corpusmill {' '.join(arguments)}", flush=True)
    return subprocess.run([*COMMAND, *arguments], text=True, check=False, **options)


def build_corpus(path: Path) -> int:
    """Write the help topics of this Python, a paragraph a row; give the number of rows.

    It has the columns that the README's snippets and the jobs of examples/jobs name: `id`, `text` and `lang`.
    """
    paragraphs = [
        {"topic": topic, "paragraph": number, "text": text, "lang": "en"}
        for topic, document in sorted(pydoc_data.topics.topics.items())
        for number, text in enumerate(document.split("\n\n"))
    ]
    rows = [{"id": number, **paragraph} for number, paragraph in enumerate(paragraphs)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return len(rows)


def start_endpoint() -> tuple[subprocess.Popen[str], str]:
    """Start the fake endpoint on a free port; it answers in about 60 ms and fails now and then."""
    faults = ("--fault", "429=0.002", "--fault", "500=0.01", "--fault", "reset=0.01", "--retry-after", "0.2")
    process = subprocess.Popen(
        [*COMMAND, "fake-endpoint", "--port", "0", "--latency", "0.06", "--latency-sigma", "0.5", *faults],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def stats(base_url: str) -> dict[str, Any]:
    """Ask the endpoint how much it has answered."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats") as response:
        found: dict[str, Any] = json.load(response)
    return found


def run_and_kill(job: str, base_url: str, *, after: int) -> None:
    """Start a run, and kill its process without warning once so many requests have been answered."""
    print(f"\n$ corpusmill run {job}", flush=True)
    process = subprocess.Popen([*COMMAND, "run", job, "--progress-every", "2"])
    while process.poll() is None and stats(base_url)["computed"] < after:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def show_rows(sink: Path, numbers: Sequence[int]) -> None:
    """Print a few rows, what went in above what came out."""
    import corpusmill

    table = corpusmill.read(sink).take(list(numbers))
    for row in table.to_pylist():
        print(f"\n  topic {row['topic']!r}, paragraph {row['paragraph']}")
        for name in ("text", "text_lv", "summary"):
            status = "" if name == "text" else f"  [{row[name + '_outcome']['status']}]"
            shown = textwrap.shorten(" ".join(str(row[name]).split()), WIDTH - 14, placeholder=" …")
            print(f"    {name:8}{shown}{status}")


def main(folder: Path) -> int:
    """Run the demonstration."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    endpoint, base_url = start_endpoint()
    try:
        return demonstrate(folder, base_url)
    finally:
        endpoint.terminate()
        endpoint.wait()


def demonstrate(folder: Path, base_url: str) -> int:
    """Go through the acts."""
    heading("The corpus and the endpoint")
    rows = build_corpus(folder / "corpus.parquet")
    say(
        f"The corpus is {folder}/corpus.parquet: {rows:,} paragraphs of the help text that this Python carries. "
        f"The endpoint at {base_url} is a fake one: it needs no key, answers in about 60 ms, 'translates' by "
        "accenting letters, and refuses or breaks 2 requests of 100, as real ones do."
    )
    job = folder / "job.yaml"
    job.write_text(JOB.format(folder=folder, base_url=base_url, store=folder / "store.db"), "utf-8")
    heading(f"The job, {job}")
    print(job.read_text("utf-8"))

    heading("What it would cost: nothing is asked and nothing is written")
    command("plan", str(job))

    heading("A run that dies: the process is killed with SIGKILL half-way")
    run_and_kill(str(job), base_url, after=rows)
    before = stats(base_url)["computed"]
    say(f"Killed. The endpoint had computed {before:,} answers by then; each that arrived is in the store.")

    heading("The same command again: it goes on where it was")
    resumed = command("run", str(job), "--json", stdout=subprocess.PIPE)
    if resumed.returncode != 0:
        return resumed.returncode
    report = json.loads(resumed.stdout)
    after = stats(base_url)
    say(
        f"{report['rows']:,} rows with 2 new columns each make {2 * report['rows']:,} cells. "
        f"{report['cached']:,} of them were filled from the store, with answers that were paid before the kill (rows "
        f"with the same text share one); {report['live']:,} were asked now; {report['deduplicated']:,} say the same "
        f"as one that was asked now; {report['skipped']:,} are blank."
    )
    say(
        f"Over both runs the endpoint computed {after['computed']:,} answers for {after['distinct']:,} different "
        f"requests: {after['computed_again']} of them twice. The report says that it was at most "
        f"{report['possibly_paid_twice']}: what was on its way when the process died, and what the endpoint's broken "
        "connections may have swallowed."
    )

    heading("A few rows")
    show_rows(folder / "enriched", (40, 700, 1500))

    heading("Where things are")
    say(f"output  {folder}/enriched/ (Parquet; read it with any reader, or corpusmill.read)")
    say(f"report  {folder}/enriched/_corpusmill/report.html (open it in a browser)")
    say(f"store   {folder}/store.db (every answer, under a hash of what was asked)")

    heading("And once more: nothing has changed, so nothing is done")
    again = command("run", str(job))
    asked = stats(base_url)["computed"] - after["computed"]
    say(f"The endpoint was asked {asked} times.")
    if again.returncode == 0:
        play_acts(folder, base_url)
    return again.returncode


def play_acts(folder: Path, base_url: str) -> None:
    """Show the same corpus as a Dag of Airflow, as an asset of Dagster, and through Amazon SageMaker."""

    def requests() -> int:
        return int(stats(base_url)["requests"])

    heading("The same job as a Dag of Airflow: every answer comes from the store")
    importlib.import_module("demo_airflow").act(folder, requests)
    heading("And as an asset of Dagster: likewise")
    importlib.import_module("demo_dagster").act(folder, requests)
    heading("And through Amazon SageMaker: a transform job, then real time; both are local fakes")
    importlib.import_module("demo_sagemaker").act(folder)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")))
