"""The process that forks command lines, with boto3 and the descriptions of its services read already."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import corpusmill.cli.transform
import corpusmill.prompts.translate  # noqa: F401 - imported here so that no child has to
from corpusmill.endpoints.sagemaker import SageMakerTransform
from corpusmill.transform.aws import Aws

os.environ |= {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_EC2_METADATA_DISABLED": "true",
}
Aws(
    SageMakerTransform(
        model_name="any", model="any", region="eu-north-1", instance_type="ml.any", s3="s3://bucket/prefix"
    )
).close()
runpy.run_path(str(Path(__file__).parent.parent / "proof" / "warm.py"), run_name="__main__")
