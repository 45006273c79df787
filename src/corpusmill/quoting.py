"""Taking out of a message what it quotes: a server that refuses a text often repeats it, and so does a check.

Only letters and digits are compared, once escapes are undone, so that a quotation is found in whatever notation a
server gives it: as it is, with other blanks, as JSON, as JSON within JSON, as the source text of a program.
"""

from __future__ import annotations

import base64
import re
import sys
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RUN: Final = 16
"""Bytes of letters and digits from which on what two texts share is a quotation: 16 letters in English, which is
about 20 characters with their blanks, 8 in Cyrillic, 6 in Chinese."""

SHORTEST: Final = 4
"""Bytes of a text that is shorter than a run from which on it is looked for as a whole word."""

GAP: Final = "…"
"""What stands where a quotation was."""

# Any part of a run that begins at a multiple of it and is as long lies wholly within the run.
_BLOCK: Final = RUN // 2

_BROKEN_OFF: Final = re.compile(r"\.\.\.|…")
_NO_LETTERS: Final = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_NO_WORD: Final = re.compile(r"\W+")
_TOKEN: Final = re.compile(
    r"[^\W_]+|(?:\\+x[0-9a-fA-F]{2})+|(?:\\+u[0-9a-fA-F]{4})+|\\+U[0-9a-fA-F]{8}|\\+.?", re.DOTALL
)
_HEX: Final = re.compile(r"\\+[xuU]([0-9a-fA-F]+)")
_BLANKS: Final = frozenset("abfnrtv0")
"""What stands for a blank or a control character behind a backslash."""

_NO_TEXT_OF_ITS_OWN: Final = frozenset({"role", "type"})
"""Members of messages that hold one of a few words, which everybody may say."""


def unquoted(message: str, own: Iterable[str]) -> str:
    """Give the message with a gap wherever it repeats a run of one of the texts, or the whole of a short one.

    Where the message breaks off ("..."), the beginning of a text is enough. A message that quotes none of them comes
    back as it is.
    """
    folded, places = _placed(message)
    if len(folded) < SHORTEST:
        return message
    marked = bytearray(len(folded))
    runs = {folded[start : start + RUN] for start in range(len(folded) - RUN + 1)}
    blocks = {folded[start : start + _BLOCK] for start in range(len(folded) - _BLOCK + 1)}
    shared: set[bytes] = set()
    broken_off = [bisect_left(places, (place.start(), 0)) for place in _BROKEN_OFF.finditer(message)]
    for text in own:
        letters = _folded(text)
        for stop in broken_off:
            _mark_begun(marked, folded, places, letters, stop)
        if len(letters) >= RUN:
            shared.update(_shared(letters, runs, blocks))
        elif len(letters) >= SHORTEST:
            _mark_whole(marked, folded, places, letters)
    if shared:
        for start in range(len(folded) - RUN + 1):
            if folded[start : start + RUN] in shared:
                marked[start : start + RUN] = b"\1" * RUN
    return _cut(message, marked, places)


def texts_in(value: object) -> Iterator[str]:
    """Give all texts in messages, or in the value of a cell, however they are nested."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, Mapping):
            left.extend(item for name, item in found.items() if name not in _NO_TEXT_OF_ITS_OWN)
        elif isinstance(found, list | tuple):
            left.extend(found)
        elif isinstance(found, bytes):
            # As it goes over the wire.
            yield base64.b64encode(found).decode("ascii")
        elif found is not None and not isinstance(found, bool):
            yield str(found)


def _shared(letters: bytes, runs: set[bytes], blocks: set[bytes]) -> Iterator[bytes]:
    """Give those of the runs that the letters have; the letters may be many millions."""
    if not runs:
        return
    seen: set[bytes] = set()
    for block in range(0, len(letters) - _BLOCK + 1, _BLOCK):
        if letters[block : block + _BLOCK] in blocks:
            around = letters[max(0, block - RUN + _BLOCK) : block + RUN]
            if around not in seen:
                seen.add(around)
                for start in range(len(around) - RUN + 1):
                    run = around[start : start + RUN]
                    if run in runs:
                        yield run


def _mark_whole(marked: bytearray, folded: bytes, places: list[tuple[int, int]], letters: bytes) -> None:
    """Mark where the letters stand by themselves, and not within a longer word."""
    start = folded.find(letters)
    while start >= 0:
        stop = start + len(letters)
        begins = start == 0 or places[start - 1][1] < places[start][0]
        ends = stop == len(folded) or places[stop - 1][1] < places[stop][0]
        if begins and ends:
            marked[start:stop] = b"\1" * len(letters)
        start = folded.find(letters, start + 1)


def _mark_begun(
    marked: bytearray, folded: bytes, places: list[tuple[int, int]], letters: bytes, stop: int
) -> None:
    """Mark the beginning of a text, too short for a run, before the place where the message breaks off."""
    for size in range(min(RUN - 1, stop, len(letters)), SHORTEST - 1, -1):
        start = stop - size
        if folded[start:stop] == letters[:size] and (start == 0 or places[start - 1][1] < places[start][0]):
            marked[start:stop] = b"\1" * size
            return


def _cut(message: str, marked: bytearray, places: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    end = 0
    for run in re.finditer(b"\1+", marked):
        start = max(places[run.start()][0], end)
        pieces += [message[end:start], GAP]
        end = max(places[run.end() - 1][1], end)
    return "".join([*pieces, message[end:]]) if pieces else message


def _folded(text: str) -> bytes:
    """Give the letters and digits of a text."""
    if "\\" not in text:
        # Nearly every text; it may have many megabytes, of which most are taken at the speed of bytes.
        letters = text.encode("utf-8", "surrogatepass").translate(None, _NO_LETTERS)
        return (
            letters
            if letters.isascii()
            else _NO_WORD.sub("", letters.decode("utf-8", "surrogatepass")).encode()
        )
    return "".join(_meant(token[0]) for token in _TOKEN.finditer(text)).encode()


def _placed(text: str) -> tuple[bytes, list[tuple[int, int]]]:
    """Give the letters and digits of a text, and for each of their bytes from where to where it stands there."""
    folded = bytearray()
    places: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        word = token[0]
        start = token.start()
        if word[0] == "\\":
            letters = _meant(word).encode()
            places += [token.span()] * len(letters)
        else:
            letters = word.encode()
            if len(letters) == len(word):
                places += [(position, position + 1) for position in range(start, token.end())]
            else:
                for position, letter in enumerate(word, start):
                    places += [(position, position + 1)] * len(letter.encode())
        folded += letters
    return bytes(folded), places


def _meant(token: str) -> str:
    """Give the letters that a token stands for, which is a word or an escape."""
    if token[0] != "\\":
        return token
    numbers = [int(digits, 16) for digits in _HEX.findall(token)]
    kind = token.lstrip("\\")[:1]
    if not numbers:
        return kind if kind.isalnum() and kind not in _BLANKS else ""
    if kind == "x":
        text = _decoded(bytes(numbers))
    else:
        text = "".join(chr(number) for number in numbers if number <= sys.maxunicode)
        # A pair that was written as two halves is one character.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(letter for letter in text if letter.isalnum())


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
