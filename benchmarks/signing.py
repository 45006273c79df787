"""The cost of signing: microseconds that Signature Version 4 takes for one request, on one core.

Run as `python benchmarks/signing.py`. The whole client path takes about 100 to 200 microseconds a request without it.
"""

from __future__ import annotations

import time

from corpusmill.chat.sigv4 import Signer

URL = "https://runtime.sagemaker.eu-north-1.amazonaws.com/endpoints/tilde/invocations"
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "x-amzn-sagemaker-inference-id": "run-1",
}
TIMES = 5_000


def main() -> None:
    """Measure bodies of three sizes."""
    from botocore.credentials import Credentials

    signer = Signer(region="eu-north-1")
    credentials = Credentials("AKIDEXAMPLE", "secret", "token").get_frozen_credentials()
    for size in (500, 5_000, 500_000):
        body = b"x" * size
        signer.sign(credentials, method="POST", url=URL, headers=HEADERS, body=body)
        begun = time.process_time()
        for _ in range(TIMES):
            signer.sign(credentials, method="POST", url=URL, headers=HEADERS, body=body)
        spent = (time.process_time() - begun) / TIMES
        print(f"{size:>8,} bytes: {spent * 1e6:6.0f} µs a request")


if __name__ == "__main__":
    main()
