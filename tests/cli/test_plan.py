"""`corpusmill plan` and the estimate behind it: exact counts, honest ranges, nothing sent, nothing written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill import FailurePolicy, enrich
from corpusmill.cli import main
from corpusmill.cli.plan import told
from corpusmill.endpoints.prices import Prices, known_prices
from corpusmill.errors import SinkError
from corpusmill.estimate import JobPlan, plan_job, seconds_at_limits
from corpusmill.job import Job, job_of
from corpusmill.rows.seen import SeenKeys
from corpusmill.rows.tokens import ENOUGH, Counted, Sizes, by_size, estimate
from corpusmill.testing import FakeEndpoint

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [f"A text about the number {number} and nothing else." for number in range(20)]


def job(folder: Path, texts: list[str | None], base_url: str = "http://127.0.0.1:9/v1", **more: Any) -> Job:
    """A job over these texts, with its files in `folder`."""
    pq.write_table(
        pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())}), folder / "in.parquet"
    )
    values: dict[str, Any] = {
        "source": str(folder / "in.parquet"),
        "sink": str(folder / "out"),
        "prompts": [{"translate": {"column": "text", "into": "text_lv", "to": "lv"}}],
        "endpoint": {"openai_compatible": {"base_url": base_url, "model": "any"}},
        "store": f"sqlite:///{folder / 'store.db'}",
    }
    return job_of({**values, **more}, environment={})


def run(asked: Job, **changes: Any) -> None:
    """Run a job for real."""
    given: dict[str, Any] = {"sink": asked.sink, "source": asked.source, **changes}
    enrich(given["source"], given["sink"], *asked.prompts, endpoint=asked.endpoint, store=asked.store)


def test_every_row_is_counted_once_and_exactly(tmp_path: Path) -> None:
    """Blank, stored, duplicate and to be sent add up to the rows, and a run then sends just that many requests."""
    with FakeEndpoint() as endpoint:
        run(job(tmp_path, list(TEXTS[:5]), endpoint.base_url), sink=tmp_path / "first")
        endpoint.reset()
        asked = job(tmp_path, [*TEXTS, *TEXTS[3:8], None, "  "], endpoint.base_url)
        plan = plan_job(asked)
        assert endpoint.stats().requests == 0
        run(asked)
        sent = endpoint.stats().requests
    (prompt,) = plan.prompts
    assert (prompt.blank, prompt.stored, prompt.duplicates, prompt.requests) == (2, 7, 3, 15)
    assert plan.rows == 27
    assert plan.requests == sent == 15


def test_a_plan_sends_nothing_and_writes_nothing(tmp_path: Path) -> None:
    """Without a store none is made; with one its bytes stay the same, and nothing new lies around."""
    with FakeEndpoint() as endpoint:
        asked = job(tmp_path, list(TEXTS), endpoint.base_url)
        plan_job(asked)
        assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
        run(asked)
        before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
        attempts = endpoint.stats().requests
        assert plan_job(asked).sink == "skip"
        assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before
        assert endpoint.stats().requests == attempts


def test_a_plan_says_where_it_has_found_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is named from the working directory is another one elsewhere, which would buy all answers again."""
    monkeypatch.chdir(tmp_path)
    with FakeEndpoint() as endpoint:
        asked = job(tmp_path, list(TEXTS), endpoint.base_url, store="sqlite:///answers.db")
        first = plan_job(asked)
        run(asked)
        assert not any("no store" in note for note in plan_job(asked).notes)
    assert f"there is no store yet at {tmp_path / 'answers.db'}: no answer is found there" in first.notes
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert any(f"{tmp_path / 'elsewhere' / 'answers.db'}" in note for note in plan_job(asked).notes)


def test_rows_that_collapse_into_one_request_are_pointed_out(tmp_path: Path) -> None:
    """Thirty equal rows are one request, and the plan says how to ask each of them."""
    plan = plan_job(job(tmp_path, ["the same"] * 30))
    assert plan.requests == 1
    assert any("30 rows, 1 request:" in note and "vary_by" in note for note in plan.notes)
    varied = {"translate": {"column": "text", "into": "text_lv", "to": "lv", "vary_by": "copy"}}
    pq.write_table(
        pa.table({"text": ["the same"] * 30, "copy": [str(number) for number in range(30)]}),
        tmp_path / "copies.parquet",
    )
    asked = job(tmp_path, [], source=str(tmp_path / "copies.parquet"), prompts=[varied])
    assert plan_job(asked).requests == 30


