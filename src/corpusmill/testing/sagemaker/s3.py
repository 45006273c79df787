"""An S3 server on loopback, which is moto's (`pip install 'moto[s3,server]'`): where transform jobs read and write."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from corpusmill.testing.sagemaker.server import KEY, REGION

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def s3_server(bucket: str, *, port: int = 0) -> Iterator[tuple[Any, str]]:
    """Run an S3 server with one empty bucket; give a client of boto3, with the fake's key, and the server's URL.

    `port` is the one to listen at; 0 for one that is free. What lies in the bucket is gone with the server.
    """
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    host, found = server.get_host_and_port()
    url = f"http://{host}:{found}"
    client: Any = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=KEY.key,
        aws_secret_access_key=KEY.secret,
    )
    try:
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client, url
    finally:
        client.close()
        server.stop()
