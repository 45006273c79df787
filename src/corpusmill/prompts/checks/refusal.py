"""Refusals: an answer in which the model declines, instead of the answer."""

from __future__ import annotations


def is_refusal(answer: str, given: str) -> bool:
    """Whether an answer declines the task; a text that declines something itself may be answered alike."""
    del answer, given
    return False
