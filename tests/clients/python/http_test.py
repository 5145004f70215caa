"""HTTP answers and event streams that are whole, in pieces, malformed, cut off or of another request."""

import asyncio
import unittest

from support import ROOT  # noqa: F401

from khala._fallback import EventStreamDecoder
from khala._http import BadAnswer, HttpClient, base_of, refusal_of_answer


async def serve(test, answers):
    """A server that answers each request with the next text, and closes the connection after None."""
    seen = []

    async def accept(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
                seen.append((head, await reader.readexactly(length[0]) if length else b""))
                answer = answers.pop(0)
                request_id = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.startswith(b"X-Request-Id")][0]
                for piece in answer or []:
                    writer.write(piece.replace(b"$ID", request_id))
                    await writer.drain()
                if answer is None or answer[-1] == b"":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    test.addAsyncCleanup(server.wait_closed)
    test.addCleanup(server.close)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base")
    test.addCleanup(client.close)
    return client, seen


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


class Http(unittest.IsolatedAsyncioTestCase):
    async def read(self, client, body=b""):
        async with client.exchange("POST", "/path", {"A": "b"}, body) as answer:
            return answer.status, await answer.read()

    async def test_bodies_by_length_in_chunks_and_until_the_end(self):
        client, seen = await serve(self, [
            [OK + b"Content-Length: 5\r\n\r\nhel", b"lo"],
            [OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r", b"\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"],
            [b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"X-Request-Id: $ID\r\nContent-Length: 0\r\n\r\n"],
            [OK + b"\r\nto the end", b""],
        ])
        found = [await self.read(client, b"body") for _ in range(4)]
        self.assertEqual(found, [(200, b"hello"), (200, b"abcde"), (200, b""), (200, b"to the end")])
        self.assertTrue(seen[0][0].startswith(b"POST /base/path HTTP/1.1\r\nHost: 127.0.0.1:"))
        self.assertEqual(seen[0][1], b"body")

    async def test_a_connection_that_the_server_closed_meanwhile_is_replaced(self):
        client, seen = await serve(self, [[OK + b"Content-Length: 1\r\n\r\nx"], None, [OK + b"Content-Length: 1\r\n\r\ny"]])
        self.assertEqual([await self.read(client), await self.read(client)], [(200, b"x"), (200, b"y")])
        self.assertEqual(len(seen), 3)

    async def test_malformed_answers_raise(self):
        for text in (b"rubbish\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", b"x" * 100_000,
                     OK + b"Content-Length: 9\r\n\r\nshort", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                     OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", OK + b"X-Request-Id: other\r\nContent-Length: 0\r\n\r\n",
                     b""):
            client, _ = await serve(self, [[text, b""]])
            with self.assertRaises((BadAnswer, asyncio.IncompleteReadError, ConnectionError), msg=text[:50]):
                await self.read(client)

    async def test_headers_cannot_be_injected(self):
        client, _ = await serve(self, [])
        with self.assertRaises(ValueError):
            async with client.exchange("GET", "/", {"Authorization": "Bearer x\r\nEvil: 1"}):
                pass

    def test_addresses(self):
        self.assertEqual(base_of("wss://host:1/a/"), "https://host:1/a")
        for bad in ("host", "ftp://host", "http://", "http://host?q=1"):
            with self.assertRaises(ValueError):
                base_of(bad)

    def test_only_the_servers_own_body_decides(self):
        own = b'{"error":"token_revoked","message":"m","request_id":"x"}'
        self.assertEqual(refusal_of_answer(401, {}, own, "x").policy, "final")
        for body in (b"", b"no", b"[]", b"{}", b'{"error":"token_revoked"}', b"[" * 100_000):
            refusal = refusal_of_answer(401, {"retry-after": "2"}, body, "x")
            self.assertEqual((refusal.policy, refusal.code, refusal.retry_after), ("retry", "bad_gateway", 2.0))
        self.assertEqual(refusal_of_answer(401, {"x-request-id": "other"}, own, "x").policy, "retry")
        self.assertEqual(refusal_of_answer(503, {"retry-after": "9" * 400}, b"", "x").retry_after, 300.0)

    def test_event_streams_in_pieces_of_every_size(self):
        text = 'id: 5@e\r\nevent: message\r\ndata: {"a":\rdata: "é"}\n\n: comment\n\nretry: 250\r\n\r\ndata:x\n\n'.encode()
        wanted = [("message", '{"a":\n"é"}', "5@e", None), ("message", "", "", None), ("message", "", "", 250), ("message", "x", "", None)]
        for size in range(1, len(text) + 1):
            decoder = EventStreamDecoder()
            found = [event for i in range(0, len(text), size) for event in decoder.decode(text[i : i + size])]
            self.assertEqual([(one.type, "\n".join(one.lines), one.id, one.retry) for one in found], wanted, size)
        with self.assertRaises(UnicodeDecodeError):
            list(EventStreamDecoder().decode(b"data: \xff\n"))


if __name__ == "__main__":
    unittest.main()
