"""A pipe between a client and a server that can be shut: then it takes everything and gives nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Valve:
    """Open or shut, from any thread. Shut, it still accepts connections: nobody is told that nobody is there.

    What was on its way when it is shut is lost, as by a cable that is cut, and those connections never speak again.
    """

    def __init__(self) -> None:
        self._shut = False
        self._pairs: set[asyncio.StreamWriter] = set()

    def shut(self) -> None:
        """Swallow everything from now on."""
        self._shut = True

    def open(self) -> None:
        """Let new connections through."""
        self._shut = False

    @contextlib.contextmanager
    def before(self, base_url: str) -> Iterator[str]:
        """Listen in a thread of this process, and give the URL that leads through the valve to `base_url`."""
        scheme, _, rest = base_url.partition("://")
        address, _, path = rest.partition("/")
        host, _, port = address.rpartition(":")
        loop = asyncio.new_event_loop()
        server: asyncio.Server = loop.run_until_complete(
            asyncio.start_server(lambda near, out: self._join(near, out, host, int(port)), "127.0.0.1", 0)
        )
        thread = threading.Thread(target=loop.run_forever, name="valve", daemon=True)
        thread.start()
        try:
            yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/{path}"
        finally:
            asyncio.run_coroutine_threadsafe(self._end(server), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _join(
        self, near: asyncio.StreamReader, out: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if self._shut:
                await self._swallow(near)
            else:
                far, into = await asyncio.open_connection(host, port)
                await asyncio.gather(self._pump(near, into), self._pump(far, out))
        out.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Hand on until either side ends; once shut, this connection is lost for good."""
        try:
            while data := await source.read(65_536):
                if self._shut:
                    await self._swallow(source)
                    return
                target.write(data)
                await target.drain()
        finally:
            target.transport.abort() if self._shut else target.close()

    @staticmethod
    async def _swallow(source: asyncio.StreamReader) -> None:
        while await source.read(65_536):
            pass
