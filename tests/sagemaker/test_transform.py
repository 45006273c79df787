"""Transform jobs as fillers of the store, against the fake control plane and a real S3 API."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corpusmill
from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform
from corpusmill.errors import (
    AuthenticationError,
    ComeBackLaterError,
    EndpointError,
    InterruptedRunError,
    JobsAtWorkError,
    StoreError,
    TooManyFailuresError,
    UsageError,
)
from corpusmill.job import Job as JobOfShards
from corpusmill.policy import FailurePolicy, RetryPolicy
from corpusmill.prompts.ask import Ask
from corpusmill.run import enrich, enrich_batches
from corpusmill.shards import Shard, commit_shards, enrich_shard, plan_shards
from corpusmill.store import open_store
from corpusmill.tables import SinkSpec, SourceSpec
from corpusmill.testing import expected_answer
from corpusmill.transform.aws import Aws, PassingError
from corpusmill.transform.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from corpusmill.report import RunReport
    from corpusmill.testing.sagemaker import FakeSageMaker

TEMPLATE = "Name the topic of: {text}"
PROMPT = Ask(TEMPLATE, into="topic")


def texts(rows: int) -> list[str]:
    """Different texts, with all that JSON Lines must not be split at."""
    return [f"row {row}: Čau \u2028 {{}} \u0085 \x0b \r\n 🥧" for row in range(rows)]


def answer_to(text: str) -> str:
    """What the model says to a row."""
    return expected_answer([{"role": "user", "content": TEMPLATE.replace("{text}", text)}])


def leaving() -> Callable[[object], None]:
    """Something that looks on, and ends the run at the sixth look, when its job is at work."""
    looks = itertools.count(1)

    def leave(_progress: object) -> None:
        if next(looks) > 5:
            raise InterruptedRunError("this machine is gone")

    return leave


class Job:
    """A job over a table, its transform jobs and its output."""

    def __init__(self, fake: FakeSageMaker, s3_url: str, bucket: str, folder: Path) -> None:
        self.fake, self.folder, self.bucket = fake, folder, bucket
        self.settings: dict[str, Any] = {
            "model_name": "tildeopen-30b-64k",
            "region": fake.region,
            "model": "tildeopen-30b-64k",
            "instance_type": "ml.g6.48xlarge",
            "s3": f"s3://{bucket}/corpus",
            "endpoint_url": fake.url,
            "s3_endpoint_url": s3_url,
            "shard_rows": 4,
            "poll_seconds": 0.05,
            "patience_seconds": 5.0,
        }
        self.table: Any = pa.table({"text": texts(10)})
        self.prompt = PROMPT

    def endpoint(self, **changes: Any) -> SageMakerTransform:
        return SageMakerTransform(**{**self.settings, **changes})

    def real_time(self, **changes: Any) -> SageMakerEndpoint:
        return SageMakerEndpoint(
            endpoint_name="tilde",
            region=self.fake.region,
            model="tildeopen-30b-64k",
            endpoint_url=self.fake.url,
            **changes,
        )

    def run(
        self, *, sink: str = "out", store: str = "store", options: Any = None, **changes: Any
    ) -> RunReport:
        return enrich(
            self.table,
            str(self.folder / sink),
            self.prompt,
            endpoint=self.endpoint(**changes),
            store=f"sqlite:///{self.folder / store}.db",
            retry=RetryPolicy(attempts=2, backoff=0.01),
            **{"failures": FailurePolicy(max_failed=1.0), **(options or {})},
        )

    def rows(self, sink: str = "out") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = corpusmill.read(self.folder / sink).to_table().to_pylist()
        return found

    @property
    def shards(self) -> list[list[int]]:
        """The sizes of the shards of each job, in the order of their creation."""
        jobs = sorted(self.fake.jobs.jobs.values(), key=lambda job: job.created)
        sizes = []
        for job in jobs:
            plan = json.loads(self.read(f"jobs/{job.name}/plan.json"))
            sizes.append([shard["rows"] for shard in plan["shards"]])
        return sizes

    def read(self, name: str) -> bytes:
        body: bytes = self.fake._s3.get_object(Bucket=self.bucket, Key=f"corpus/{name}")["Body"].read()
        return body

    def keys(self, folder: str) -> list[str]:
        found = self.fake._s3.list_objects_v2(Bucket=self.bucket, Prefix=f"corpus/{folder}")
        return [item["Key"] for item in found.get("Contents", ())]

    def check_complete(self, sink: str = "out") -> None:
        """Each row has its own answer."""
        rows = self.rows(sink)
        assert [row["topic"] for row in rows] == [answer_to(row["text"]) for row in rows]
        assert {row["topic_outcome"]["status"] for row in rows} == {"completed"}


@pytest.fixture
def job(fake: FakeSageMaker, s3_url: str, bucket: str, tmp_path: Path) -> Job:
    """A job of ten rows, in shards of four."""
    return Job(fake, s3_url, bucket, tmp_path)


def test_a_job_answers_each_row_once(job: Job) -> None:
    """Equal rows are one line, blank ones none; the second run asks nothing, and nothing is left open."""
    job.table = pa.table({"text": [*texts(10), texts(1)[0], " ", None]})
    report = job.run()
    assert job.shards == [[4, 4, 2]]
    assert (report.rows, report.attempts, report.cached) == (13, 0, 11)
    rows = job.rows()
    assert [row["topic"] for row in rows[:11]] == [answer_to(row["text"]) for row in rows[:11]]
    assert job.fake.container.computed.total() == 10
    assert job.keys("open/") == []
    assert job.run(sink="again").attempts == 0
    assert len(job.fake.jobs.jobs) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"join": False},
        {"wrap": False},
        {"wrap": False, "join": False},
        {"content_type": "application/json", "accept": "application/json"},
        {"output_filter": "$"},
    ],
)
def test_every_shape_of_line_is_read(job: Job, settings: dict[str, Any]) -> None:
    """Joined lines in any order, here back to front; bare ones only in the order of the input."""
    job.fake.reverse = settings.get("join", True)
    job.run(**settings)
    job.check_complete()


def draws(job: Job) -> set[str]:
    """Give the ids of the answers that the rows have, out of the store; each row has one."""
    keys = [bytes.fromhex(row["topic_outcome"]["request_key"]) for row in job.rows()]
    with contextlib.closing(open_store(f"sqlite:///{job.folder / 'store'}.db")) as store:
        stored = store.get_many(keys)
    assert [len(stored[key]) for key in keys] == [1] * len(keys)
    return {json.loads(stored[key][0].body)["id"] for key in keys}


@pytest.mark.parametrize("settings", [{"wrap": False}, {"wrap": False, "join": False}, {}])
def test_several_draws_of_one_text_are_a_line_and_an_answer_each(job: Job, settings: dict[str, Any]) -> None:
    """One job, nothing computed twice, and no answer given to two rows, though their requests are the same."""
    job.fake.reverse = settings.get("join", True)
    job.table = pa.table({"text": ["the same"] * 10, "draw": list(map(str, range(10)))})
    job.prompt = Ask(TEMPLATE, into="topic", vary_by="draw", temperature=1.0)
    job.run(**settings)
    assert job.shards == [[4, 4, 2]]
    assert job.fake.container.requests == len(draws(job)) == 10


def test_a_draw_that_is_missing_is_sent_again_and_no_other(job: Job) -> None:
    """Another line stands there twice, which makes as many as were sent, and is the answer of one row all the same."""
    job.table = pa.table({"text": ["the same"] * 10, "draw": list(map(str, range(10)))})
    job.prompt = Ask(TEMPLATE, into="topic", vary_by="draw", temperature=1.0)
    job.fake.pace.set(0)
    with pytest.raises(JobsAtWorkError) as caught:
        job.run(wrap=False, wait=False)
    (name,) = caught.value.jobs
    job.fake.pace.set(None)
    assert job.fake.jobs.jobs[name].over.wait(30)
    output = f"jobs/{name}/output/s000000.jsonl.out"
    first, second, third, _ = job.read(output).splitlines(keepends=True)
    body = first + second + second + third
    job.fake._s3.put_object(Bucket=job.bucket, Key=f"corpus/{output}", Body=body)
    job.run(wrap=False)
    assert job.shards == [[4, 4, 2], [1]]
    assert job.fake.container.requests == 11
    assert len(draws(job)) == 10


def test_outputs_whose_lines_belong_to_no_row_say_so(job: Job) -> None:
    """A filter that loses the ids: the run ends after the second job, and says what is odd about the outputs."""
    odd = r"does not hold this line \(odd lines of the output: 4 not of this shard\)"
    with pytest.raises(EndpointError, match=odd):
        job.run(output_filter="$['SageMakerOutput']")
    assert job.shards == [[4, 4, 2], [4, 4, 2]]


def test_the_request_is_the_one_of_the_reference_page(job: Job) -> None:
    """Messages, ceiling and temperature, without a model; the id is the key."""
    job.prompt = Ask(TEMPLATE, into="topic", temperature=0, max_tokens=256)
    job.table = pa.table({"text": ["one"]})
    job.run()
    (name,) = job.fake.jobs.jobs
    line = json.loads(job.read(f"jobs/{name}/input/s000000.jsonl"))
    assert line["id"] == job.rows()[0]["topic_outcome"]["request_key"]
    assert line["request"] == {
        "messages": [{"role": "user", "content": "Name the topic of: one"}],
        "max_tokens": 256,
        "temperature": 0,
    }


def test_a_bad_line_is_driven_into_a_corner(job: Job) -> None:
    """Its shard goes out again, then in halves, until it stands alone and fails; all other rows are answered once."""
    job.fake.container.poison = "row 5:"
    report = job.run()
    assert job.shards == [[4, 4, 2], [4], [2, 2], [1, 1]]
    assert report.outcomes == {"completed": 9, "failed": 1}
    (failed,) = (row for row in job.rows() if row["topic_outcome"]["status"] == "failed")
    assert failed["text"].startswith("row 5:")
    assert "failed alone in a transform job" in failed["topic_outcome"]["error"]
    assert "Bad HTTP status" in failed["topic_outcome"]["error"]
    assert job.keys("open/") == []


def test_a_bad_line_may_be_asked_in_real_time(job: Job) -> None:
    """When its shard has failed twice, its rows are left to the endpoint that is given."""
    job.fake.container.poison = "row 5:"
    report = job.run(real_time=job.real_time())
    assert job.shards == [[4, 4, 2], [4]]
    assert report.outcomes == {"completed": 9, "failed": 1}
    assert report.live == 3


def test_a_failed_row_is_sent_again_by_the_next_run(job: Job) -> None:
    """Nothing is held against it once an output is committed."""
    job.table = pa.table({"text": texts(1)})
    job.fake.container.poison = "row 0:"
    assert job.run().outcomes == {"failed": 1}
    job.fake.container.poison = None
    assert job.run().outcomes == {"completed": 1}
    job.check_complete()


def test_too_many_failures_commit_nothing_and_are_sent_again(job: Job) -> None:
    """As with any other endpoint."""
    job.table = pa.table({"text": texts(1)})
    job.fake.container.poison = "row 0:"
    with pytest.raises(TooManyFailuresError):
        job.run(options={"failures": FailurePolicy()})
    job.fake.container.poison = None
    job.run(options={"failures": FailurePolicy()})
    job.check_complete()


def test_rows_that_are_cut_go_out_again_under_a_higher_ceiling(job: Job) -> None:
    """In the next job; the last rung is what the context leaves, and then the row is truncated."""
    job.prompt = Ask(TEMPLATE, into="topic", max_tokens=4, escalate_to=64)
    job.run()
    assert job.shards == [[4, 4, 2]] * 2 + [[4, 4, 2]] * (len(job.shards) - 2)
    assert 2 <= len(job.shards) <= 3
    job.check_complete()
    ceiling = {note.partition(" ")[0] for row in job.rows() for note in row["topic_outcome"]["notes"]}
    assert ceiling == {"ceiling_raised"}


def test_a_users_cap_is_not_raised(job: Job) -> None:
    """What reaches it is truncated, in one job."""
    job.prompt = Ask(TEMPLATE, into="topic", max_tokens=4)
    assert job.run().outcomes == {"truncated": 10}
    assert len(job.shards) == 1


def test_a_text_that_is_too_long_is_not_sent(job: Job) -> None:
    """It fails with the reason, and its neighbours are answered."""
    job.table = pa.table({"text": [*texts(2), "word " * 100_000]})
    report = job.run()
    assert report.outcomes == {"completed": 2, "failed": 1}
    assert "too long" in job.rows()[2]["topic_outcome"]["error"]
    assert job.shards == [[2]]


def test_a_line_above_the_payload_is_not_sent(job: Job) -> None:
    """Nor does it fail a shard."""
    job.table = pa.table({"text": [*texts(2), "x" * (1 << 20)]})
    report = job.run(max_payload_mb=1, context_tokens=1 << 22)
    assert report.outcomes == {"completed": 2, "failed": 1}
    assert "max_payload_mb" in job.rows()[2]["topic_outcome"]["error"]


@pytest.mark.parametrize(
    "reason",
    [
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different instance.",
        "InternalServerError: We encountered an internal error. Please try again.",
        "AlgorithmError: Model container did not pass the ping health check.",
    ],
)
def test_a_failure_that_no_line_caused_halves_nothing(job: Job, reason: str) -> None:
    """Completed shards are kept, the others go out again as they were, under another name."""
    job.fake.fail_next_job(reason, after_objects=1)
    job.run()
    assert job.shards == [[4, 4, 2], [4, 2]]
    job.check_complete()
    assert job.fake.container.computed.total() == 10


def test_failures_that_go_on_end_the_run(job: Job) -> None:
    """After three jobs; the next run begins to count anew."""
    for _ in range(3):
        job.fake.fail_next_job("CapacityError: no capacity")
    with pytest.raises(EndpointError, match=r"3 jobs in a row.*CapacityError"):
        job.run()
    assert len(job.shards) == 3
    job.run()
    job.check_complete()


def test_a_failure_that_stays_ends_the_run_at_once(job: Job) -> None:
    """With its reason; what was answered before is kept."""
    job.fake.fail_next_job("ClientError: Access denied to model data", after_objects=2)
    with pytest.raises(EndpointError, match="not by its lines: ClientError: Access denied"):
        job.run()
    job.run()
    assert job.shards == [[4, 4, 2], [2]]


def test_a_job_without_any_output_is_not_halved_for_ever(job: Job) -> None:
    """When no shard of several was answered twice, somebody has to look at the logs."""
    job.fake.container.poison, job.table = "row", pa.table({"text": texts(12)})
    with pytest.raises(EndpointError, match=r"no shard .* was answered, for the second time"):
        job.run()
    assert job.shards == [[4, 4, 4], [4, 4, 4]]


def test_a_stopped_job_ends_the_run_and_starts_anew_next_time(job: Job) -> None:
    """Nothing of it is left, and its name is taken."""
    stopped: list[str] = []

    def control(operation: str, _number: int) -> None:
        if operation == "DescribeTransformJob" and job.fake.jobs.jobs and not stopped:
            (name,) = job.fake.jobs.jobs
            stopped.append(name)
            job.fake.jobs.stop({"TransformJobName": name})

    job.fake.pace.set(1)
    job.fake.control_script = control
    with pytest.raises(InterruptedRunError, match="was stopped"):
        job.run()
    job.fake.pace.set(None)
    job.run()
    assert len(job.shards) == 2
    job.check_complete()


@pytest.mark.parametrize("fault", ["throttled", "throttled_null", "internal", "unavailable"])
def test_describes_that_fail_are_tolerated(job: Job, fault: str) -> None:
    """A job whose state cannot be read is not a job that does not exist."""
    job.fake.control_script = lambda operation, number: (
        fault if operation == "DescribeTransformJob" and number in {1, 3, 4} else None
    )
    job.run()
    assert len(job.shards) == 1
    job.check_complete()


def test_an_answer_to_a_create_that_is_lost_makes_no_second_job(job: Job) -> None:
    """The job is looked for by its name before it is created again."""
    job.fake.control_script = lambda operation, number: (
        "lost" if operation == "CreateTransformJob" and number == 1 else None
    )
    job.run()
    assert len(job.fake.jobs.jobs) == 1
    job.check_complete()


@pytest.mark.parametrize(
    ("fault", "error"), [("access_denied", AuthenticationError), ("expired", AuthenticationError)]
)
def test_a_refused_create_says_what_to_do(job: Job, fault: str, error: type[Exception]) -> None:
    """Rights and credentials end the run."""
    job.fake.control_script = lambda operation, _number: fault if operation == "CreateTransformJob" else None
    with pytest.raises(error, match="aws sso login"):
        job.run()


def test_an_unknown_model_ends_the_run(job: Job) -> None:
    """By its name."""
    with pytest.raises(EndpointError, match=r"Could not find model.*check model_name"):
        job.run(model_name="unknown")


def test_a_used_up_quota_says_to_come_back(
    fake_factory: Callable[..., FakeSageMaker], s3_url: str, bucket: str, tmp_path: Path
) -> None:
    """And the next run goes on with the job that is written down."""
    fake = fake_factory(quota=0)
    job = Job(fake, s3_url, bucket, tmp_path)
    with pytest.raises(ComeBackLaterError, match="larger quota"):
        job.run()
    fake.jobs.quota = 1
    job.run()
    job.check_complete()
    assert len(fake.jobs.jobs) == 1


def test_another_machine_takes_a_running_job_up(job: Job) -> None:
    """With a store of its own: it finds the job in S3, and starts none."""
    job.fake.pace.set(1)
    with pytest.raises(InterruptedRunError):
        job.run(store="first", options={"progress": leaving()})
    assert len(job.fake.jobs.jobs) == 1
    job.fake.pace.set(None)
    job.run(store="second")
    assert len(job.fake.jobs.jobs) == 1
    assert job.fake.container.computed.total() == 10
    job.check_complete()


def test_a_job_with_other_rows_is_not_waited_for(job: Job) -> None:
    """Under the same prefix two runs go on side by side, and a row that both have is in one job only."""
    job.fake.pace.set(0)
    with pytest.raises(InterruptedRunError):
        job.run(options={"progress": leaving()})
    job.table = pa.table({"text": [*texts(12)[8:], "quite another"]})
    with pytest.raises(InterruptedRunError):
        job.run(sink="other", options={"progress": leaving()})
    assert job.shards == [[4, 4, 2], [3]]
    job.fake.pace.set(None)
    job.run(sink="other")
    job.check_complete("other")
    assert job.fake.container.computed.total() == 13


def test_the_same_rows_under_another_prefix_are_another_job(job: Job) -> None:
    """Names are an account's: a job that writes elsewhere is none of this run's."""
    job.run()
    job.run(sink="other", store="other", s3=f"s3://{job.bucket}/elsewhere")
    first, second = job.fake.jobs.jobs.values()
    assert (first.status, second.status) == ("Completed", "Completed")
    assert (len(first.written), len(second.written)) == (3, 3)
    job.check_complete("other")


def test_a_stop_leaves_the_job_running_and_says_so(job: Job) -> None:
    """With `stop_on_interrupt` it is stopped instead."""
    fillers: list[Any] = []
    job.fake.pace.set(0)

    def stop(_progress: object) -> None:
        if job.fake.jobs.jobs:
            fillers[-1].stop(grace=None)

    options = {"on_start": fillers.append, "progress": stop}
    with pytest.raises(InterruptedRunError, match="goes on"):
        job.run(options=options)
    (running,) = job.fake.jobs.jobs.values()
    assert running.status == "InProgress"
    with pytest.raises(InterruptedRunError, match="told to stop"):
        job.run(options=options, stop_on_interrupt=True)
    assert running.over.wait(30)
    assert running.status == "Stopped"


def test_a_stop_that_comes_too_late_does_not_say_that_nothing_is_stored(job: Job) -> None:
    """The job has ended while it was to be stopped: the same command takes in its answers, and pays for nothing."""
    fillers: list[Any] = []
    job.fake.pace.set(0)

    def stop(_progress: object) -> None:
        for running in job.fake.jobs.jobs.values():
            fillers[-1].stop(grace=None)
            job.fake.pace.set(None)
            assert running.over.wait(30)

    with pytest.raises(InterruptedRunError, match="not at work any more"):
        job.run(options={"on_start": fillers.append, "progress": stop}, stop_on_interrupt=True)
    job.run()
    job.check_complete()
    assert job.fake.container.computed.total() == 10


def test_an_output_that_breaks_off_is_read_again_and_counted_once(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken in before the break is stored, and is no second answer."""
    whole = Aws.open
    broken: list[str] = []

    def breaking(aws: Aws, name: str, **options: Any) -> Iterator[bytes] | None:
        pieces = whole(aws, name, **options)
        if pieces is None or "/output/" not in name or broken:
            return pieces
        broken.append(name)
        return breaks_off(pieces)

    def breaks_off(pieces: Iterator[bytes]) -> Iterator[bytes]:
        first, _, _ = b"".join(pieces).partition(b"\n")
        yield first + b"\n"
        raise PassingError("the connection was reset")

    monkeypatch.setattr(Aws, "open", breaking)
    monkeypatch.setattr("corpusmill.transform.collecting.GROUP", 1)
    fillers: list[Any] = []
    job.run(options={"on_start": fillers.append})
    assert broken
    assert fillers[0].filled.answers == 10
    job.check_complete()


