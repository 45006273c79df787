"""Models on Amazon SageMaker: asked in real time, as streams, or by transform jobs; all share one identity."""

from corpusmill.endpoints.sagemaker.credentials import AssumedRole, AwsCredentials, aws_credentials
from corpusmill.endpoints.sagemaker.real_time import SageMakerEndpoint
from corpusmill.endpoints.sagemaker.tildeopen import CONTEXT_TOKENS, LANGUAGES, TILDEOPEN
from corpusmill.endpoints.sagemaker.transform import SageMakerTransform

__all__ = [
    "CONTEXT_TOKENS",
    "LANGUAGES",
    "TILDEOPEN",
    "AssumedRole",
    "AwsCredentials",
    "SageMakerEndpoint",
    "SageMakerTransform",
    "aws_credentials",
]
