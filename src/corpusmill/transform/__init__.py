"""SageMaker transform jobs as fillers of the store: the ordinary flow then finds the answers there."""

from corpusmill.transform.filling import Filled, Filler, TransformProgress
from corpusmill.transform.planning import Rows

__all__ = ["Filled", "Filler", "Rows", "TransformProgress"]
