"""An environment for each peer, built from its pinned requirements at its first use.

They lie in `.peers/` beside `.venv`, are built again when the requirements change, and hold nothing of ours: a peer's
own code runs there with `benchmarks` on its path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.child import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = ROOT / ".peers"
REQUIREMENTS = Path(__file__).parent


class PeerError(Exception):
    """A peer could not be installed or did not do the whole job; the text says why."""


def python_of(peer: str) -> str:
    """Give the interpreter of a peer's environment, which is built if need be. Raises `PeerError` when it cannot be."""
    wanted = REQUIREMENTS / f"{peer}.txt"
    place = FOLDER / peer
    python = place / "bin" / "python"
    ready = place / ".ready"
    if ready.exists() and ready.read_text("utf-8") == wanted.read_text("utf-8"):
        return str(python)
    shutil.rmtree(place, ignore_errors=True)
    uv = _uv()
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(place)],
        [uv, "pip", "install", "--quiet", "--python", str(python), "--requirements", str(wanted)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise PeerError(f"{peer} cannot be installed: {last_line(done.stderr)}")
    ready.write_text(wanted.read_text("utf-8"), "utf-8")
    return str(python)


def versions_of(peer: str) -> dict[str, str]:
    """Name the versions of what was asked for, without what that brings along."""
    lines = (REQUIREMENTS / f"{peer}.txt").read_text("utf-8").splitlines()
    asked = lines[0].partition('"')[2].partition('"')[0].split()
    names = {item.partition("=")[0].partition("[")[0] for item in asked} | {"openai"}
    pinned = (line.partition(" ")[0].partition("==") for line in lines if "==" in line and line[0] != "#")
    return {name: version for name, _, version in pinned if name in names}


def versions_of_all(peers: Iterable[str]) -> dict[str, str]:
    """Name the versions of several peers; what two of them have in different versions is named with the second peer."""
    found: dict[str, str] = {}
    for peer in peers:
        for name, version in versions_of(peer).items():
            found[name if found.get(name, version) == version else f"{name} under {peer}"] = version
    return found


def last_line(text: str) -> str:
    """Give what an error came to: the last line that says something."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return said[-1][:300] if said else "it said nothing"


def _uv() -> str:
    own = ROOT / ".uv" / "bin" / "uv"
    found = str(own) if own.exists() else shutil.which("uv")
    if found is None:
        raise PeerError("peers' environments are built with uv: run `make` once, or install uv")
    return found
