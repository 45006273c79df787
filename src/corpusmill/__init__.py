"""Map columns of Arrow and Parquet tables through a chat-completion endpoint.

`enrich` asks one or more prompts of every row of a table and writes the table with the answers as columns. Answers
are kept in a store before their rows count as done, so that a paid answer is never lost and never bought twice.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.endpoints import Capabilities, OpenAICompatible, SambaNova
    from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform
    from corpusmill.errors import CorpusmillError
    from corpusmill.job import load_job
    from corpusmill.policy import Budget, FailurePolicy, Limits, RetryPolicy
    from corpusmill.prompts.answer import Answer, Column
    from corpusmill.prompts.ask import Ask
    from corpusmill.prompts.extract import Extract
    from corpusmill.prompts.summarise import Summarise
    from corpusmill.prompts.translate import Translate
    from corpusmill.report import RunReport
    from corpusmill.run import enrich, enrich_batches
    from corpusmill.tables import SinkSpec, SourceSpec, read

_HOME = {
    "Answer": "corpusmill.prompts.answer",
    "Ask": "corpusmill.prompts.ask",
    "Budget": "corpusmill.policy",
    "Capabilities": "corpusmill.endpoints",
    "Column": "corpusmill.prompts.answer",
    "CorpusmillError": "corpusmill.errors",
    "Extract": "corpusmill.prompts.extract",
    "FailurePolicy": "corpusmill.policy",
    "Limits": "corpusmill.policy",
    "OpenAICompatible": "corpusmill.endpoints",
    "RetryPolicy": "corpusmill.policy",
    "RunReport": "corpusmill.report",
    "SageMakerEndpoint": "corpusmill.endpoints.sagemaker",
    "SageMakerTransform": "corpusmill.endpoints.sagemaker",
    "SambaNova": "corpusmill.endpoints",
    "SinkSpec": "corpusmill.tables",
    "SourceSpec": "corpusmill.tables",
    "Summarise": "corpusmill.prompts.summarise",
    "Translate": "corpusmill.prompts.translate",
    "enrich": "corpusmill.run",
    "enrich_batches": "corpusmill.run",
    "load_job": "corpusmill.job",
    "read": "corpusmill.tables",
}

__all__ = [
    "Answer",
    "Ask",
    "Budget",
    "Capabilities",
    "Column",
    "CorpusmillError",
    "Extract",
    "FailurePolicy",
    "Limits",
    "OpenAICompatible",
    "RetryPolicy",
    "RunReport",
    "SageMakerEndpoint",
    "SageMakerTransform",
    "SambaNova",
    "SinkSpec",
    "SourceSpec",
    "Summarise",
    "Translate",
    "enrich",
    "enrich_batches",
    "load_job",
    "read",
]


def __getattr__(name: str) -> object:
    # Loaded when first used: a Dag file may import this package many times a minute and needs little of it.
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
