"""The client: topics and collections of one server, over one connection."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl as tls
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union
from weakref import WeakValueDictionary

from ._collection import Collection, call
from ._connection import PREFER_AGAIN, Connection, Options, TokenCallback, Transport, TransportEvents
from ._errors import KhalaError
from ._fallback import EventStreamTransport, PollTransport
from ._fallback import Settings as HttpSettings
from ._frames import Position
from ._http import base_of
from ._keeper import PositionKeeper
from ._log import Log, LogFollower, LogReset, LogSettings, is_cursor, write_cursor
from ._machine import BackOff, World
from ._phoenix import PhoenixTransport, Settings
from ._position import read_position
from ._subscription import Beginning, Subscription
from ._topic import ResetHandler, Topic
from .storage import MemoryStorage, Storage


@dataclass(frozen=True)
class ConnectionState:
    status: str
    transport: Optional[str]
    error: Optional[KhalaError]


class _Stored:
    """Stands for the stored position, which None cannot: None starts at the beginning."""


@dataclass(frozen=True)
class Since:
    """A time to start at. Make it with since()."""

    text: str


def since(time: Union[str, datetime, timedelta]) -> Since:
    """A start for from_: a time, or how long ago. A text is of RFC 3339, or such as `90s`, `15m`, `2h` or `7d`."""
    if isinstance(time, datetime):
        return Since(time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    if isinstance(time, timedelta):
        return Since(f"{max(0, int(time.total_seconds() * 1000))}ms")
    if not isinstance(time, str) or not time:
        raise TypeError("since takes a text, a datetime or a timedelta")
    return Since(time)


def start_text(from_: Union[str, Since]) -> Optional[str]:
    """The text of a start; None for the beginning."""
    if isinstance(from_, Since):
        return from_.text
    if from_ not in ("start", "head"):
        raise ValueError('from_ must be "start", "head" or since(…)')
    return None if from_ == "start" else from_


STORED = _Stored()
CONFLATE_MS = 250
CONNECTIONS_MAX = 8  # of one client: collections of one topic with different filters
TRANSPORTS = ("websocket", "sse", "poll")  # the first one is preferred


class Khala:
    """A client of one server. Use it in a running event loop, as `async with Khala(url, token=…)`."""

    def __init__(
        self,
        url: str,
        *,
        token: TokenCallback,
        storage: Optional[Storage] = None,
        transports: Sequence[str] = TRANSPORTS,
        back_off: BackOff = BackOff(),
        prefer_again: BackOff = PREFER_AGAIN,
        token_timeout: float = 15.0,
        connect_timeout: float = 10.0,
        client_build_id: Optional[str] = None,
        form: str = "lean",
        ssl: Optional[tls.SSLContext] = None,
        world: Optional[World] = None,
    ) -> None:
        if not callable(token):
            raise TypeError("token must be a function that answers a token")
        self._world = world or World()
        self._storage: Storage = storage if storage is not None else MemoryStorage()
        self._listeners: Set[Callable[[ConnectionState], Any]] = set()
        self._warners: Set[Callable[[KhalaError], Any]] = set()
        self._collections: Dict[Tuple[object, ...], Collection] = {}
        # Of each storage and key. One that still stores a position is kept by its task.
        self._keepers: WeakValueDictionary[Tuple[int, str], PositionKeeper] = WeakValueDictionary()
        self._logs: Set[LogFollower] = set()
        self._loading: Set[asyncio.Future[None]] = set()
        self._state = ConnectionState("idle", None, None)
        join: Dict[str, Any] = {"protocol_version": "khala.ws.v1", "schema_version": 1}
        if client_build_id:
            join["client_build_id"] = client_build_id
        makers = self._makers(base_of(url), join, ssl, connect_timeout)
        query = join if client_build_id else {}
        self._log_settings = LogSettings(
            base_of(url), query, ssl, token, token_timeout, connect_timeout, back_off, self._warn, self._logs.discard
        )
        usable = [makers[name] for name in transports if name in makers]
        if not usable:
            raise ValueError(f"transports must name some of {', '.join(TRANSPORTS)}")
        options = Options(
            token, usable, self._changed, self._warn, token_timeout, connect_timeout, back_off, prefer_again
        )
        self._form = form
        self._connection_options = options
        self._connection = Connection(options, self._world)
        # Further connections, for topics that the first one follows with another filter.
        self._more: List[Connection] = []

    def _makers(
        self, url: str, join: Dict[str, Any], context: Optional[tls.SSLContext], connect_timeout: float
    ) -> Dict[str, Callable[[TransportEvents], Transport]]:
        settings = Settings(url, join, context, connect_timeout)
        http = HttpSettings(url, join if "client_build_id" in join else {}, context)
        return {
            "websocket": lambda events: PhoenixTransport(settings, self._world, events),
            "sse": lambda events: EventStreamTransport(http, self._world, events),
            "poll": lambda events: PollTransport(http, self._world, events),
        }

    @property
    def state(self) -> ConnectionState:
        """The same object until it changes."""
        return self._state

    def _changed(self) -> None:
        connection = self._connection
        state = ConnectionState(connection.state, connection.transport_name, connection.error)
        if state != self._state:
            self._state = state
            for listener in list(self._listeners):
                call(listener, state)

    def _warn(self, error: KhalaError) -> None:
        for warner in list(self._warners):
            call(warner, error)

    def subscribe(self, listener: Callable[[ConnectionState], Any]) -> Callable[[], None]:
        """Calls the listener after each change of the state; the returned function ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def on_warning(self, listener: Callable[[KhalaError], Any]) -> Callable[[], None]:
        """Calls the listener for errors that the client survives.

        They are of the storage, of the token callback, of the log, or of a topic that does not exist
        yet or is stale again and again.
        """
        self._warners.add(listener)
        return lambda: self._warners.discard(listener)

    def wake(self) -> None:
        """Tries at once. Call it when the machine woke up or its network came back; the client notices sleep itself."""
        for connection in (self._connection, *self._more):
            connection.give("wake")

    def topic(
        self,
        name: str,
        *,
        reset: Optional[ResetHandler] = None,
        from_: Union[str, Since] = "start",
        after: Union[Position, str, int, None, _Stored] = STORED,
        replay: Optional[str] = None,
        form: Optional[str] = None,
        fold: bool = False,
        storage: Optional[Storage] = None,
        key: Optional[str] = None,
    ) -> Topic:
        """A topic to follow.

        reset(reset) is called before the first frame of each history; without it, a history that
        lost frames ends the loop with an error. from_ says where a topic without a position starts:
        "start", "head" (the next new frame) or since(…). after is a position in place of the stored
        one, or None for none; the position is then not stored. replay="all" reads the whole log,
        with the scope runtime.replay_all. form="full" asks for all members of frames. fold=True joins older
        events whose type ends in ".delta" into one frame, for views; exactly_once and replay never
        fold. key is the key of the position in the storage.
        """
        start = Beginning(replay, start_text(from_), form or self._form, fold)

        def follow(is_given: bool, position: Optional[Position], may_fold: bool) -> Subscription:
            beginning = start if may_fold else dataclasses.replace(start, fold=False)
            return self._follow(
                self._connection, name, beginning, None if is_given else storage or self._storage, key, position
            )

        is_given = after is not STORED
        position = read_position(after) if is_given else None
        if is_given and after is not None and position is None:
            raise ValueError("after must be a position or None")
        return Topic(name, follow, reset, is_given, position)

    def _connection_for(self, name: str) -> Connection:
        """A connection that does not follow the topic yet: a server delivers a topic once to each connection."""
        for connection in (self._connection, *self._more):
            if name not in connection.subscriptions:
                return connection
        if len(self._more) + 1 >= CONNECTIONS_MAX:
            return self._connection
        self._more.append(Connection(self._connection_options, self._world))
        return self._more[-1]

    def _follow(
        self,
        connection: Connection,
        name: str,
        start: Beginning,
        storage: Optional[Storage],
        key: Optional[str],
        given: Optional[Position],
    ) -> Subscription:
        self._check_open(connection)
        if name in connection.subscriptions:
            raise KhalaError("already_followed", f"The topic {name} is followed already.", topic=name)
        subscription = Subscription(name, connection, self._world, storage, key or f"khala:{name}", start)
        connection.add(subscription)
        if storage is None:
            subscription.begin(given, "start")
        else:
            before = self._keeper_before(storage, key or f"khala:{name}", subscription.keeper)
            loading = asyncio.ensure_future(subscription.load(before))
            self._loading.add(loading)
            loading.add_done_callback(self._loading.discard)
        return subscription

    def _check_open(self, connection: Optional[Connection] = None) -> None:
        connection = connection or self._connection
        if connection.state == "closed":
            raise connection.error or KhalaError("closed", "The client is closed.")

    def _keeper_before(self, storage: Storage, key: str, keeper: PositionKeeper) -> Optional[PositionKeeper]:
        """The keeper that may still store a position there. The next one is given to the one after."""
        before = self._keepers.get((id(storage), key))
        self._keepers[id(storage), key] = keeper
        return before

    def log(
        self,
        *,
        reset: Optional[Callable[[LogReset], Any]] = None,
        from_: Union[str, Since] = "start",
        after: Union[str, None, _Stored] = STORED,
        storage: Optional[Storage] = None,
        key: str = "khala-log",
    ) -> Log:
        """The whole log: the events of every entity that the token may read, in the order of their commits.

        The token needs runtime.audit or runtime.read_all. reset(reset) is called when the log starts
        again, because its history is another one; without it, the loop ends with an error. from_ says
        where a log without a cursor starts. after is a cursor in place of the stored one, or None for
        none; the cursor is then not stored.
        """
        if isinstance(after, str) and not is_cursor(after):
            raise ValueError("after must be a cursor or None")
        text, at = start_text(from_), storage or self._storage

        def follow() -> LogFollower:
            self._check_open()
            is_stored = isinstance(after, _Stored)
            keeper = PositionKeeper(at, key, write_cursor, self._storage_failed) if is_stored else None
            given = after if isinstance(after, str) else None
            follower = LogFollower(self._log_settings, self._world, keeper, text, given)
            self._logs.add(follower)
            follower.start(self._keeper_before(at, key, keeper) if keeper else None)
            return follower

        return Log(follow, reset)

    def _storage_failed(self, message: str, cause: Exception) -> None:
        error = KhalaError("storage_failed", message)
        error.__cause__ = cause
        self._warn(error)

    def collection(
        self,
        name: str,
        *,
        where: Optional[Mapping[str, Union[str, Sequence[str]]]] = None,
        conflate_ms: int = CONFLATE_MS,
        form: Optional[str] = None,
    ) -> Collection:
        """The documents of a summary topic that match. Every call for one name and filter answers the same collection.

        where has some of status, tag, parent_run_id and worker_id, each a text or a list of which one must
        be equal. The server sends the newest of each document at most every conflate_ms.
        """
        text = json.dumps(dict(where), sort_keys=True, separators=(",", ":")) if where else None
        start = Beginning(form=form or self._form, where=text, conflate_ms=conflate_ms)

        def follow(is_given: bool, position: Optional[Position], may_fold: bool) -> Subscription:
            return self._follow(self._connection_for(name), name, start, None, None, position)

        if (name, start) not in self._collections:
            self._collections[name, start] = Collection(lambda reset: Topic(name, follow, reset, True, None))
        return self._collections[name, start]

    async def close(self) -> None:
        """Ends every topic and collection, and waits until their positions are stored."""
        connections = [self._connection, *self._more]
        subscriptions = [one for connection in connections for one in connection.subscriptions.values()]
        for connection in connections:
            connection.give("stop")
        for loading in list(self._loading):
            loading.cancel()
        for subscription in subscriptions:
            await subscription.keeper.saved()
        for follower in list(self._logs):
            follower.stop()
            await follower.stopped()
        for collection in self._collections.values():
            await collection.close()
        for connection in connections:
            await connection.finished()

    async def __aenter__(self) -> Khala:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
