"""How the fake endpoint behaves, and how that is read from JSON and changed in mid-run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from corpusmill.testing.faults import Faults
from corpusmill.testing.latency import Latency
from corpusmill.testing.limits import RateLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T", Faults, Latency, RateLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the endpoint behaves.

    `models` are the models that are served (None: any). A prompt of `context_tokens` or more is refused, and
    an answer is cut where prompt and answer fill the context; with `strict_context` a prompt and a ceiling
    that together exceed it are refused as well. With `gzip`, whole answers are compressed for clients that
    take it.
    """

    latency: Latency = field(default_factory=Latency)
    limits: RateLimits | None = None
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    api_key: str | None = field(default=None, repr=False)
    models: tuple[str, ...] | None = None
    context_tokens: int = 65_536
    strict_context: bool = False
    gzip: bool = False


def changed_settings(settings: Settings, change: object) -> Settings:
    """Return `settings` with the fields of a JSON object changed.

    `latency` may be a number of seconds and `faults` a mapping from kind to share; null takes either away.

    Raises:
        msgspec.ValidationError, ValueError, TypeError: the object does not fit.
    """
    if not isinstance(change, dict):
        msg = "expected a JSON object"
        raise TypeError(msg)
    converted: dict[str, Any] = {}
    for name, value in change.items():
        if name == "latency":
            converted[name] = latency_from(value)
        elif name == "faults":
            converted[name] = faults_from(value)
        elif name == "limits":
            converted[name] = None if value is None else _converted(value, RateLimits)
        elif name in _PLAIN_SETTINGS:
            converted[name] = msgspec.convert(value, _PLAIN_SETTINGS[name])
        else:
            msg = f"no setting is called {name!r}; there are {', '.join(CHANGEABLE)}"
            raise ValueError(msg)
    return replace(settings, **converted)


_PLAIN_SETTINGS: Final[Mapping[str, Any]] = {
    "seed": int,
    "models": tuple[str, ...] | None,
    "context_tokens": int,
    "strict_context": bool,
    "gzip": bool,
}

CHANGEABLE: Final = ("latency", "faults", "limits", *_PLAIN_SETTINGS)
"""What can be changed by JSON; the key cannot, for it would be shown on the way."""


def latency_from(value: object) -> Latency:
    """Read a latency: seconds, an object of its fields, or nothing."""
    if value is None:
        return Latency()
    if isinstance(value, Latency):
        return value
    if isinstance(value, int | float):
        return Latency(mean=value)
    return _converted(value, Latency)


def faults_from(value: object) -> Faults:
    """Read faults: shares by kind, an object of its fields, or nothing."""
    if value is None:
        return Faults()
    if isinstance(value, Faults):
        return value
    if isinstance(value, dict) and value.keys() & {field.name for field in fields(Faults)}:
        return _converted(value, Faults)
    return Faults(shares=msgspec.convert(value, dict[str, float]))


def _converted(value: object, kind: type[T]) -> T:
    """Read a dataclass from an object of its fields; a field that it does not have is an error."""
    if isinstance(value, kind):
        return value
    unknown = value.keys() - {field.name for field in fields(kind)} if isinstance(value, dict) else set()
    if unknown:
        known = ", ".join(field.name for field in fields(kind))
        msg = f"{kind.__name__} has no {', '.join(sorted(unknown))}; it has {known}"
        raise ValueError(msg)
    return msgspec.convert(value, kind)


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings for JSON, without the key."""
    shown: dict[str, Any] = msgspec.to_builtins(settings)
    del shown["api_key"]
    return shown
