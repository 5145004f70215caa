"""Tokens, sleep, silence and clocks that jump, in a world of its own; positions and the window of repetitions."""

import asyncio
import base64
import json
import tracemalloc
import unittest

from support import StillWorld, settle

from khala._connection import Connection, Options
from khala._machine import token_life
from khala._frames import Position
from khala._position import Part, Parts, Range, continues, is_range, read_position, stream_of
from khala._recent import GENERATION_IDS, GENERATIONS_MAX, Recent
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
        ids = [event_id(1_700_000_000 + i / 1000) for i in range(400_000)]
        recent = Recent()
        tracemalloc.start()
        try:
            self.assertFalse(any(recent.repeats({"kind": "said", "event_id": one}, i / 1000) for i, one in enumerate(ids)))
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        self.assertLess(kept, 13_000_000)
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
        for good in ('{"epoch":"e","seq":5}', {"epoch": "e", "seq": 5}, Position("e", 5)):
            self.assertEqual(read_position(good), ("e", 5))
        for bad in ("", "null", "[]", '{"epoch":"e","seq":1.5}', '{"epoch":"e","seq":true}', '{"epoch":"","seq":1}', 7, None,
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

    def test_stream_ids(self):
        for topic, stream in (("run:a:events", "runtime.run.a.events"), ("worker:w:lifecycle", "runtime.worker.w.lifecycle"),
                              ("fleet:user:7:workers", "runtime.fleet.user.7.workers"), ("room:1", "runtime.topic.room.1")):
            self.assertEqual(stream_of(topic), stream)


if __name__ == "__main__":
    unittest.main()
