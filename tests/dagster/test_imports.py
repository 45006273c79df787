"""What is loaded by those who only look: the registry's module is light."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import corpusmill.dagster
print([name for name in ("pyarrow", "httpx", "pyreqwest", "sqlite3.dbapi2", "boto3") if name in sys.modules])
corpusmill.dagster.transform_assets(
    "translated",
    {
        "source": "corpus.parquet",
        "sink": "translated",
        "prompts": [{"translate": {"column": "text", "into": "text_lv", "to": "lv"}}],
        "endpoint": {"sagemaker_transform": {
            "model_name": "any", "model": "any", "region": "eu-north-1", "instance_type": "ml.any", "s3": "s3://any/any"
        }},
    },
)
print([name for name in ("boto3", "botocore", "corpusmill.transform", "corpusmill.run") if name in sys.modules])
"""


def test_the_registry_module_loads_neither_arrow_nor_http() -> None:
    """`dg` loads the module for every command; Arrow and HTTP come with the first job, AWS with its first run."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True
    )
    assert ran.stdout.splitlines() == ["[]", "[]"]
    assert "corpusmill" not in ran.stderr
