"""`python -m corpusmill.testing.sagemaker`: the fake and an S3 server beside it, until Ctrl-C.

The S3 server is moto's (`pip install 'moto[s3,server]'`). What is printed is what clients need: the variables of AWS's
tools, and a connection of Airflow's.
"""

from __future__ import annotations

import json
import signal
import threading

import click

from corpusmill.testing.sagemaker.s3 import s3_server
from corpusmill.testing.sagemaker.server import KEY, REGION, FakeSageMaker


@click.command()
@click.option("--port", default=8001, type=click.IntRange(0, 65_535), help="Port of SageMaker.")
@click.option("--s3-port", default=8002, type=click.IntRange(0, 65_535), help="Port of S3.")
@click.option("--bucket", default="corpus", help="A bucket to make.")
@click.option("--object-seconds", default=0.0, help="How long a transform job takes over each object.")
def main(port: int, s3_port: int, bucket: str, object_seconds: float) -> None:
    """Run Amazon SageMaker and S3 on loopback."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with (
        s3_server(bucket, port=s3_port) as (s3, s3_url),
        FakeSageMaker(s3=s3, port=port, object_seconds=object_seconds) as fake,
    ):
        connection = {
            "conn_type": "aws",
            "login": KEY.key,
            "password": KEY.secret,
            "extra": {
                "region_name": REGION,
                "endpoint_url": fake.url,
                "service_config": {"s3": {"endpoint_url": s3_url}},
            },
        }
        click.echo(f"export AWS_ACCESS_KEY_ID={KEY.key} AWS_SECRET_ACCESS_KEY='{KEY.secret}'")
        click.echo(f"export AIRFLOW_CONN_AWS_DEFAULT='{json.dumps(connection)}'")
        click.echo(f"# SageMaker at {fake.url}, S3 at {s3_url} with the bucket {bucket}")
        stop.wait()


if __name__ == "__main__":
    main()
