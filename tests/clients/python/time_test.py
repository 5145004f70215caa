"""Tokens, sleep, silence and clocks that jump, in a world of its own; positions and the window of repetitions."""

import asyncio
import base64
import json
import sys
import unittest

from support import StillWorld, settle

from khala._collection import Collection
from khala._connection import Connection, Options
from khala._errors import Refusal, lost, refusal_of
from khala._machine import token_life
from khala._frames import Position
from khala._position import Part, Parts, Range, continues, is_of_entity, is_range, read_position, stream_of, write_position
from khala._recent import GENERATION_IDS, GENERATIONS_MAX, Recent
from khala._subscription import Beginning, Subscription
from khala.producer import event_id


def token_of(world, seconds, skew=0.0):
    iat = int(world.clock + skew)
    claims = base64.urlsafe_b64encode(json.dumps({"iat": iat, "exp": iat + seconds}).encode()).rstrip(b"=").decode()
    return f"e30.{claims}.x"


class StillTransport:
    """A transport that always succeeds."""

    name = "still"

    def __init__(self, counts, events):
        self.counts, self.events = counts, events

    def open(self, token):
        self.counts["opens"] += 1
        self.events.opened()

    def join(self):
        self.events.joined(15.0)

    def refresh(self, token):
        self.counts["refreshes"] += 1
        self.events.refreshed()

    def heartbeat(self):
        if not self.counts["is_silent"]:
            self.events.heard(True)

    def close(self):
        pass

    async def closed(self):
        pass


class Time(unittest.IsolatedAsyncioTestCase):
    async def live(self, skew=0.0):
        world = StillWorld()
        counts = {"tokens": 0, "opens": 0, "refreshes": 0, "is_silent": False}

        def token():
            counts["tokens"] += 1
            return token_of(world, 300, skew)

        options = Options(token, [lambda events: StillTransport(counts, events)], lambda: None, lambda error: None)
        connection = Connection(options, world)
        connection.give("start")
        for _ in range(10):
            await settle()
        self.assertEqual(connection.state, "live")
        return world, counts, connection

    async def test_a_token_is_renewed_after_three_quarters_of_its_life_also_with_a_clock_that_is_hours_off(self):
        for skew in (0, 7200, -7200):
            world, counts, _ = await self.live(skew)
            for _ in range(220):
                await world.advance(1)
            self.assertEqual(counts["refreshes"], 0)
            for _ in range(10):
                await world.advance(1)
            self.assertEqual((counts["tokens"], counts["opens"], counts["refreshes"]), (2, 1, 1))

    async def test_after_sleep_the_token_is_renewed_at_once_whichever_clock_went_on(self):
        for mono, wall in ((0.001, 400), (400, 400)):
            world, counts, connection = await self.live()
            world.clock += wall
            world.mono += mono
            await world.advance(1)
            await world.advance(1)
            self.assertTrue(counts["refreshes"] >= 1 or counts["opens"] >= 2, counts)
            self.assertIn(connection.state, ("live", "backing_off", "authenticating"))

    async def test_a_clock_that_is_set_back_does_not_keep_a_token_beyond_its_life(self):
        world, counts, _ = await self.live()
        world.clock -= 86_400
        for _ in range(226):
            await world.advance(1)
        self.assertEqual(counts["refreshes"], 1)
        world.clock += 2 * 86_400
        for _ in range(5):
            await world.advance(1)
        self.assertLessEqual(counts["refreshes"], 3)

    async def test_a_server_that_falls_silent_is_left_after_two_heartbeats_and_some_seconds(self):
        world, counts, _ = await self.live()
        counts["is_silent"] = True
        for _ in range(34):
            await world.advance(1)
        self.assertEqual(counts["opens"], 1)
        for _ in range(5):
            await world.advance(1)
        self.assertEqual(counts["opens"], 2)


