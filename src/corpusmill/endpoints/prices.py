"""What a model costs, where the public price list of a service knows it.

The list is that of the package genai-prices, as it was when that package was released; nothing is fetched. A model
is looked up under the URL that is asked, so that a server of one's own never has the price of somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars for a million prompt and completion tokens, and where they are from."""

    prompt: float
    completion: float
    origin: str

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Give the price of so many tokens in US dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1_000_000


def known_prices(url: str, model: str) -> Prices | None:
    """Give the list prices of a model at the URL of a service; None where the list does not know them."""
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
