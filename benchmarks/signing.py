"""The cost of signing: what Signature Version 4 adds to the client's work for one request to Amazon SageMaker."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.child import call, spent

if TYPE_CHECKING:
    from benchmarks.bench import Bench

URL = "https://runtime.sagemaker.eu-north-1.amazonaws.com/endpoints/tilde/invocations"
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "x-amzn-sagemaker-inference-id": "run-1",
}
SIZES = (500, 5_000, 500_000)
"""Bytes of the bodies that are signed: a sentence, a page, a long document."""

TIMES = 5_000
ROUNDS = 5


def sign(*, size: int, times: int) -> dict[str, Any]:
    """Sign a body so many times, and give the processor's microseconds for one."""
    from botocore.credentials import Credentials

    from corpusmill.chat.sigv4 import Signer

    signer = Signer(region="eu-north-1")
    credentials = Credentials("AKIDEXAMPLE", "secret", "token").get_frozen_credentials()
    body = b"x" * size
    figures: dict[str, Any] = {}
    signer.sign(credentials, method="POST", url=URL, headers=HEADERS, body=body)
    with spent(figures):
        for _ in range(times):
            signer.sign(credentials, method="POST", url=URL, headers=HEADERS, body=body)
    return {"cpu_us": figures["cpu"] / times * 1e6}


def measure(bench: Bench) -> dict[str, Any]:
    """Give microseconds of processor time a request by size of the body, medians of the rounds."""
    times, rounds = bench.size(TIMES, 500), bench.size(ROUNDS, 1)
    found = [
        [call("benchmarks.signing:sign", size=size, times=times)["cpu_us"] for _ in range(rounds)]
        for size in SIZES
    ]
    return {
        "body_bytes": list(SIZES),
        "requests": times,
        "rounds": rounds,
        "cpu_us_per_request": [statistics.median(each) for each in found],
    }
