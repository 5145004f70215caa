"""A topic as the application follows it: frames in order, resets before the first frame of a history."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, AsyncContextManager, Awaitable, Callable, ContextManager, Optional, Type, TypeVar, Union

from ._errors import KhalaError
from ._frames import Frame, Position, Reset
from ._position import read_position
from ._subscription import Entry, Subscription

Tx = TypeVar("Tx")
ResetHandler = Callable[[Reset], Any]
Follow = Callable[[bool, Optional[Position], bool], Subscription]  # the last: whether frames may be folded


def _is_loss(reset: Reset) -> bool:
    return reset.reason != "start" or reset.truncated or reset.documents is not None


async def settled(answer: Any) -> Any:
    """The answer of a callback, which may be awaitable."""
    return await answer if inspect.isawaitable(answer) else answer


class Frames:
    """The frames of one loop. A frame counts as applied when the loop asks for the next one.

    A loop that ends drops this object, which ends its subscription.
    """

    def __init__(self, topic: Topic, subscription: Subscription, reset: Optional[ResetHandler]) -> None:
        self._topic = topic
        self._subscription = subscription
        self._reset = reset
        self._entry: Optional[Entry] = None

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> Frame:
        if self._entry:
            self._subscription.acknowledge(self._entry)
            self._entry = None
        try:
            while True:
                entry = await self._subscription.take()
                if entry is None:
                    break
                if entry.frame is not None:
                    self._entry = entry
                    return entry.frame
                if entry.reset is not None:
                    await self._topic.handle(entry.reset, self._reset)
                self._subscription.acknowledge(entry)
        except BaseException:
            self._subscription.give("stop")
            raise
        await self._subscription.keeper.saved()
        raise StopAsyncIteration

    def __del__(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the loop has ended, and the subscription with it
        if self._subscription.state != "closed":
            self._subscription.give("stop")


class Topic:
    """A topic. It is async iterable, one loop at a time, and an async context manager that ends the loop."""

    def __init__(
        self, name: str, follow: Follow, reset: Optional[ResetHandler], is_given: bool, after: Optional[Position]
    ) -> None:
        self.name = name
        self._follow = follow
        self._reset = reset
        self._is_given = is_given
        self._after = after
        self._subscription: Optional[Subscription] = None

    @property
    def state(self) -> str:
        return self._subscription.state if self._subscription else "closed"

    @property
    def is_pending(self) -> bool:
        """Whether the topic does not exist yet, or belongs to another owner, as far as the server shows."""
        return self._subscription is not None and self._subscription.is_pending

    @property
    def position(self) -> Optional[Position]:
        """The position behind the last frame that the application applied."""
        return self._subscription.applied if self._subscription else None

    def _begin(self, is_given: bool, after: Optional[Position], may_fold: bool = True) -> Subscription:
        if self.state != "closed":
            raise KhalaError("already_followed", f"The topic {self.name} is followed already.", topic=self.name)
        self._subscription = self._follow(is_given, after, may_fold)
        return self._subscription

    def __aiter__(self) -> Frames:
        return Frames(self, self._begin(self._is_given, self._after), self._reset)

    async def each(self, handler: Callable[[Frame], Any]) -> None:
        """Calls the handler for each frame, one after another. A frame is applied when the handler is done."""
        async for frame in self:
            await settled(handler(frame))

    async def handle(self, reset: Reset, handler: Optional[Callable[..., Any]], *tx: Any) -> None:
        """Passes a reset to the application, or raises if it would lose frames without notice."""
        if handler:
            await settled(handler(reset, *tx))
        elif _is_loss(reset):
            message = f"The topic {self.name} starts again at {reset.from_seq} ({reset.reason}). Pass a reset function."
            raise KhalaError("reset_unhandled", message, topic=self.name, reset=reset)

    async def exactly_once(
        self,
        *,
        load: Callable[[], Union[Optional[Position], Awaitable[Optional[Position]]]],
        transaction: Callable[[], Union[ContextManager[Tx], AsyncContextManager[Tx]]],
        apply: Callable[[Frame, Tx], Any],
        save: Callable[[Position, Tx], Any],
        reset: Optional[Callable[[Reset, Tx], Any]] = None,
    ) -> None:
        """Applies each frame exactly once, until the topic is closed.

        load() answers the stored position or None. transaction() is a context manager of one
        transaction. apply(frame, tx), reset(reset, tx) and save(position, tx) write in it. Without
        reset, a truncated start, or one that drops applied frames, ends with an error.
        """
        given = await settled(load())
        stored = read_position(given)
        if given is not None and stored is None:
            raise KhalaError("position_unreadable", "load() did not answer a position or None.", topic=self.name)
        subscription = self._begin(True, stored, may_fold=False)  # each event has its own transaction
        try:
            while True:
                entry = await subscription.take()
                if entry is None:
                    return
                async with _Transaction(transaction()) as tx:
                    if entry.frame is not None:
                        await settled(apply(entry.frame, tx))
                    elif entry.reset is not None:
                        await self.handle(entry.reset, reset, tx)
                    await settled(save(entry.position, tx))
                subscription.acknowledge(entry)
        finally:
            subscription.give("stop")

    async def close(self) -> None:
        """Ends the loop, and waits until the last position is stored."""
        if self._subscription:
            self._subscription.give("stop")
            await self._subscription.keeper.saved()

    async def __aenter__(self) -> Topic:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _Transaction:
    """A context manager of either kind as an async one."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        if hasattr(self._manager, "__aenter__"):
            return await self._manager.__aenter__()
        return self._manager.__enter__()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Any, trace: Any) -> Any:
        if hasattr(self._manager, "__aexit__"):
            return await self._manager.__aexit__(kind, error, trace)
        return self._manager.__exit__(kind, error, trace)
