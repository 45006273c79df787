"""Waiting for transform jobs to end, in the triggerer instead of on a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from corpusmill.transform.aws import ControlPlane


class TransformJobsTrigger(BaseTrigger):
    """Fires once: when all jobs have ended, when the deadline has passed, or when AWS does not answer any more.

    It only looks, so that it may move to another triggerer or run twice; when a user ends the task it stops the jobs,
    if it was told to. Its arguments hold no secret: it looks the connection up itself. All that the task needs
    afterwards is in the event.
    """

    def __init__(
        self,
        *,
        names: list[str],
        region: str,
        endpoint_url: str | None = None,
        profile: str | None = None,
        aws_conn_id: str | None = None,
        poll_seconds: float = 30.0,
        patience_seconds: float = 1_800.0,
        since: float | None = None,
        deadline: float | None = None,
        stop_on_kill: bool = False,
        forget: bool = False,
    ) -> None:
        """Take names and where to look for them; `since` and `deadline` are Unix time.

        `since` and `forget` are for the task that goes on, and come back in the event.
        """
        super().__init__()  # type: ignore[no-untyped-call] # Airflow's is not annotated
        self.names = names
        self.region = region
        self.endpoint_url = endpoint_url
        self.profile = profile
        self.aws_conn_id = aws_conn_id
        self.poll_seconds = poll_seconds
        self.patience_seconds = patience_seconds
        self.since = since
        self.deadline = deadline
        self.stop_on_kill = stop_on_kill
        self.forget = forget
        self._plane: ControlPlane | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Give the class's path and the arguments."""
        return "corpusmill.airflow.transform_trigger.TransformJobsTrigger", {
            "names": self.names,
            "region": self.region,
            "endpoint_url": self.endpoint_url,
            "profile": self.profile,
            "aws_conn_id": self.aws_conn_id,
            "poll_seconds": self.poll_seconds,
            "patience_seconds": self.patience_seconds,
            "since": self.since,
            "deadline": self.deadline,
            "stop_on_kill": self.stop_on_kill,
            "forget": self.forget,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is something for the task to do; each look runs in a thread."""
        from corpusmill.transform.watching import Watcher

        watcher = Watcher(
            await self._open(),
            self.names,
            poll_seconds=self.poll_seconds,
            patience_seconds=self.patience_seconds,
            deadline=self.deadline,
        )
        told: Mapping[str, str] = {}
        while (seen := await asyncio.to_thread(watcher.look)).ending is None:
            if seen.statuses != told:
                told = seen.statuses
                self.log.info("%s", seen)
            if seen.trouble:
                self.log.warning("%s; looking again in %.0f s", seen.trouble, seen.wait)
            await asyncio.sleep(seen.wait)
        event = {
            "ending": seen.ending,
            "told": f"{seen}; {seen.trouble}" if seen.trouble else str(seen),
            "statuses": dict(seen.statuses),
            "since": self.since,
            "forget": self.forget,
        }
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Stop the jobs because a user has ended the task, if that was asked for."""
        if not self.stop_on_kill:
            return
        from corpusmill.transform.watching import stop_all

        done = await asyncio.to_thread(stop_all, await self._open(), self.names)
        for name, what in done.items():
            self.log.info("%s %s", name, what)

    async def cleanup(self) -> None:
        """Close the connections. The jobs go on: this also happens when another triggerer takes over."""
        if self._plane is not None:
            self._plane.close()

    async def _open(self) -> ControlPlane:
        if self._plane is None:
            from corpusmill.transform.aws import ControlPlane

            credentials = None
            if self.aws_conn_id is not None:
                from airflow.sdk import BaseHook

                from corpusmill.airflow.aws import aws_access

                credentials = aws_access(await BaseHook.aget_connection(self.aws_conn_id)).credentials
            self._plane = await asyncio.to_thread(
                ControlPlane,
                region=self.region,
                endpoint_url=self.endpoint_url,
                profile=self.profile,
                credentials=credentials,
            )
        return self._plane
