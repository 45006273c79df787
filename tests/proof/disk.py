"""Disks that are full from a certain point on, and folders that nobody may write, in a forked child.

A disk is full in one of two ways: a small file system is filled up, or the process may no longer let any file grow,
which works wherever there is a quota and needs no right to mount anything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tests.proof.warm import Ended, Warm

FULL_AT = """
import importlib, itertools, json, resource, sys
import corpusmill
from corpusmill.enrich_job import enrich_job
job, point, ballast = sys.argv[1:]
wanted, _, nth = point.partition(":")
passes = itertools.count(1)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)

def reach(name):
    if name != wanted or next(passes) != int(nth or 1):
        return
    if not ballast:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        return
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

for module in ("run", "store.sqlite", "tables.commit", "tables.parts"):
    importlib.import_module(f"corpusmill.{module}").reach = reach
for module in ("asking", "engine", "outputs"):
    importlib.import_module(f"corpusmill.engine.{module}").reach = reach
try:
    report = enrich_job(corpusmill.load_job(job))
    found = {"report": report.as_dict()}
except corpusmill.CorpusmillError as error:
    found = {"error": type(error).__name__, "message": str(error), "code": error.exit_code}
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(json.dumps(found, default=str))
"""

WITHOUT_PRIVILEGE = """
import ctypes, os, sys
from corpusmill.cli.main import main

class Head(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

class Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]

if os.geteuid() == 0:
    head, sets = Head(0x20080522, 0), (Sets * 2)()
    library = ctypes.CDLL(None, use_errno=True)
    assert library.capget(ctypes.byref(head), ctypes.byref(sets)) == 0, os.strerror(ctypes.get_errno())
    for name in ("effective", "permitted"):
        # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: from here on modes mean something to the super-user, too.
        setattr(sets[0], name, getattr(sets[0], name) & ~0b110)
    assert library.capset(ctypes.byref(head), ctypes.byref(sets)) == 0, os.strerror(ctypes.get_errno())
code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


def run_until_full(warm: Warm, job: str, point: str, *, ballast: Path | None) -> dict[str, Any]:
    """Run a job on a disk that is full once it has reached a named point; give its report or its error.

    `ballast` is a file that fills its file system; without one no file may grow any more.
    """
    ended = warm.execute(FULL_AT, job, point, "" if ballast is None else str(ballast))
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def run_without_privilege(warm: Warm, *arguments: str) -> Ended:
    """Run the command line as somebody for whom the modes of files hold, though it be the super-user."""
    return warm.execute(WITHOUT_PRIVILEGE, *arguments)
