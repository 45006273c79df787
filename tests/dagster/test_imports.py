"""What is loaded by those who only look: the registry's module is light."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import corpusmill.dagster
print([name for name in ("pyarrow", "httpx", "pyreqwest", "sqlite3.dbapi2") if name in sys.modules])
"""


def test_the_registry_module_loads_neither_arrow_nor_http() -> None:
    """`dg` loads the module for every command; Arrow and the HTTP library come with the first job."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True
    )
    assert ran.stdout.strip() == "[]"
    assert "corpusmill" not in ran.stderr