class Transports(unittest.IsolatedAsyncioTestCase):
    """Which transport is used, with two that obey the test."""

    def connect(self, *ends):
        """ends: how the attempts with the first transport end, one after another; then they succeed."""
        world, opened, ends = StillWorld(), [], list(ends)

        class First(StillTransport):
            name = "first"

            def open(self, token):
                opened.append((world.mono, "first"))
                end = ends.pop(0) if ends else None
                asyncio.get_running_loop().call_soon(self.events.closed, end) if end else self.events.opened()

            def join(self):
                self.events.heard(True)
                self.events.joined(15.0)

            def subscribe(self, name, position, start):
                opened.append((name, position))

        class Second(First):
            name = "second"

            def open(self, token):
                opened.append((world.mono, "second"))
                self.events.opened()

        counts = {"is_silent": False, "opens": 0, "refreshes": 0}
        options = Options(lambda: token_of(world, 100_000), [lambda events: First(counts, events), lambda events: Second(counts, events)],
                          lambda: None, lambda error: None)
        connection = Connection(options, world)
        self.addAsyncCleanup(connection.finished)
        self.addCleanup(connection.give, "stop")
        subscription = Subscription("room:1", connection, world, None, "", Beginning())
        connection.add(subscription)
        subscription.begin(Position("e", 7), "start")
        return world, connection, opened, ends

    async def test_a_server_that_is_away_or_refuses_a_token_is_no_fault_of_the_transport(self):
        away = lost(ConnectionRefusedError(111, "refused"), "connect_failed")
        many = lost(OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"), "connect_failed")
        denied = Refusal("reauthenticate", "invalid_token", status=401, body={})
        full = Refusal("retry", "too_many_connections", status=503, body={})
        world, connection, opened, _ = self.connect(away, many, away, denied, full, full, away)
        for _ in range(600):
            await world.advance(1)
        self.assertEqual({one[1] for one in opened if isinstance(one[0], float)}, {"first"})
        self.assertEqual(connection.transport_name, "first")

    async def test_a_fallback_is_left_for_the_first_transport_after_waits_that_grow_to_five_minutes(self):
        blocked = Refusal("retry", "bad_gateway", status=403)
        world, connection, opened, ends = self.connect(*[blocked] * 9)
        await world.advance(10)
        self.assertEqual(connection.transport_name, "second")
        self.assertEqual([name for at, name in opened if isinstance(at, float)], ["first", "first", "second"])
        begun, tried = world.mono, len(opened)
        for _ in range(1600):
            await world.advance(1)
        at = [time - begun for time, name in opened[tried:] if name == "first"]
        waits = [later - earlier for earlier, later in zip([-9.0, *at], at)]
        for wait, least in zip(waits, (30, 60, 120, 240, 300, 300, 300)):
            self.assertTrue(least <= wait <= least * 1.25 + 12, waits)
        self.assertEqual((connection.transport_name, connection.state), ("second", "live"))
        ends.clear()
        for _ in range(400):
            await world.advance(1)
        self.assertEqual((connection.transport_name, connection.state), ("first", "live"))
        self.assertEqual(opened[-1], ("room:1", Position("e", 7)), "the topic goes on behind its position")
        count = len(opened)
        for _ in range(1000):
            await world.advance(1)
        self.assertEqual(len(opened), count)


class Collections(unittest.IsolatedAsyncioTestCase):
    async def test_a_collection_that_is_opened_while_it_ends_follows_its_topic_again(self):
        for turns in range(11):
            followed = []

            class Endless:
                name = "runtime.run_summaries"

                def __init__(self):
                    self.closed = asyncio.Event()

                async def __aiter__(self):
                    followed.append(1)
                    self.closed.clear()
                    await self.closed.wait()
                    await asyncio.sleep(0)
                    return
                    yield

                async def close(self):
                    self.closed.set()

            collection = Collection(lambda reset: Endless())
            release = collection.open()
            await settle()
            release()
            for _ in range(turns):
                await asyncio.sleep(0)
            collection.open()
            await settle()
            self.assertIsNotNone(collection._running, turns)
            await collection.close()


class Pure(unittest.TestCase):
    def test_the_life_of_a_token_comes_from_its_claims_or_is_unknown(self):
        world = StillWorld()
        self.assertEqual(token_life(token_of(world, 300), world.clock), 300)
        self.assertEqual(token_life(token_of(world, 300, -100), world.clock), 200)
        for text in ("", "a.b.c", "opaque", "a.e30.c", "a.eyJpYXQiOjUsImV4cCI6MX0.c", "a.W10.c", "a.\xff.c"):
            self.assertIsNone(token_life(text, world.clock), text)

    def test_repeated_events_are_recognised_for_five_minutes(self):
        recent = Recent(documents_max=100)
        for event in ({"kind": "said", "event_id": "e1"}, {"kind": "said", "event_id": event_id()}):
            self.assertEqual([recent.repeats(event, 0), recent.repeats(event, 299.9), recent.repeats(event, 600.1)], [False, True, False])
        self.assertFalse(recent.repeats({"kind": "x"}, 0))
        document = {"kind": "run_summary", "doc_key": "a", "doc_version": 2, "event_id": "e9"}
        self.assertEqual([recent.repeats(document, 601), recent.repeats({**document, "doc_version": 1}, 601),
                          recent.repeats({**document, "doc_version": 3}, 601)], [False, True, False])
        recent.expire(1000)
        self.assertEqual(len(recent), 0)
        for i in range(1000):
            recent.repeats({**document, "doc_key": str(i)}, 1000)
        self.assertEqual(len(recent), 100)
        recent.clear()
        self.assertEqual((len(recent), recent.repeats(document, 1000)), (0, False))

    def test_events_are_recognised_at_a_thousand_a_second_in_stated_memory_and_no_new_one_is_taken_for_known(self):
        ids = [event_id(1_700_000_000 + i / 1000) for i in range(350_000)]
        recent = Recent()
        self.assertFalse(any(recent.repeats({"kind": "said", "event_id": one}, i / 1000) for i, one in enumerate(ids)))
        tables = sys.getsizeof(recent._ids) + sys.getsizeof(recent._numbers) + sum(len(one._packed) for one in recent._older)
        self.assertLess(tables + len(recent._ids) * sys.getsizeof(2**127), 13_000_000)
        last = len(ids) - 1
        self.assertTrue(all(recent.repeats({"kind": "said", "event_id": one}, last / 1000) for one in ids[-300_000:]))
        # An id that differs in its last bit only, or in its case, is another one.
        flipped = ids[-1][:-1] + format(int(ids[-1][-1], 16) ^ 1, "x")
        self.assertFalse(recent.repeats({"kind": "said", "event_id": flipped}, last / 1000))
        self.assertFalse(recent.repeats({"kind": "said", "event_id": ids[-2].upper()}, last / 1000))
        for i in range(60_000):  # a rate beyond the bound forgets the oldest, and does not grow
            recent.repeats({"kind": "said", "event_id": f"text {i}"}, last / 1000)
        self.assertLessEqual(len(recent), GENERATIONS_MAX * GENERATION_IDS)
        recent.expire(last / 1000 + 300.1)
        self.assertEqual(len(recent), 0)

    def test_positions_are_read_strictly(self):
        for good in ('{"epoch":"e","seq":5}', {"epoch": "e", "seq": 5}, Position("e", 5), "5@e"):
            self.assertEqual(read_position(good), ("e", 5))
        for bare in ('{"seq":5}', {"seq": 5, "epoch": None}, Position(None, 5), 5, "5"):
            self.assertEqual(read_position(bare), (None, 5), bare)
        self.assertEqual([write_position(Position("e", 5)), write_position(Position(None, 5))], ['{"epoch":"e","seq":5}', '{"seq":5}'])
        for bad in ("", "null", "[]", '{"epoch":"e","seq":1.5}', '{"epoch":"e","seq":true}', '{"epoch":"","seq":1}', True, 1.5, None, "5@", "x@e", "-1", "²",
                    {"epoch": "e", "seq": -1}, {"epoch": "x" * 129, "seq": 1}, "x" * 1000, "[" * 100_000):
            self.assertIsNone(read_position(bad), bad)

    def test_ranges_ascend_between_their_ends_and_continue_a_position(self):
        def frames(*seqs):
            return [{"seq": seq} for seq in seqs]

        self.assertTrue(is_range(Range("e", 5, 9, frames(6, 8))))
        for bad in (Range("e", 5, 9, frames(5)), Range("e", 5, 9, frames(10)), Range("e", 5, 9, frames(7, 7)), Range("e", 9, 5, []),
                    Range(None, 5, 9, []), Range("e", 5, 9, None), Range("e", 5, 9, [None]), Range("e", True, 9, []), Range("e", 5, 9.5, [])):
            self.assertFalse(is_range(bad), bad)
        position = Position("e", 5)
        self.assertTrue(continues(position, Range("e.0", 3, 9, frames(4, 9))))
        self.assertFalse(continues(position, Range("e", 6, 9, [])))
        self.assertFalse(continues(position, Range("f", 5, 9, [])))
        self.assertFalse(continues(None, Range("e", 5, 9, [])))
        self.assertTrue(continues(Position(None, 5), Range("e", 5, 9, [])), "the server has accepted it")

    def test_a_snapshot_is_whole_or_not_at_all(self):
        def part(number, **more):
            return Part({"epoch": "e", "watermark": 7, "part": number, "documents": [{"doc_key": str(number)}], **more})

        parts = Parts()
        self.assertFalse(parts.fits(part(1)))
        parts.add(part(0))
        for bad in (part(0), part(2), part(1, watermark=8), part(1, epoch="f"), part(1, documents=None), part(1, documents=[{}])):
            self.assertFalse(parts.fits(bad), bad)
        self.assertTrue(parts.fits(part(1)))
        parts.add(part(1))
        position, documents = parts.take()
        self.assertEqual((position, [one.doc_key for one in documents]), (("e", 7), ["0", "1"]))

    def test_a_message_is_never_paired_with_the_code_of_another_error(self):
        own = refusal_of({"error": "missing_scope", "reason_code": "missing_scope", "message": "The token lacks the required scope."})
        self.assertEqual((own.code, own.message), ("missing_scope", "The token lacks the required scope."))
        other = refusal_of({"code": "forbidden_topic", "reason_code": "missing_scope", "message": "The token does not grant this topic."})
        self.assertEqual((other.code, other.message),
                         ("missing_scope", "The reason is missing_scope. The server answered forbidden_topic: The token does not grant this topic."))

    def test_stream_ids(self):
        for topic, stream in (("run:a:events", "runtime.run.a.events"), ("worker:w:lifecycle", "runtime.worker.w.lifecycle"),
                              ("fleet:user:7:workers", "runtime.fleet.user.7.workers"), ("room:1", "runtime.topic.room.1")):
            self.assertEqual(stream_of(topic), stream)
        found = [is_of_entity(name) for name in ("run:a:events", "runtime.run.a.events", "worker:w:lifecycle", "room:1", "runtime.run_summaries")]
        self.assertEqual(found, [True, True, True, False, False])


if __name__ == "__main__":
    unittest.main()