def test_the_mode_decides_which_stored_answers_count(tmp_path: Path) -> None:
    """`off` and `refresh` ask everything; `refresh` of some statuses asks only rows whose answer has one."""
    with FakeEndpoint() as endpoint:
        run(job(tmp_path, list(TEXTS), endpoint.base_url), sink=tmp_path / "first")
        url = f"sqlite:///{tmp_path / 'store.db'}"

        def requests(**store: Any) -> int:
            return plan_job(
                job(tmp_path, list(TEXTS), endpoint.base_url, store={"url": url, **store})
            ).requests

        assert requests() == 0
        assert requests(mode="off") == 20
        assert requests(mode="refresh") == 20
        assert requests(mode="refresh", refresh=["invalid"]) == 0
        assert requests(mode="refresh", refresh=["completed"]) == 20


def agrees(asked: Job, endpoint: FakeEndpoint) -> int:
    """Plan a job, run it, and give the number of requests, on which the two must agree."""
    plan = plan_job(asked)
    before = endpoint.stats().requests
    enrich(
        asked.source,
        asked.sink,
        *asked.prompts,
        endpoint=asked.endpoint,
        store=asked.store,
        failures=FailurePolicy(max_failed=1.0),
    )
    sent = endpoint.stats().requests - before
    assert plan.requests == sent
    return sent


def test_a_cut_answer_that_a_run_would_ask_again_is_a_request_of_the_plan(tmp_path: Path) -> None:
    """Where the ceiling may now be raised, the answers that it had cut are asked once more, and no others."""
    with FakeEndpoint() as endpoint:

        def asked(sink: str, **prompt: Any) -> Job:
            ask = {"template": "Topic of {text}", "into": "topic", "max_tokens": 400, **prompt}
            return job(
                tmp_path, list(TEXTS), endpoint.base_url, prompts=[{"ask": ask}], sink=str(tmp_path / sink)
            )

        endpoint.script(lambda request, _attempt: "length" if "number 1" in str(request) else None)
        assert agrees(asked("first"), endpoint) == 20
        endpoint.script(None)
        assert agrees(asked("second"), endpoint) == 0
        plan = plan_job(asked("third", escalate_to=4_000))
        assert plan.prompts[0].stored == 9
        assert agrees(asked("third", escalate_to=4_000), endpoint) == 11


def test_rows_whose_own_messages_would_be_refused_are_no_requests_of_the_plan(tmp_path: Path) -> None:
    """What a run fails without sending is counted as that, and not as a request."""
    messages = [[{"role": "user", "content": text}] for text in ("as JSON", "in any form")]
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    ask = {
        "messages": {"column": "messages"},
        "into": "reply",
        "response_format": {"type": "json_object"},
    }
    with FakeEndpoint() as endpoint:
        asked = job(
            tmp_path,
            [],
            endpoint.base_url,
            source=str(tmp_path / "chats.parquet"),
            prompts=[{"ask": ask}],
        )
        pq.write_table(pa.table({"messages": pa.array(messages, kind)}), tmp_path / "chats.parquet")
        assert plan_job(asked).prompts[0].unaskable == 1
        assert agrees(asked, endpoint) == 1


@pytest.mark.parametrize("stored", [False, True], ids=["without-a-store", "with-a-store"])
def test_rows_too_long_for_the_context_are_no_requests_of_the_plan(tmp_path: Path, *, stored: bool) -> None:
    """A run knows before sending that they cannot fit, and so does a plan."""
    texts: list[str | None] = ["short", "a long text " * 4_000]
    with FakeEndpoint() as endpoint:
        where = {"base_url": endpoint.base_url, "model": "any", "context_tokens": 4_096}
        if stored:
            run(job(tmp_path, ["another"], endpoint.base_url), sink=tmp_path / "first")
        asked = job(tmp_path, texts, endpoint.base_url, endpoint={"openai_compatible": where})
        assert plan_job(asked).prompts[0].unaskable == 1
        assert agrees(asked, endpoint) == 1


def test_a_refresh_is_never_taken_for_up_to_date(tmp_path: Path) -> None:
    """A run in that mode asks and replaces, though nothing has changed."""
    with FakeEndpoint() as endpoint:
        asked = job(tmp_path, list(TEXTS), endpoint.base_url)
        run(asked)
    assert plan_job(asked).sink == "skip"
    assert plan_job(replace(asked, mode="refresh")).sink == "rebuild"


def test_a_ceiling_that_may_be_raised_bounds_no_answer(tmp_path: Path) -> None:
    """With `escalate_to` an answer may be longer than the first ceiling, and several choices are longer than one."""
    ask = {"template": "Topic of {text}", "into": "topic", "max_tokens": 3}
    several = {"ask": {**ask, "n": 2}}
    raised = {"ask": {**ask, "escalate_to": 3_000}}
    assert plan_job(job(tmp_path, list(TEXTS), prompts=[several])).completion_tokens.high == 120
    assert plan_job(job(tmp_path, list(TEXTS), prompts=[raised])).completion_tokens.high > 120


