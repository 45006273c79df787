"""Checks of the names and addresses by which Amazon SageMaker is reached."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from corpusmill.endpoints.endpoint import shown_url
from corpusmill.endpoints.secret import redact
from corpusmill.errors import UsageError

LARGEST_ATTRIBUTES: Final = 1_024
"""Characters that custom attributes may have (service model of the runtime)."""

_NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
_REGION = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d+")
_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA|AKID)[A-Z0-9]{8,}\b")


def checked_resource(name: object, what: str) -> str:
    """Give the name of an endpoint, component, variant, model or job; raise `UsageError` if it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{what} is {name!r}; it must be 1 to 63 letters, digits and inner hyphens, not an ARN"
        )
    return name


def checked_region(region: object) -> str:
    """Give the name of a region; raise `UsageError` if it is none."""
    if not isinstance(region, str) or not _REGION.fullmatch(region):
        raise UsageError(f"region is {region!r}; it must look like eu-north-1")
    return region


def checked_attribute(value: object, what: str, *, longest: int = LARGEST_ATTRIBUTES) -> str:
    """Give a text that travels in a header: ASCII, one line, blanks around it taken off."""
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} is {value!r}; it must be a text that is not blank, or be left out")
    text = value.strip(" \t")
    if not text.isascii() or any(character < " " or character == "\x7f" for character in text):
        raise UsageError(
            f"{what} has a line end or a character outside ASCII, which no header of HTTP can carry"
        )
    if len(text) > longest:
        raise UsageError(f"{what} has {len(text)} characters; it may have {longest}")
    return text


def s3_place(url: object, what: str) -> tuple[str, str]:
    """Give the bucket of an S3 URL, and the folder in it: "", or with a slash at its end."""
    match = _S3.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        raise UsageError(f"{what} is {url!r}; it must look like s3://bucket/prefix")
    inside = (match[2] or "").strip("/")
    return match[1], f"{inside}/" if inside else ""


def service_url(service: str, region: str, endpoint_url: str | None) -> str:
    """Give the address of a service (`runtime.sagemaker`) in a region, without a slash at its end."""
    if endpoint_url is None:
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        return f"https://{service}.{region}.{suffix}"
    parts = urlsplit(endpoint_url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.query:
        raise UsageError(f"endpoint_url is {shown_url(endpoint_url)!r}; it must look like https://host")
    return endpoint_url.strip().rstrip("/")


def identity_of_model(model: str) -> str:
    """Give the identity of a model on SageMaker: the same for every way to ask it."""
    return f"sagemaker {model}"


def redact_aws(text: str) -> str:
    """Mask access keys and whatever else looks like a key."""
    return _ACCESS_KEY.sub("***", redact(text, ()))