def test_a_stop_that_does_not_get_through_is_no_fault_of_ours(job: Job) -> None:
    """Whoever interrupts is told that the job goes on, and does not wait for the service."""
    fillers: list[Any] = []
    job.fake.pace.set(0)
    job.fake.control_script = lambda operation, _: "throttled" if operation == "StopTransformJob" else None

    def stop(_progress: object) -> None:
        if job.fake.jobs.jobs:
            fillers[-1].stop(grace=None)

    with pytest.raises(InterruptedRunError, match=r"AWS did not answer .* goes on"):
        job.run(options={"on_start": fillers.append, "progress": stop}, stop_on_interrupt=True)


def test_real_time_and_transform_share_their_answers(job: Job) -> None:
    """One identity: what the endpoint has answered is in no job, and the other way round."""
    first = job.table.slice(0, 5)
    enrich(
        first,
        str(job.folder / "live"),
        PROMPT,
        endpoint=job.real_time(),
        store=f"sqlite:///{job.folder / 'store'}.db",
    )
    job.run()
    assert job.shards == [[4, 1]]
    assert job.fake.container.computed.total() == 10
    job.check_complete()


def test_rows_that_an_open_job_holds_are_not_asked_in_real_time(
    job: Job, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the endpoint says where jobs lie, such a row fails and says which job holds it; collected, it is found."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_url)
    job.fake.pace.set(0)
    with pytest.raises(JobsAtWorkError) as at_work:
        job.run(wait=False)
    (name,) = at_work.value.jobs
    job.table = pa.table({"text": texts(13)})
    endpoint = job.real_time(transform_s3=job.settings["s3"])
    store = f"sqlite:///{job.folder / 'store'}.db"
    live: dict[str, Any] = {"endpoint": endpoint, "store": store, "failures": FailurePolicy(max_failed=1.0)}
    report = enrich(job.table, str(job.folder / "live"), PROMPT, **live)
    assert (report.live, report.outcomes) == (3, {"completed": 3, "failed": 10})
    streamed = pa.Table.from_batches(enrich_batches(job.table.slice(0, 10), PROMPT, **live)).to_pylist()
    for row in [*job.rows("live")[:10], *streamed]:
        assert f"the transform job {name} holds this row" in row["topic_outcome"]["error"]
    job.fake.pace.set(None)
    job.table = job.table.slice(0, 10)
    job.run()
    job.table = pa.table({"text": texts(13)})
    report = enrich(job.table, str(job.folder / "live"), PROMPT, **live)
    assert (report.live, report.outcomes) == (0, {"completed": 13})
    assert job.fake.container.computed.total() == 13
    job.check_complete("live")


def test_shards_do_not_ask_what_an_open_job_holds_either(
    job: Job, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each shard looks for itself; collected, the rows are found, and shards with failed rows are done again."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_url)
    job.fake.pace.set(0)
    with pytest.raises(JobsAtWorkError) as at_work:
        job.run(wait=False)
    pq.write_table(pa.table({"text": texts(13)}), job.folder / "in.parquet")
    live = JobOfShards(
        source=SourceSpec(path=job.folder / "in.parquet"),
        sink=SinkSpec(path=str(job.folder / "live"), rows_per_part=6),
        prompts=(PROMPT,),
        endpoint=job.real_time(transform_s3=job.settings["s3"]),
        store=f"sqlite:///{job.folder / 'store'}.db",
    )
    shards = plan_shards(live, rows_per_shard=6).shards
    outcomes = [enrich_shard(live, shard).outcomes for shard in shards]
    assert outcomes == [{"failed": 6}, {"completed": 2, "failed": 4}, {"completed": 1}]
    with pytest.raises(TooManyFailuresError, match=r"10 of 13 rows failed .* 10 in_transform_job"):
        commit_shards(live, shards)
    assert at_work.value.jobs[0] in (job.folder / "live.failed.jsonl").read_text("utf-8")
    job.fake.pace.set(None)
    job.run()
    assert [enrich_shard(live, shard).live for shard in shards] == [0, 0, 1]
    assert commit_shards(live, shards).outcomes == {"completed": 13}
    assert job.fake.container.computed.total() == 13
    job.check_complete("live")


def test_shards_are_not_asked_by_transform_jobs(job: Job) -> None:
    """They are refused when they are planned, with what to do instead; nothing is created."""
    pq.write_table(job.table, job.folder / "in.parquet")
    whole = JobOfShards(
        source=SourceSpec(path=job.folder / "in.parquet"),
        sink=SinkSpec(path=str(job.folder / "out")),
        prompts=(PROMPT,),
        endpoint=job.endpoint(),
    )
    with pytest.raises(UsageError, match=r"run the whole job, in Airflow by TransformJobOperator, or give"):
        plan_shards(whole)
    with pytest.raises(UsageError, match="transform jobs take all rows"):
        enrich_shard(whole, Shard(index=0, count=1, start=0, stop=10, run_key="any"))
    assert job.fake.jobs.jobs == {}
    assert job.keys("") == []


@pytest.mark.parametrize("change", [-1, 0, 1])
def test_keys_that_are_damaged_end_the_run_and_say_which_they_are(job: Job, change: int) -> None:
    """Cut, gone or too many: what lies there is not taken for the keys of the job."""
    job.fake.pace.set(0)
    with pytest.raises(JobsAtWorkError) as at_work:
        job.run(wait=False)
    place = {"Bucket": job.bucket, "Key": f"corpus/jobs/{at_work.value.jobs[0]}/keys"}
    keys = job.fake._s3.get_object(**place)["Body"].read()
    job.fake._s3.delete_object(**place)
    if change:
        job.fake._s3.put_object(**place, Body=(keys + keys)[: len(keys) + change])
    damaged = r"/keys is missing or damaged; remove open/corpusmill-"
    with pytest.raises(StoreError, match=damaged):
        job.run(wait=False)
    with contextlib.closing(Aws(job.endpoint())) as aws:
        records = Records(aws)
        plan = records.plan(at_work.value.jobs[0])
        assert plan is not None
        if change == 1:
            assert [line.pack() for line in records.lines(plan, 2)] == [keys[-80:-40], keys[-40:]]
            return
        with pytest.raises(StoreError, match=damaged):
            records.lines(plan, 2)


def test_a_source_that_can_be_read_once_only_is_refused(job: Job) -> None:
    """And a stream of rows, which waits for each answer."""
    job.table = job.table.to_reader()
    with pytest.raises(UsageError, match="read twice"):
        job.run()
    with pytest.raises(UsageError, match="needs all rows"):
        next(iter(enrich_batches(pa.table({"text": ["a"]}), PROMPT, endpoint=job.endpoint())))


@pytest.mark.parametrize(
    "settings",
    [
        {"s3": "bucket/prefix"},
        {"instance_type": "g6"},
        {"model_name": "a/b"},
        {"instance_count": 0},
        {"max_payload_mb": 50, "max_concurrent_transforms": 3},
        {"invocation_timeout": 4_000},
        {"assemble_with": "None"},
        {"poll_seconds": 0},
        {"create": False},
    ],
)
def test_settings_that_no_job_would_take_are_refused(job: Job, settings: dict[str, Any]) -> None:
    """When the endpoint is described, by the name of the setting."""
    with pytest.raises(UsageError, match=next(iter(settings))):
        job.endpoint(**settings)


def test_a_refresh_sends_rows_again(job: Job) -> None:
    """All of them, or only those whose stored answer has a status."""
    job.prompt = Ask(TEMPLATE, into="topic", max_tokens=9)
    outcomes = job.run().outcomes
    assert outcomes == {"truncated": 10}
    job.run(options={"mode": "refresh", "refresh": ["completed"]})
    assert job.shards == [[4, 4, 2]]
    job.run(options={"mode": "refresh"})
    assert job.shards == [[4, 4, 2]] * 2