def test_tokens_learned_from_rows_of_the_job_are_near_the_truth(tmp_path: Path) -> None:
    """After a preview the estimate rests on its rows, and the tokens of the whole lie in the range."""
    with FakeEndpoint() as endpoint:
        texts: list[str | None] = [f"Sentence number {number}. " * (1 + number % 4) for number in range(200)]
        run(job(tmp_path, texts[:20], endpoint.base_url), sink=tmp_path / "first")
        asked = job(tmp_path, texts, endpoint.base_url)
        plan = plan_job(asked)
        report = enrich(asked.source, asked.sink, *asked.prompts, endpoint=asked.endpoint, store=asked.store)
    assert "20 rows of this job" in plan.prompts[0].rests_on
    assert plan.prompt_tokens.low <= report.prompt_tokens <= plan.prompt_tokens.high
    assert plan.completion_tokens.low <= report.completion_tokens <= plan.completion_tokens.high
    assert plan.prompt_tokens.high < 1.5 * plan.prompt_tokens.expected


def test_without_answers_the_table_by_script_is_used_and_named() -> None:
    """Where the model is unknown, a script that takes more tokens a character is estimated higher, and wider."""
    latin, _, rests_on = estimate("translate", {"Latin": Sizes(10, 1_000)}, [], [])
    han, _, _ = estimate("translate", {"Han": Sizes(10, 1_000)}, [], [])
    assert "a rough average" in rests_on
    assert latin.low < latin.expected < latin.high < han.high
    assert han.expected > latin.expected


def test_a_script_that_was_never_counted_is_not_guessed_from_another() -> None:
    """Answers for Latin rows say nothing about Cyrillic ones, which the estimate admits."""
    known = [Counted("Latin", 100, 25, 30)] * ENOUGH
    tokens, _, rests_on = estimate("ask", {"Latin": Sizes(4, 400), "Cyrillic": Sizes(4, 400)}, [], known)
    assert "for texts in Cyrillic script by a rough average" in rests_on
    assert tokens.expected > 2 * 100


def test_a_range_covers_the_spread_of_requests_and_never_pretends_to_be_exact() -> None:
    """Equal ratios leave a margin of a twentieth; unequal ones widen the range."""
    even = by_size([(100, 30)] * 50, Sizes(1_000, 100_000))
    odd = by_size([(100, 10), (100, 50)] * 5, Sizes(1_000, 100_000))
    assert even.expected == odd.expected == 30_000
    assert even.high == pytest.approx(31_500)
    assert odd.high > 1.2 * odd.expected


def test_a_ceiling_of_the_user_bounds_the_answers(tmp_path: Path) -> None:
    """With `max_tokens` no estimate is above what the requests may answer."""
    prompt = {"ask": {"template": "Topic of {text}", "into": "topic", "max_tokens": 3}}
    plan = plan_job(job(tmp_path, list(TEXTS), prompts=[prompt]))
    assert plan.completion_tokens.high == 60


def test_cost_and_time_follow_from_prices_and_rates(tmp_path: Path) -> None:
    """Prices of the job give a range in dollars, stated rates the least time; without either nothing is made up."""
    bare = plan_job(job(tmp_path, list(TEXTS)))
    assert bare.cost is None
    assert bare.seconds is None
    stated = plan_job(
        job(
            tmp_path,
            list(TEXTS),
            prices={"prompt": 1_000_000, "completion": 0},
            limits={"requests_per_minute": 10},
            budget={"tokens": 1, "usd": 1},
        )
    )
    assert stated.cost is not None
    assert stated.cost.expected == pytest.approx(stated.prompt_tokens.expected)
    assert stated.seconds == 120
    assert {"the budget of 1 tokens is not enough", "the budget of $1.00 is not enough"} <= set(stated.notes)


def test_the_slower_of_two_rates_decides() -> None:
    """A thousand requests of a thousand tokens take the time that the tokens need."""
    assert seconds_at_limits(1_000, 1e6, requests_per_minute=1_000, tokens_per_minute=100_000) == 600


def test_list_prices_are_those_of_the_url_that_is_asked() -> None:
    """A server of one's own never has the price of a service that offers the same model."""
    assert known_prices("http://127.0.0.1:8000/v1/chat/completions", "gpt-4o") is None
    found = known_prices("https://api.openai.com/v1/chat/completions", "gpt-4o")
    assert isinstance(found, Prices)
    assert found.cost(1_000_000, 0) == found.prompt > 0


