"""Endpoints that need no key and no network: a fake one for each run, and the fake SageMaker that outlives it."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import PrivateAttr

from corpus_assets.amazon import BUCKET, addresses
from corpus_assets.places import folder
from corpusmill import OpenAICompatible, SageMakerTransform
from corpusmill.dagster import EndpointResource
from corpusmill.testing import FakeEndpoint


class FakeResource(EndpointResource):
    """A fake endpoint on loopback. It has another port each time, and is the same endpoint to the store."""

    _base_url: str = PrivateAttr(default="")

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["FakeResource"]:  # noqa: ARG002
        """Serve while the run goes on."""
        with FakeEndpoint(latency=0.02) as server:
            self._base_url = server.base_url
            yield self

    def endpoint(self, model: str | None = None) -> OpenAICompatible:
        """Give the endpoint for a model."""
        name = model or self.model or "fake"
        return OpenAICompatible(self._base_url, name, identity=f"fake {name}")


class FakeAmazonResource(EndpointResource):
    """A model on the fake SageMaker, asked by transform jobs. It has another port each time, and is the same model."""

    def endpoint(self, model: str | None = None) -> SageMakerTransform:
        """Give the endpoint for a model, and start the fake SageMaker unless it runs."""
        from corpusmill.endpoints.sagemaker.credentials import aws_credentials
        from corpusmill.testing.sagemaker.server import KEY, REGION

        sagemaker, s3 = addresses(folder())
        name = model or self.model or "tildeopen-30b-64k"
        return SageMakerTransform(
            model_name=name,
            model=name,
            region=REGION,
            instance_type="ml.g6.48xlarge",
            s3=f"s3://{BUCKET}/nightly",
            shard_rows=50,
            endpoint_url=sagemaker,
            s3_endpoint_url=s3,
            credentials=aws_credentials(
                access_key=KEY.key, secret_key=KEY.secret, origin="the fake SageMaker"
            ),
        )
