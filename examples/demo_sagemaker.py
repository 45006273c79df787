"""The act of the demonstration that plays on Amazon SageMaker: a transform job by night, real time by day, one store.

Everything is local: a fake SageMaker and an S3 server on loopback. The corpus has a poisoned line, which the container
cannot stand: it costs its shard twice, then the shard is halved until the line stands alone. Then rows are added and
asked in real time, and the store makes each row paid for once. Run as `python examples/demo_sagemaker.py [folder]`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pydoc_data.topics
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    from corpusmill.testing.sagemaker import FakeSageMaker

COMMAND = [sys.executable, "-m", "corpusmill"]
WIDTH = 100
ROWS = 60
POISON = "POISON"

JOB = """\
source: {folder}/{source}.parquet
sink: {folder}/{sink}
prompts:
  - translate: {{column: text, into: text_lv, from: en, to: lv}}
endpoint:
{endpoint}
store: sqlite:///{folder}/store.db
"""

TRANSFORM = """\
  sagemaker_transform:
    model_name: tildeopen-30b-64k       # SageMaker's name of the model
    model: tildeopen-30b-64k            # which model it is: real time and jobs share their answers by it
    region: eu-north-1
    instance_type: ml.g6.48xlarge
    s3: s3://demo/nightly
    shard_rows: 20
    poll_seconds: 0.2                   # 30 by default
    endpoint_url: {sagemaker}           # leave these two out for AWS
    s3_endpoint_url: {s3}
"""

REAL_TIME = """\
  sagemaker:
    endpoint_name: tilde
    model: tildeopen-30b-64k
    region: eu-north-1
    stream: true
    endpoint_url: {sagemaker}
"""


def say(text: str) -> None:
    """Print a paragraph, wrapped."""
    print(textwrap.fill(text, WIDTH), flush=True)


def command(*arguments: str) -> dict[str, Any]:
    """Show a command, run it, and give the report that it prints."""
    print(f"\n$ corpusmill {' '.join(arguments)}", flush=True)
    ended = subprocess.run([*COMMAND, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


@contextlib.contextmanager
def amazon() -> Iterator[tuple[FakeSageMaker, str]]:
    """Run a fake SageMaker and an S3 server with a bucket, and let this process's children find the credentials."""
    from corpusmill.testing.sagemaker import FakeSageMaker, s3_server
    from corpusmill.testing.sagemaker.server import KEY

    os.environ |= {
        "AWS_ACCESS_KEY_ID": KEY.key,
        "AWS_SECRET_ACCESS_KEY": KEY.secret,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    with s3_server("demo") as (s3, s3_url), FakeSageMaker(s3=s3) as fake:
        fake.container.poison = POISON
        yield fake, s3_url


def build_corpora(folder: Path) -> None:
    """Write the corpus of the night, and that of the next day, which has as many rows again."""
    texts = list(
        dict.fromkeys(text for topic in pydoc_data.topics.topics.values() for text in topic.split("\n\n"))
    )
    night = [text for text in texts if text.strip()][:ROWS]
    night[33] += f" {POISON}"
    day = [text for text in texts if text.strip()][: 2 * ROWS]
    pq.write_table(pa.table({"text": night}), folder / "night.parquet")
    pq.write_table(pa.table({"text": day}), folder / "day.parquet")


def act(folder: Path) -> None:
    """Play the act, in a folder of its own within this one."""
    if not all(importlib.util.find_spec(name) for name in ("boto3", "moto")):
        print(
            "boto3 or moto is not installed here: pip install 'corpusmill[sagemaker,testing]' moto[s3,server]"
        )
        return
    folder = folder / "sagemaker"
    folder.mkdir(parents=True, exist_ok=True)
    build_corpora(folder)
    with amazon() as (fake, s3):
        places = {"sagemaker": fake.url, "s3": s3}
        jobs = {}
        for name, endpoint in (("night", TRANSFORM), ("day", REAL_TIME)):
            jobs[name] = folder / f"{name}.yaml"
            text = JOB.format(
                folder=folder, source=name, sink=name, endpoint=endpoint.format(**places).rstrip()
            )
            jobs[name].write_text(text, "utf-8")
        print(jobs["night"].read_text("utf-8"))
        report = command("run", str(jobs["night"]))
        say(
            f"{report['rows']} rows by {len(fake.jobs.jobs)} transform jobs: {report['outcomes']['completed']} are "
            f"answered, and {report['outcomes']['failed']} failed, the one that the container cannot stand. Its shard "
            "of 20 went out again, then in halves, until the line stood alone; all other shards were taken from the "
            f"first job. The container computed {fake.container.computed.total()} answers."
        )
        before = fake.container.computed.total()
        report = command("run", str(jobs["day"]))
        say(
            f"The next day has {report['rows']} rows, and they are asked in real time, as streams: {report['cached']} "
            f"answers are the transform job's, from the store, and {report['live']} were asked now. The container "
            f"computed {fake.container.computed.total() - before} more."
        )
        say(
            "A row that was in the store was not sent again. What was computed twice lay in the shard with the "
            "poisoned line: the service keeps nothing of an object that failed."
        )


def main(folder: Path) -> None:
    """Make the folder anew, and play."""
    shutil.rmtree(folder, ignore_errors=True)
    act(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output-sagemaker"))
