"""Markup, code fences and special tokens of models that an answer has and the input has not."""

from __future__ import annotations

import re
from typing import Final

from corpusmill.prompts.checks.notes import noted

_ANY: Final = re.compile(r"[*_#`|<\[~▁$\\]")
_MARKUP: Final = (
    ("```", re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)),
    ("**", re.compile(r"(?<!\*)\*\*(?=\S)[^*\n]{1,300}(?<=\S)\*\*")),
    ("*", re.compile(r"(?<![\w*])\*(?=[^\W_])[^*\n]{1,200}(?<=[\w.!?])\*(?![\w*])")),
    ("__", re.compile(r"(?<!\w)__(?=\S)[^_\n]{1,300}(?<=\S)__(?!\w)")),
    ("#", re.compile(r"^#{1,6} \S", re.MULTILINE)),
    ("`", re.compile(r"(?<!`)`[^`\n]{1,200}`(?!`)")),
    ("|", re.compile(r"^\|.*\|[ \t]*\n\|[ :|-]+\|", re.MULTILINE)),
    ("[]()", re.compile(r"\[[^\[\]\n]{1,200}\]\([^()\s]{1,300}\)")),
    ("$", re.compile(r"\$\$[^$]{1,300}\$\$|\\\(.{1,300}?\\\)|\\boxed\{")),
)
_SIGNS: Final = frozenset({"```", "**", "*", "__", "`", "|"})
_BULLETS: Final = frozenset("-•")
_LIST: Final = re.compile(r"^[ \t]*[-*•] \S", re.MULTILINE)
# A dash opens speech in many languages, so it is a list only where no dash of any kind opens a line of the input.
_DASHED: Final = re.compile(r"^[ \t]*[-–—*•]", re.MULTILINE)
_TAG: Final = re.compile(r"</?[A-Za-z][A-Za-z0-9:-]*(?:\s[^<>]*)?/?>")
_SPECIAL: Final = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk|mask|sep|cls|start_of_turn|end_of_turn|end_of_text|endoftext)>"
    r"|<extra_id_\d+>|<unused\d+>|<0x[0-9A-F]{2}>|\[/?INST\]|<</?SYS>>|<｜[^｜<>\n]{1,40}｜>|\[(?:PAD|UNK|CLS|SEP|MASK)\]|▁"
)


def _is_there(name: str, pattern: re.Pattern[str], given: str) -> bool:
    # A sign that the input has at all may be written in another way there, over lines or unbalanced.
    return name in given if name in _SIGNS else pattern.search(given) is not None


def markup_notes(given: str, answer: str) -> tuple[str, ...]:
    """Return `special_tokens …` and `markup_added …` for kinds that the input does not have at all."""
    if not _ANY.search(answer) and "\n" not in answer and answer[:1] not in _BULLETS:
        return ()
    special = [token for token in dict.fromkeys(_SPECIAL.findall(answer)) if token not in given]
    kinds = [
        name for name, pattern in _MARKUP if pattern.search(answer) and not _is_there(name, pattern, given)
    ]
    if _LIST.search(answer) and not _DASHED.search(given):
        kinds.append("-")
    if "<" in answer and not _TAG.search(given):
        kinds += [tag for tag in dict.fromkeys(_TAG.findall(answer)) if tag not in special]
    return noted("special_tokens", special) + noted("markup_added", kinds)
