"""The audit of the dependencies fails for a vulnerability, and for nothing that is not one's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

AUDIT = Path(__file__).parents[1] / ".ci" / "audit"


@pytest.mark.parametrize(
    ("said", "code", "ends", "skipped"),
    [
        ("Found no known vulnerabilities", 0, 0, False),
        ("Found 1 known vulnerability", 1, 1, False),
        ("error: Request failed after 3 retries", 2, 0, True),
        ("error: Auditing requires network access", 2, 0, True),
        ("error: Failed to parse `uv.lock`", 2, 2, False),
    ],
)
def test_an_audit_fails_for_what_it_found_and_not_where_nobody_can_be_asked(
    tmp_path: Path, said: str, code: int, ends: int, *, skipped: bool
) -> None:
    """What uv says is passed on, and a skip is said plainly."""
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n", "utf-8")
    uv.chmod(0o755)
    done = subprocess.run(
        [AUDIT], env={**os.environ, "UV": str(uv)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == ends
    assert said in done.stdout
    assert ("SKIPPED" in done.stdout) == skipped
