"""What a model costs, where the public price list of a service knows it.

The list is that of the package genai-prices, as it was when that package was released; nothing is fetched. A model
is looked up under the URL that is asked, so that a server of one's own never has the price of somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from corpusmill.report import STATED


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million prompt and completion tokens, and where they are from."""

    prompt: float
    completion: float
    origin: str

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Give the price of so many tokens in US dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1_000_000


def prices_of(stated: tuple[float, float] | None, *, url: str, model: str) -> Prices | None:
    """Give the prices that were stated, for a million prompt and completion tokens, or else the list prices."""
    if stated is None:
        return known_prices(url, model)
    return Prices(prompt=stated[0], completion=stated[1], origin=STATED)


def known_prices(url: str, model: str) -> Prices | None:
    """Give the list prices of a model at the URL of a service; None where the list does not know them."""
    if _is_private(url):
        return None
    try:
        from genai_prices import Usage, calc_price
    except ModuleNotFoundError:
        return None
    million = 1_000_000
    try:
        prompt = calc_price(Usage(input_tokens=million), model, provider_api_url=url)
        completion = calc_price(Usage(output_tokens=million), model, provider_api_url=url)
    except LookupError:
        return None
    return Prices(
        prompt=float(prompt.total_price),
        completion=float(completion.total_price),
        origin=f"the price list of {prompt.provider.name}",
    )


def _is_private(url: str) -> bool:
    """Tell whether a URL names no service that a public list could know; loading the list takes a while."""
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return True