def test_a_sink_that_is_in_the_way_is_said_and_no_error(tmp_path: Path) -> None:
    """A plan is possible before the place for the output is free."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("mine", "utf-8")
    plan = plan_job(job(tmp_path, list(TEXTS)))
    assert plan.sink == "refuse"
    assert any("letter.txt" in note for note in plan.notes)


def test_a_job_that_no_free_place_would_mend_has_no_plan(tmp_path: Path) -> None:
    """A sink within its source, or around its store, is refused as a run refuses it."""
    for changes in ({"source": str(tmp_path)}, {"store": f"sqlite:///{tmp_path / 'out' / 'store.db'}"}):
        with pytest.raises(SinkError, match=r"lies inside the source|holds the store"):
            plan_job(job(tmp_path, list(TEXTS), **changes))


def test_seen_keys_tells_new_keys_from_old_ones() -> None:
    """Like a set, over several growths; a key of zeros counts too."""
    keys = [number.to_bytes(8, "big").rjust(20, b"\1")[::-1] for number in range(2, 20_000)] + [bytes(20)]
    seen = SeenKeys()
    assert all(seen.add(key) for key in keys)
    assert not any(seen.add(key) for key in keys)
    assert len(seen) == len(keys)


def written(folder: Path) -> str:
    """The path of a job file that says what `job` says."""
    job(folder, [*TEXTS, TEXTS[0]])
    path = folder / "job.json"
    path.write_text(
        json.dumps(
            {
                "source": str(folder / "in.parquet"),
                "sink": str(folder / "out"),
                "prompts": [{"summarise": {"column": "text", "into": "short"}}],
                "endpoint": {"openai_compatible": {"base_url": "http://127.0.0.1:9/v1", "model": "any"}},
                "store": f"sqlite:///{folder / 'store.db'}",
            }
        ),
        "utf-8",
    )
    return str(path)


def test_the_command_tells_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, tokens with their range, what they rest on, and what is not known."""
    assert main(["plan", written(tmp_path)]) == 0
    said = capsys.readouterr().out
    for words in (
        "21 rows",
        "requests to send: 20",
        "judging by a rough average over many models",
        "no price is known; the job may state prices",
        "the job states no limits a minute",
    ):
        assert words in said


def test_a_plan_is_told_in_words_that_need_no_explanation(tmp_path: Path) -> None:
    """Costs with whose prices, time with whose limits, and why rows cannot be asked; nothing of a plan of nothing."""
    where = {"base_url": "http://127.0.0.1:9/v1", "model": "any", "context_tokens": 4_096}
    asked = job(
        tmp_path,
        [*TEXTS, "a long text " * 4_000],
        endpoint={"openai_compatible": where},
        prices={"prompt": 1.0, "completion": 2.0},
        limits={"requests_per_minute": 10},
    )
    said = "\n".join(told(plan_job(asked)))
    assert ", by the prices that the job states" in said
    assert "time: at least 2 min 00 s at the limits that the job states" in said
    assert "rows that cannot be asked have broken messages or are too long" in said
    listed = replace(
        plan_job(asked), prices="the price list of Somebody", requests=0, prompts=(), sink="skip"
    )
    said = "\n".join(told(listed))
    assert ", by the price list of Somebody" in said
    assert "tokens" not in said
    assert "cannot be asked" not in said
    assert "output: it is up to date; a run would do nothing" in said


def test_a_plan_of_a_transform_job_speaks_of_hours_and_of_no_price_of_tokens(tmp_path: Path) -> None:
    """One job in one shard, and nobody is asked for the price of a million tokens."""
    where = {
        "model_name": "tildeopen-30b-64k",
        "model": "tildeopen-30b-64k",
        "region": "eu-north-1",
        "instance_type": "ml.g6.48xlarge",
        "s3": "s3://bucket/nightly",
        "tokens_per_second": 1,
        "price_per_hour": 3_600,
    }
    said = "\n".join(told(plan_job(job(tmp_path, [*TEXTS], endpoint={"sagemaker_transform": where}))))
    assert "note: transform job: 1 shard of about" in said
    assert "hours of work" in said
    assert "no price is known" not in said
    assert "limits a minute" not in said


def test_the_command_gives_the_plan_as_json(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Standard output is the plan and nothing else."""
    assert main(["plan", written(tmp_path), "--json"]) == 0
    plan = json.loads(capfdbinary.readouterr().out)
    assert set(plan) == set(JobPlan.__dataclass_fields__)
    assert plan["prompts"][0]["duplicates"] == 1
    assert set(plan["prompt_tokens"]) == {"low", "expected", "high"}
