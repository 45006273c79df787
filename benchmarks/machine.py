"""Where and with what something was measured."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from benchmarks.child import ROOT

PACKAGES = ("corpusmill", "pyarrow", "httpx", "httptools", "msgspec", "openai")


def machine() -> dict[str, Any]:
    """Describe the machine; nothing in it names it."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Name the versions of what takes part and is installed."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version} | _nginx()
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def stamp() -> dict[str, Any]:
    """Say when and at which commit; `load` is how many processes wanted a core in the last minute, before we began."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "benchmarks")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commit": _git("rev-parse", "--short=12", "HEAD") + (" and changes" if changed else ""),
        "load": round(os.getloadavg()[0], 2),
    }


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or ("unknown" if arguments[0] == "rev-parse" else "")


def _nginx() -> dict[str, str]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        return {}
    found = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    return {"nginx": found.stderr.strip().rpartition("/")[2]}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
