"""Events of one game for any number of pages, as server-sent events.

Only the newest event of each topic is kept. A slow page skips older ones, and a new page receives the present state, so
the game never waits for a page.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

HEARTBEAT_SECONDS = 15.0
"""Interval between comments on an idle stream: they keep it open, and reveal a page that has gone."""
LAST_TOPIC = "closed"


class Event(NamedTuple):
    """An event, numbered in the order of publication."""

    number: int
    topic: str
    data: str


class Broadcast:
    """Topics with their newest event, and the pages that wait for one. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[str, Event] = {}
        self._number = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.last_change = time.monotonic()
        """Time when the last page came or left."""

    @property
    def num_pages(self) -> int:
        """Number of pages that listen."""
        return len(self._waiting)

    def publish(self, topic: str, payload: dict[str, Any]) -> None:
        """Replaces the event of a topic."""
        data = json.dumps(payload, separators=(",", ":"))
        with self._lock:
            self._number += 1
            self._events[topic] = Event(self._number, topic, data)
            for loop, wake in self._waiting:
                with contextlib.suppress(RuntimeError):  # the loop of a stopped server is closed
                    loop.call_soon_threadsafe(wake.set)

    def newest(self, topic: str) -> dict[str, Any] | None:
        """The payload of a topic's newest event; None without one."""
        with self._lock:
            event = self._events.get(topic)
        return None if event is None else json.loads(event.data)

    async def stream(self) -> AsyncIterator[str]:
        """The present events, then each new one, as lines of `text/event-stream`; ends with the game."""
        page = asyncio.get_running_loop(), asyncio.Event()
        wake, sent = page[1], 0
        with self._lock:
            self._waiting.add(page)
            self.last_change = time.monotonic()
        try:
            while True:
                wake.clear()
                with self._lock:
                    events = sorted(event for event in self._events.values() if event.number > sent)
                for event in events:
                    yield f"id: {event.number}\nevent: {event.topic}\ndata: {event.data}\n\n"
                    if event.topic == LAST_TOPIC:
                        return
                    sent = event.number
                try:
                    await asyncio.wait_for(wake.wait(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield ": alive\n\n"
        finally:
            with self._lock:
                self._waiting.discard(page)
                self.last_change = time.monotonic()
