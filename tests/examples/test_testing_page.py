"""What the page about tests shows is a file of tests that pytest runs, and what it names is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from corpusmill.testing.faults import KINDS
from corpusmill.testing.settings import CHANGEABLE
from corpusmill.testing.stats import Stats

if TYPE_CHECKING:
    from corpusmill.testing import FakeEndpoint

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def pytest_over(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest over a file of tests in an empty folder, as a user without a `conftest.py` would."""
    (folder / "test_page.py").write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_snippets_are_tests_that_pass(tmp_path: Path) -> None:
    """One after the other they make one file, in which each test passes and leaves the working directory alone."""
    done = pytest_over("".join(SNIPPETS), tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(re.findall('^def test_', PAGE, re.MULTILINE))} passed" in done.stdout
    assert not (tmp_path / ".corpusmill").exists()


def test_a_store_is_left_in_the_working_directory_without_one_of_its_own(tmp_path: Path) -> None:
    """That is what the page warns of."""
    without = re.sub(r"^ +store=.*\n", "", SNIPPETS[0], flags=re.MULTILINE)
    assert without != SNIPPETS[0]
    assert pytest_over(without, tmp_path).returncode == 0
    assert (tmp_path / ".corpusmill" / "store.db").exists()


@pytest.mark.parametrize("kind", ["401", "429", "cut_stream", "malformed_json", "reply"])
def test_the_faults_that_the_page_names_exist(kind: str) -> None:
    """They are kinds of fault, and the page names them."""
    assert kind in KINDS
    assert f"`{kind}`" in PAGE


def test_the_settings_that_the_page_shows_are_all_and_can_be_put(fake_endpoint: FakeEndpoint) -> None:
    """They are taken as they stand, at either address, and null takes the first three away."""
    (shown,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    example = json.loads(shown)
    assert tuple(example) == CHANGEABLE
    url = f"{fake_endpoint.base_url}/settings"
    taken = httpx.put(url, json=example).raise_for_status().json()
    assert taken["faults"]["shares"] == example["faults"]
    assert taken["latency"].items() >= example["latency"].items()
    assert taken["limits"].items() >= example["limits"].items()
    plain = {name: value for name, value in example.items() if name not in {"latency", "faults", "limits"}}
    assert taken.items() >= plain.items()
    nothing = httpx.put(url.replace("/v1", ""), json={"latency": None, "faults": None, "limits": None}).json()
    assert (nothing["latency"]["mean"], nothing["faults"]["shares"], nothing["limits"]) == (0, {}, None)


def test_the_counts_that_the_page_names_exist() -> None:
    """Each name in code of the section is a count or what gives them."""
    section = PAGE.partition("## What was asked")[2].partition("\n## ")[0]
    names = set(re.findall(r"`(\w+)`", section))
    assert len(names) == 9
    assert names <= set(Stats.__dataclass_fields__)
