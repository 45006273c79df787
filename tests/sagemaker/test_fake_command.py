"""The fake SageMaker in a process of its own."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from typing import Any

import boto3


def test_the_command_prints_all_that_a_client_needs_and_ends_when_it_is_told_to() -> None:
    """Variables for AWS's tools and a connection for Airflow, which lead to both services; SIGINT ends it in order."""
    command = [sys.executable, "-m", "corpusmill.testing.sagemaker", "--port", "0", "--s3-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        printed = [shlex.split(child.stdout.readline()) for _ in range(2)]
        variables = dict(word.split("=", 1) for line in printed for word in line[1:])
        connection = json.loads(variables["AIRFLOW_CONN_AWS_DEFAULT"])
        extra = connection["extra"]
        keys: dict[str, Any] = {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
            "region_name": extra["region_name"],
        }
        assert (connection["login"], connection["password"]) == tuple(keys.values())[:2]
        sagemaker = boto3.client("sagemaker", endpoint_url=extra["endpoint_url"], **keys)
        s3 = boto3.client("s3", endpoint_url=extra["service_config"]["s3"]["endpoint_url"], **keys)
        assert sagemaker.list_transform_jobs()["TransformJobSummaries"] == []
        assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["corpus"]
        sagemaker.close()
        s3.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
