"""`python -m corpusmill.testing.sagemaker`: the fake and an S3 server beside it, until Ctrl-C.

The S3 server is moto's (`pip install 'moto[s3,server]'`). What is printed is what clients need: the variables of AWS's
tools, and a connection of Airflow's.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from typing import Any

import click

from corpusmill.testing.sagemaker.server import KEY, REGION, FakeSageMaker


@click.command()
@click.option("--port", default=8001, type=click.IntRange(0, 65_535), help="Port of SageMaker.")
@click.option("--s3-port", default=8002, type=click.IntRange(0, 65_535), help="Port of S3.")
@click.option("--bucket", default="corpus", help="A bucket to make.")
@click.option("--object-seconds", default=0.0, help="How long a transform job takes over each object.")
def main(port: int, s3_port: int, bucket: str, object_seconds: float) -> None:
    """Run Amazon SageMaker and S3 on loopback."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=s3_port, verbose=False)
    server.start()
    host, found = server.get_host_and_port()
    s3_url = f"http://{host}:{found}"
    s3: Any = boto3.client(
        "s3",
        endpoint_url=s3_url,
        region_name=REGION,
        aws_access_key_id=KEY.key,
        aws_secret_access_key=KEY.secret,
    )
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with FakeSageMaker(s3=s3, port=port, object_seconds=object_seconds) as fake:
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
    s3.close()
    server.stop()


if __name__ == "__main__":
    main()
