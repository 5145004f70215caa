"""The Python client: a loop over the frames of the topic that does nothing with them.

With the argument "bare" it is the package websockets with the messages of a subscription, each parsed.
clients/measure.mjs describes the settings and the answer.
"""

import asyncio
import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python/src"))

from khala import Khala  # noqa: E402
from khala._websocket import open_websocket  # noqa: E402

URL, TOKEN, TOPIC = (os.environ[f"BENCH_{name}"] for name in ("URL", "TOKEN", "TOPIC"))
FRAMES = int(os.environ["BENCH_FRAMES"])


async def follow():
    last = 0
    async with Khala(URL, token=lambda: TOKEN, transports=["websocket"]) as khala:
        async for frame in khala.topic(TOPIC):
            assert frame.seq == last + 1, frame
            last = frame.seq
            if last == FRAMES:
                return last


async def bare():
    socket = await open_websocket(f"ws{URL[4:]}/socket/websocket?vsn=2.0.0&token={TOKEN}", {}, None, 10)
    await socket.send(json.dumps(["1", "1", "sync:v1", "phx_join", {}]))
    resume = [{"topic": TOPIC, "watermark": 0}]
    await socket.send(json.dumps(["1", "2", "sync:v1", "sync:subscribe", {"topics": [TOPIC], "resume_after": resume}]))
    count = 0
    while count < FRAMES:
        count += len(json.loads(await socket.recv())[4].get("updates", ()))
    await socket.close()
    return count


begun, cpu = time.perf_counter(), time.process_time()
applied = asyncio.run(bare() if sys.argv[1:] == ["bare"] else follow())
print(json.dumps({"frames": applied, "seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}))
