"""Live: real texts from Parquet to Parquet through a canned server, everything on, beside the hand-written loop.

The loop is what people write today: the openai SDK's `AsyncOpenAI`, `gather`, a semaphore, pyarrow at both ends, no
store and no retries but the SDK's own. The bare transport asks one and the same request in a loop and does nothing
with the answers: it is the limit. Rounds are interleaved, so that what else the machine does falls on all alike.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks import transport
from benchmarks.bench import MODEL, TEMPLATE, run
from benchmarks.child import call, spent

if TYPE_CHECKING:
    from benchmarks.bench import Bench

ROWS = 20_000
SDK_ROWS = 4_000
BARE_SECONDS = 2.0
ROUNDS = 3
IN_FLIGHT = 64


def ours(*, base_url: str, corpus: str, folder: str) -> dict[str, Any]:
    """Run once with an empty store."""
    import corpusmill.run  # noqa: F401 - what is measured is the work, not the imports

    figures: dict[str, Any] = {}
    with spent(figures):
        report = run(corpus=corpus, sink=f"{folder}/out", store=f"{folder}/store.db", base_url=base_url)
    if report.live != report.rows:
        raise SystemExit(f"{report.live} of {report.rows} rows were asked")
    return {**figures, "rows": report.rows}


def sdk(*, base_url: str, corpus: str, folder: str, rows: int) -> dict[str, Any]:
    """Do the same with the openai SDK."""
    openai: Any = importlib.import_module("openai")
    client = openai.AsyncOpenAI(base_url=base_url, api_key="sk-canned")
    figures: dict[str, Any] = {}
    with spent(figures):
        table = pq.read_table(corpus).slice(0, rows)
        texts = [str(text) for text in table.column("text").to_pylist()]
        answers = asyncio.run(_ask_all(client, texts))
        pq.write_table(table.append_column("topic", pa.array(answers)), Path(folder, "out.parquet"))
    return {**figures, "rows": rows}


async def _ask_all(client: Any, texts: list[str]) -> list[str]:
    limit = asyncio.Semaphore(IN_FLIGHT)

    async def ask(text: str) -> str:
        async with limit:
            message = {"role": "user", "content": TEMPLATE.replace("{text}", text)}
            answer = await client.chat.completions.create(model=MODEL, messages=[message])
        content: str = answer.choices[0].message.content
        return content

    async with client:
        return await asyncio.gather(*(ask(text) for text in texts))


def bare(*, url: str) -> dict[str, Any]:
    """Ask by the transport alone."""
    import httpx

    make = transport.CANDIDATES["ours"]
    rate, cpu = asyncio.run(transport.measure(make, transport.lean, httpx.URL(url), IN_FLIGHT, BARE_SECONDS))
    return {"rows": rate * BARE_SECONDS, "seconds": BARE_SECONDS, "cpu": rate * BARE_SECONDS * cpu / 1e6}


def measure(bench: Bench) -> dict[str, Any]:
    """Give rates and processor time by the row, the medians of the rounds, and ratios within each round."""
    rows, sdk_rows = bench.size(ROWS, 2_000), bench.size(SDK_ROWS, 500)
    corpus = str(bench.corpus(rows=rows))
    rounds: dict[str, list[dict[str, Any]]] = {"ours": [], "sdk": [], "bare": []}
    with transport.canned_server() as url:
        base_url = str(url).removesuffix("/chat/completions")
        for _ in range(bench.size(ROUNDS, 1)):
            place = str(bench.place("live"))
            rounds["ours"].append(
                call("benchmarks.live:ours", base_url=base_url, corpus=corpus, folder=place)
            )
            rounds["sdk"].append(
                call("benchmarks.live:sdk", base_url=base_url, corpus=corpus, folder=place, rows=sdk_rows)
            )
            rounds["bare"].append(call("benchmarks.live:bare", url=str(url)))
    rates = {name: [each["rows"] / each["seconds"] for each in found] for name, found in rounds.items()}
    cpu = {name: [each["cpu"] / each["rows"] * 1e6 for each in found] for name, found in rounds.items()}
    return {
        "rows": rows,
        "in_flight": IN_FLIGHT,
        "rounds": len(rates["ours"]),
        "rows_per_second": statistics.median(rates["ours"]),
        "rows_per_second_best": max(rates["ours"]),
        "cpu_us_per_row": statistics.median(cpu["ours"]),
        "sdk_rows_per_second": statistics.median(rates["sdk"]),
        "sdk_cpu_us_per_row": statistics.median(cpu["sdk"]),
        "bare_requests_per_second": statistics.median(rates["bare"]),
        "bare_cpu_us_per_request": statistics.median(cpu["bare"]),
        "times_sdk": _ratio(rates["ours"], rates["sdk"]),
        "share_of_bare": _ratio(rates["ours"], rates["bare"]),
    }


def _ratio(these: list[float], those: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(these, those, strict=True))
