"""What stands in a text and is none of its words: addresses, placeholders, tags, entities."""

from __future__ import annotations

import re
from typing import Final

_ANY: Final = re.compile(r"[@{<&%]|://")
_ASIDE: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"]+"
    r"|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
    r"|[%$#]?\{[^{},\n]{0,60}\}"
    r"|%\(\w+\)[#0+-]*\d*(?:\.\d+)?[a-zA-Z]|%\d+\$[a-zA-Z]"
    r"|</?[A-Za-z][^<>\n]{0,300}>"
    r"|&#?\w{1,31};"
)


def without_asides(text: str, instead: str = " ") -> str:
    """Return a text with something else instead of each address, placeholder, tag and entity."""
    return _ASIDE.sub(instead, text) if _ANY.search(text) else text
