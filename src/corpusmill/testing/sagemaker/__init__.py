"""Amazon SageMaker on loopback, as far as chat completions need it: container, runtime and transform jobs.

The container answers as TildeOpen-30b-64k does; the runtime has both routes to it, the errors of the service's
model and its event streams; transform jobs read and write a real S3 API (moto's server in tests). Signatures are
verified. It shares no code with the rest of the package, so that it can judge it. Transform jobs need boto3, which
comes with `corpusmill[sagemaker]`; the server needs `corpusmill[testing]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.testing.sagemaker.faults import FAULTS
    from corpusmill.testing.sagemaker.s3 import s3_server
    from corpusmill.testing.sagemaker.server import FakeSageMaker
    from corpusmill.testing.sagemaker.signatures import AccessKey

__all__ = ["FAULTS", "AccessKey", "FakeSageMaker", "s3_server"]

_HOMES = {"FAULTS": "faults", "AccessKey": "signatures", "FakeSageMaker": "server", "s3_server": "s3"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
