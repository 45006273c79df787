"""Memory of a transform job: rows are submitted and collected, and the peak of the process is compared with a tenth.

Run as `python benchmarks/transform.py [--rows 500000] [--short]`. The fake SageMaker and an S3 server (moto) run in a
process of their own, so that what they hold is not counted. For a tenth of the rows and for all of them it submits,
waits for the end of the job, collects, and runs what is then left to do, each by a command of its own; it prints the
seconds and the peak of resident memory of each, and fails when a peak grows with the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MOST_GROWTH = 48 << 20
"""Bytes by which a peak may grow from a tenth of the rows to all: what tells keys apart takes some dozens of each."""

COMMAND = [sys.executable, "-m", "corpusmill"]
STEPS = ("transform submit", "transform collect", "run --quiet")

SERVER = """
import boto3, logging, sys, time
from botocore.config import Config
from moto.server import ThreadedMotoServer
from corpusmill.testing.sagemaker import FakeSageMaker

logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
s3_server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
s3_server.start()
url = "http://%s:%s" % s3_server.get_host_and_port()
s3 = boto3.client("s3", endpoint_url=url, region_name="eu-north-1", config=Config(s3={"addressing_style": "path"}))
s3.create_bucket(Bucket="bench", CreateBucketConfiguration={"LocationConstraint": "eu-north-1"})
with FakeSageMaker(s3=s3) as fake:
    print(fake.url, url, flush=True)
    sys.stdin.read()
"""


def main() -> int:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--short", action="store_true", help="a hundredth of the rows")
    options = parser.parse_args()
    rows = options.rows // 100 if options.short else options.rows
    from corpusmill.testing.sagemaker.server import KEY

    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEY.key,
        "AWS_SECRET_ACCESS_KEY": KEY.secret,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        urls = server.stdout.readline().split()
        few, many = (measure(count, urls, environment) for count in (rows // 10, rows))
    finally:
        server.stdin.close()
        server.wait()
    for step, before, after in zip(STEPS, few, many, strict=True):
        print(f"the peak of {step} grew by {(after - before) / 2**20:.0f} MiB for ten times the rows")
    return 0 if all(after - before < MOST_GROWTH for before, after in zip(few, many, strict=True)) else 1


def measure(rows: int, urls: list[str], environment: dict[str, str]) -> list[int]:
    """Take a job over so many rows through the steps, and give their peaks of resident memory in bytes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schema = pa.schema([("text", pa.string())])
        with pq.ParquetWriter(folder / "in.parquet", schema) as writer:
            for start in range(0, rows, 50_000):
                texts = [
                    f"Row {row} of {rows} tells of cakes, of pies and of what else there is to be eaten. " * 3
                    for row in range(start, min(rows, start + 50_000))
                ]
                writer.write_table(pa.table({"text": texts}))
        job = {
            "source": str(folder / "in.parquet"),
            "sink": str(folder / "out"),
            "prompts": [{"ask": {"template": "Name the topic of: {text}", "into": "topic"}}],
            "endpoint": {
                "sagemaker_transform": {
                    "model_name": "tildeopen-30b-64k",
                    "model": "tildeopen-30b-64k",
                    "region": "eu-north-1",
                    "instance_type": "ml.g6.48xlarge",
                    "s3": f"s3://bench/{rows}",
                    "endpoint_url": urls[0],
                    "s3_endpoint_url": urls[1],
                    "poll_seconds": 2,
                }
            },
            "store": f"sqlite:///{folder}/store.db",
        }
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        peaks = []
        for step in STEPS:
            peaks.append(peak_of([*COMMAND, *step.split(), str(folder / "job.json")], rows, environment))
            while not _ended(folder / "job.json", environment):
                time.sleep(1.0)
        return peaks


def peak_of(command: list[str], rows: int, environment: dict[str, str]) -> int:
    """Run a command and give its peak of resident memory in bytes."""
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    peak = usage.ru_maxrss * 1024
    step, seconds = " ".join(command[3:-1]), time.monotonic() - begun
    print(f"{rows:>9,} rows, {step:18}: {seconds:6.1f} s, peak {peak / 2**20:.0f} MiB", flush=True)
    return peak


def _ended(job: Path, environment: dict[str, str]) -> bool:
    """Tell whether no job is at work."""
    command = [*COMMAND, "transform", "status", str(job), "--json"]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return all(state["status"] in {"Completed", "Failed", "Stopped"} for state in json.loads(told))


if __name__ == "__main__":
    raise SystemExit(main())
