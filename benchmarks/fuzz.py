"""Look for bytes that break the parsers of streams, guided by the code that they reach.

    make fuzz
    python benchmarks/fuzz.py --seconds 600 sse

Needs atheris, which `make fuzz` installs beside the environment. What has to hold of any bytes is in
`tests/chat/fuzzing.py`. With `--keep` the bytes that reach new places are written to the corpora in `tests`, from which
the tests replay them; bytes that break something are printed and end the search.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

LONGEST = 4_096
"""Bytes of one input."""


def main() -> None:
    """Search in a child for each parser, and keep what it found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parsers", nargs="*", default=["sse", "eventstream"], help="sse, eventstream")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--keep", action="store_true", help="write what was found to the corpora in tests")
    options = parser.parse_args()
    for name in options.parsers:
        _search(name, options.seconds, keep_found=options.keep)


def _search(name: str, seconds: int, *, keep_found: bool) -> None:
    from tests.chat.fuzzing import keep, kept

    with tempfile.TemporaryDirectory() as home:
        found, least = Path(home, "found"), Path(home, "least")
        found.mkdir()
        least.mkdir()
        before = [*kept(name), *_seeds(name)]
        for number, data in enumerate(before):
            (found / str(number)).write_bytes(data)
        # The search starts its own like again by this name when it merges.
        itself = Path(home, "search")
        itself.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" --child "{name}" "$0" "$@"\n', "utf-8"
        )
        itself.chmod(0o755)
        _run(itself, f"-max_total_time={seconds}", f"-artifact_prefix={home}/", str(found))
        _run(itself, "-merge=1", str(least), str(found))
        reached = [path.read_bytes() for path in least.iterdir()]
        new = len(set(reached) - set(before))
        print(f"{name}: {seconds} s, {len(reached)} inputs reach all that was reached, {new} of them are new")
        if keep_found:
            keep(name, reached)


def _seeds(name: str) -> list[bytes]:
    """Give what real streams look like, cut and whole."""
    from corpusmill.testing.sagemaker import frames

    chunks = [
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
        for text in ("ž\u2028", "two")
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    events = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in [*chunks, end])
    streams = [
        events + b"data: [DONE]\n\n",
        b"\xef\xbb\xbf: hello\r\n\r\nevent: m\r\nid: 7\r\ndata:" + json.dumps(end).encode() + b"\r\n\r\n",
        b'error: {"code": 500}\n\n{"bare": [1]}\n[2]\rdata: 1\ndata: 2\n\n',
        b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}',
        b"event: response.completed\ndata: {}\n\nretry: 5\ndata",
        b"<html>no</html>",
    ]
    if name == "eventstream":
        exception = json.dumps({"ErrorCode": "StreamBroken", "Message": "gone"}).encode()
        streams = [
            *(frames.payload_part(stream) for stream in streams),
            b"".join(frames.payload_part(piece) for piece in frames.cut(events, [30])),
            frames.exception("ModelStreamError", exception),
            frames.error("InternalError", "no luck") + frames.unknown_event(),
            frames.oversized_prelude(),
            *streams[:1],
        ]
    return [bytes([size]) + stream for stream in streams for size in (2, 40)]


def _run(search: Path, *options: str) -> None:
    command = [str(search), f"-max_len={LONGEST}", "-timeout=20", "-verbosity=0"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the search has broken something\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def child(name: str, itself: str, *options: str) -> None:
    """Be the process that searches, started by the script `itself`: what is imported here is watched."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(
        include=["corpusmill.chat", "corpusmill.exchange", "botocore.eventstream"]
    ):
        from tests.chat.fuzzing import CHECKS

        importlib.import_module("botocore.eventstream")
    atheris.Setup([itself, *options], CHECKS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
