"""From a request to the bytes of its JSON body.

All rows of a prompt share one mapping of parameters, so that everything but the messages and the ceiling is
written once and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from corpusmill.endpoints.sagemaker import SageMakerEndpoint, SageMakerTransform
from corpusmill.exchange import CEILINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from corpusmill.endpoints import Endpoint
    from corpusmill.exchange import ChatRequest

_encode = msgspec.json.Encoder().encode

KEPT = 256
"""Mappings of parameters whose text is kept: a caller that makes one for each row fills no memory."""

_NOT_PARAMETERS = frozenset({"model", "messages", "stream", *CEILINGS})


class Encoder:
    """Writes the requests for one endpoint."""

    __slots__ = ("_ceiling", "_head", "_stream", "_tails")

    def __init__(self, endpoint: Endpoint) -> None:
        """Write down what all requests have in common."""
        # A SageMaker endpoint serves one model, and its reference page shows requests that do not name it.
        names_model = not isinstance(endpoint, SageMakerEndpoint | SageMakerTransform) or endpoint.sends_model
        self._head = (
            b'{"model":' + _encode(endpoint.model) + b',"messages":' if names_model else b'{"messages":'
        )
        self._ceiling = b',"' + endpoint.ceiling_field.encode() + b'":'
        self._stream = endpoint.stream
        # The mapping is kept beside its text: as long as it lives, no other one can have its id.
        self._tails: dict[int, tuple[Mapping[str, Any], bytes]] = {}

    def encode(self, request: ChatRequest) -> bytes:
        """Give the body of a request.

        Raises:
            UnicodeEncodeError: For half a surrogate pair in a text.
            TypeError: For what JSON cannot hold.
        """
        parameters = request.parameters
        kept = self._tails.get(id(parameters))
        tail = kept[1] if kept is not None else self._tail(parameters)
        messages = _encode(request.messages)
        if request.ceiling is None:
            return self._head + messages + tail
        return b"%b%b%b%d%b" % (self._head, messages, self._ceiling, request.ceiling, tail)

    def _tail(self, parameters: Mapping[str, Any]) -> bytes:
        sent = {
            name: value
            for name, value in parameters.items()
            if value is not None and name not in _NOT_PARAMETERS
        }
        if self._stream:
            sent["stream"] = True
            # Without it most servers leave the usage out of a stream, and what was paid would not be known.
            sent["stream_options"] = {"include_usage": True, **(sent.get("stream_options") or {})}
        text = _encode(sent)
        tail = b"}" if text == b"{}" else b"," + text[1:]
        if len(self._tails) >= KEPT:
            self._tails.clear()
        self._tails[id(parameters)] = (parameters, tail)
        return tail
