"""Permits that also keep to what all processes together may send.

The limiter knows one process. Where rates are stated, each permit is first taken from the store, which every process
of the run shares. One waits for the store at a time, and hands the turn on once it has its permit of the limiter: so no
more than one request has been counted and has not yet gone out.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from corpusmill.store.rates import Rates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from corpusmill.chat.limits import Limiter, Permit
    from corpusmill.policy import Limits
    from corpusmill.store.protocol import Store

LONGEST_WAIT = 5.0
"""Seconds after which the store is asked again: another process may have given back what it did not use."""


class Passes:
    """Gives the permits of one run. It belongs to the event loop that it is first used in."""

    def __init__(
        self,
        limiter: Limiter,
        store: Store,
        *,
        identity: str,
        limits: Limits,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Take the limiter of this process, and the store that all share."""
        self._limiter = limiter
        self._store = store
        self._identity = identity
        self._sleep = sleep
        self._rates = Rates(
            requests_per_minute=limits.requests_per_minute, tokens_per_minute=limits.tokens_per_minute
        )
        self._shared = limits.requests_per_minute is not None or limits.tokens_per_minute is not None
        self._turn = asyncio.Lock()
        self._unused = 0
        self._most_unused = max(1, int((limits.requests_per_minute or 60.0) / 60.0))
        self._owed = 0.0

    def permit(self, tokens: float, *, again: bool = False) -> contextlib.AbstractAsyncContextManager[Permit]:
        """Hold a permit, as the limiter's; what ends unsettled was not sent and is given back."""
        permit = self._limiter.permit(tokens, again=again)
        return self._counted(permit, tokens) if self._shared else permit

    @contextlib.asynccontextmanager
    async def _counted(self, permit: Permit, tokens: float) -> AsyncIterator[Permit]:
        async with self._turn:
            await self._take(tokens)
            await permit.__aenter__()
        kind: type[BaseException] | None = None
        try:
            yield permit
        except BaseException as error:
            kind = type(error)
            raise
        finally:
            if kind is None and not permit.settled:
                self._unused = min(self._unused + 1, self._most_unused)
                self._owed -= tokens
            await permit.__aexit__(kind, None, None)

    def used(self, reserved: float, used: float | None) -> None:
        """Tell how many tokens a request came to that had taken `reserved`; None where nobody knows."""
        if used is not None:
            self._owed += used - reserved

    async def _take(self, tokens: float) -> None:
        """Take a request from the store, waiting for as long as it takes."""
        if self._unused:
            self._unused -= 1
            self._owed += tokens
            return
        while True:
            wanted = max(0.0, tokens + self._owed)
            wait = await asyncio.to_thread(self._store.take, self._identity, rates=self._rates, tokens=wanted)
            if wait <= 0:
                self._owed += tokens - wanted
                return
            await self._sleep(min(wait, LONGEST_WAIT))
