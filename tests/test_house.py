"""What holds of the package as a whole: its names, what importing it costs, what a wheel of it contains."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import corpusmill

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "corpusmill"

SENTENCES = {
    "__init__",
    "__main__",
    "ending",
    "enrich_job",
    "estimate",
    "explain",
    "plan",
    "run",
    "running",
    "shards",
}
WORDS = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem not in SENTENCES)
"""The flat modules that everything else may import, and that import nothing else of ours."""

HEAVY = {"airflow", "boto3", "botocore", "dagster", "pandas", "pyarrow", "psycopg", "starlette", "uvicorn"}

LEAVES = (
    "corpusmill.airflow",
    "corpusmill.dagster",
    "corpusmill.endpoints.sagemaker",
    "corpusmill.lineage.openlineage",
    "corpusmill.store.postgres",
    "corpusmill.testing",
)
"""The modules that may need an extra."""


def imported_after(statement: str) -> set[str]:
    """The top-level packages that a fresh Python has loaded after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in child.stdout.split()}


def test_public_names_are_complete_and_sorted() -> None:
    """`__all__` holds every public name of the package that is no module, in the order that ruff keeps."""
    declared: list[str] = list(getattr(corpusmill, "__all__", ()))
    defined = {
        name
        for name, value in vars(corpusmill).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert defined - {"TYPE_CHECKING", "annotations"} <= set(declared)
    assert [name for name in declared if not hasattr(corpusmill, name)] == []
    assert declared == sorted(
        set(declared), key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import corpusmill` loads neither an orchestrator nor boto3 nor pyarrow, whatever is installed."""
    loaded = imported_after("import corpusmill")
    assert "corpusmill" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("word", WORDS)
def test_words_import_the_standard_library_only(word: str) -> None:
    """Of what is not ours the words import the standard library, and pyarrow or msgspec for a type."""
    allowed = {*sys.stdlib_module_names, "corpusmill", "pyarrow", "msgspec"}
    for node in ast.walk(ast.parse((PACKAGE / f"{word}.py").read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                imported = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                imported = [module]
            case _:
                continue
        assert {name.partition(".")[0] for name in imported} <= allowed


def distributions_of_the_core() -> set[str]:
    """The distributions that installing `corpusmill` without any extra brings, by their normalised names."""
    found: set[str] = set()
    open_ends = ["corpusmill"]
    while open_ends:
        name = canonicalize_name(open_ends.pop())
        if name in found:
            continue
        found.add(name)
        requirements = map(Requirement, metadata.requires(name) or ())
        open_ends += [
            requirement.name
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return found


IMPORT_ALL_WITHOUT = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for module in MODULES:
    importlib.import_module(module)
"""


def test_the_core_needs_no_extra() -> None:
    """Every module but the leaves can be imported where only the dependencies of the core are installed."""
    paths = (path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    modules = sorted(name for name in names if not name.startswith(LEAVES) and not name.endswith("__main__"))
    core = distributions_of_the_core()
    absent = {
        name
        for name, owners in metadata.packages_distributions().items()
        if not core.intersection(map(canonicalize_name, owners))
    }
    assert {"boto3", "pytest"} <= absent
    assert absent.isdisjoint({"corpusmill", "httpx", "pyarrow"})
    script = f"ABSENT = {absent!r}\nMODULES = {modules!r}\n{IMPORT_ALL_WITHOUT}"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert child.stderr == ""
    assert child.returncode == 0


def test_a_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    """A wheel builds and holds every file of the package, `py.typed` too, and the licence, and no more."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("corpusmill-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    ours = {name for name in packed if name.startswith("corpusmill/")}
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert ours == {path.relative_to(PACKAGE.parent).as_posix() for path in files}
    assert "corpusmill/py.typed" in ours
    assert {name.partition("/")[2] for name in packed - ours} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
