"""Who is asked: endpoints, what they can do, and what is refused before the first request."""

from corpusmill.endpoints.capabilities import Capabilities
from corpusmill.endpoints.endpoint import Endpoint
from corpusmill.endpoints.messages import check_messages
from corpusmill.endpoints.openai_compatible import OpenAICompatible
from corpusmill.endpoints.parameters import check_parameters
from corpusmill.endpoints.sambanova import IgnoredParameterWarning, SambaNova

__all__ = [
    "Capabilities",
    "Endpoint",
    "IgnoredParameterWarning",
    "OpenAICompatible",
    "SambaNova",
    "check_messages",
    "check_parameters",
]
