"""Amazon SageMaker and S3 without an account: the fake ones, in a process of their own that outlives the runs.

A transform job goes on after the run that has submitted it, so that its service cannot be part of a run. The process
is started by whoever first needs it, and ends by itself when it has not been asked for a quarter of an hour. What it
holds is then gone, and the next submission begins anew.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

BUCKET = "corpus"
IDLE_SECONDS = 900.0
START_SECONDS = 60.0


def addresses(folder: Path) -> tuple[str, str]:
    """Give where SageMaker and S3 answer, of the process that has noted itself in a folder; start it if none does."""
    folder.mkdir(parents=True, exist_ok=True)
    note, starting = folder / "amazon.json", folder / "amazon.starting"
    if found := _answering(note):
        return found
    try:
        starting.touch(exist_ok=False)
    except FileExistsError:
        pass  # somebody else starts it
    else:
        subprocess.run([sys.executable, __file__, "start", str(note)], check=True)  # noqa: S603 - it is this file
    until = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < until:
            if found := _answering(note):
                return found
            time.sleep(0.1)
    finally:
        starting.unlink(missing_ok=True)
    message = f"the fake SageMaker has not started; see {note.with_suffix('.log')}"
    raise RuntimeError(message)


def _answering(note: Path) -> tuple[str, str] | None:
    import httpx

    try:
        noted = json.loads(note.read_text("utf-8"))
        httpx.get(f"{noted['sagemaker']}/ping", timeout=5.0, trust_env=False).raise_for_status()
    except (OSError, httpx.HTTPError):
        return None
    return noted["sagemaker"], noted["s3"]


def start(note: Path) -> None:
    """Start the process and leave it alone."""
    with note.with_suffix(".log").open("ab") as log:
        subprocess.Popen(  # noqa: S603 - it is this file
            [sys.executable, __file__, "serve", str(note)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    os._exit(0)  # nobody waits for it


def serve(note: Path) -> None:
    """Serve until nobody has asked for a while."""
    from corpusmill.testing.sagemaker import FakeSageMaker, s3_server

    with s3_server(BUCKET) as (s3, s3_url), FakeSageMaker(s3=s3, object_seconds=0.5) as fake:
        written = note.with_suffix(".written")
        written.write_text(json.dumps({"sagemaker": fake.url, "s3": s3_url, "pid": os.getpid()}), "utf-8")
        written.replace(note)
        asked = -1
        while asked != len(fake.operations):
            asked = len(fake.operations)
            time.sleep(IDLE_SECONDS)
    note.unlink(missing_ok=True)


if __name__ == "__main__":
    {"start": start, "serve": serve}[sys.argv[1]](Path(sys.argv[2]))
