"""A Python client that a Node test drives: commands on stdin, answers and events on stdout, one JSON text a line.

A command is {"id", "do", …}. Its answer is {"id", "value"} or {"id", "error"}. Everything else is an
event of a client, topic, collection or producer, under the name that the command gave it: {"of", …}.
"""

import asyncio
import gc
import json
import pathlib
import resource
import ssl
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "clients/python/src"))

import khala  # noqa: E402


def report(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def error_of(error):
    return {"code": getattr(error, "code", type(error).__name__), "message": str(error),
            "status": getattr(error, "status", None), "cause": str(error.__cause__) if error.__cause__ else None,
            "topic": getattr(error, "topic", None), "request_id": getattr(error, "request_id", None),
            "event_id": getattr(error, "event_id", None),
            "retry_after": getattr(error, "retry_after", None)}


def reset_of(reset):
    members = {"reason": reset.reason, "from_seq": reset.from_seq, "truncated": reset.truncated}
    if reset.documents is not None:
        members["documents"] = [{"doc_key": one.doc_key} for one in reset.documents]
    return members


def trusting(ca_file):
    """The option that trusts only the authorities of the file."""
    return {"ssl": ssl.create_default_context(cafile=ca_file)} if ca_file else {}


def position_of(position):
    return position and {"epoch": position.epoch, "seq": position.seq}


class FailingStorage:
    def load(self, key):
        raise OSError("no disk")

    async def save(self, key, text):
        raise OSError("no disk")


class FixedStorage:
    """Answers a value of the test, and keeps nothing."""

    def __init__(self, value):
        self.value = value

    def load(self, key):
        return self.value

    def save(self, key, text):
        pass


class SlowStorage(khala.MemoryStorage):
    """Answers a save much later."""

    async def save(self, key, text):
        for _ in range(500):
            await asyncio.sleep(0)
        super().save(key, text)


class Driver:
    def __init__(self):
        self.objects = {}
        self.storages = {}
        self.questions = {}

    def storage(self, given):
        if given is None:
            return None
        kind = given["kind"]
        name = given.get("name", "")
        if (kind, name) not in self.storages:
            make = {"memory": khala.MemoryStorage, "failing": FailingStorage, "slow": SlowStorage, "fixed": lambda: FixedStorage(given["value"]),
                    "file": lambda: khala.FileStorage(given["folder"])}
            self.storages[kind, name] = make[kind]()
        return self.storages[kind, name]

    def token_callback(self, given, name):
        """A callback that answers a text, or asks the test."""
        if isinstance(given, str):
            return lambda: given

        async def ask():
            number = len(self.questions)
            self.questions[number] = asyncio.get_running_loop().create_future()
            report({"of": name, "question": number})
            answer = await self.questions[number]
            if "raise" in answer:
                raise khala.TokenDenied(answer["raise"]) if answer.get("final") else RuntimeError(answer["raise"])
            return answer["token"]
        return ask

    async def do_answer(self, number, answer):
        future = self.questions[number]
        if not future.done():
            future.set_result(answer)

    # ---- consuming ----

    async def do_open(self, name, url, token, storage=None, back_off=None, prefer_again=None, ca_file=None, **options):
        options.update(trusting(ca_file))
        if prefer_again:
            options["prefer_again"] = khala.BackOff(*prefer_again)
        client = khala.Khala(url, token=self.token_callback(token, name), storage=self.storage(storage),
                             back_off=khala.BackOff(*back_off or [0.02, 0.2]), **options)
        client.on_warning(lambda error: report({"of": name, "warning": error_of(error)}))
        client.subscribe(lambda state: report({"of": name, "state": {
            "status": state.status, "transport": state.transport, "error": state.error and error_of(state.error)}}))
        self.objects[name] = client

    async def do_follow(self, name, client, topic, is_handled=True, until=None, since=None, **options):
        if since:
            options["from_"] = khala.since(since)

        def reset(reset):
            report({"of": name, "reset": reset_of(reset)})

        one = self.objects[name] = self.objects[client].topic(topic, reset=reset if is_handled else None, **options)

        async def run():
            try:
                for last in until if isinstance(until, list) else [until]:  # one loop after another
                    async for frame in one:
                        report({"of": name, "frame": frame.members})
                        if frame.seq == last:
                            break
                report({"of": name, "end": None})
            except Exception as error:
                report({"of": name, "end": error_of(error)})
        asyncio.ensure_future(run())

    async def do_topic(self, name):
        one = self.objects[name]
        return {"state": one.state, "position": position_of(one.position), "is_pending": one.is_pending}

    async def do_close(self, name, **options):
        await self.objects.pop(name).close(**options)

    async def do_memory(self):
        """The number of objects that the garbage collector knows, and the memory of the process in bytes."""
        gc.collect()
        return {"objects": len(gc.get_objects()), "bytes": int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()}

    async def do_save(self, storage, key, text):
        self.storage(storage).save(key, text)

    async def do_load(self, storage, key):
        text = self.storage(storage).load(key)
        return json.loads(await text if asyncio.iscoroutine(text) else text or "null")

    async def do_log(self, name, client, is_handled=True, until=None, since=None, **options):
        if since:
            options["from_"] = khala.since(since)
        reset = (lambda reset: report({"of": name, "reset": {"reason": reset.reason}})) if is_handled else None
        one = self.objects[name] = self.objects[client].log(reset=reset, **options)
        count = 0

        async def run():
            nonlocal count
            try:
                async for event in one:
                    assert event.cursor == event.members["cursor"]
                    report({"of": name, "frame": event.members})
                    count += 1
                    if count == until:
                        break
                report({"of": name, "end": None})
            except Exception as error:
                report({"of": name, "end": error_of(error)})
        asyncio.ensure_future(run())

    async def do_log_position(self, name):
        return self.objects[name].position

    # ---- collections ----

    async def do_collect(self, name, client, topic, **options):
        one = self.objects[name] = self.objects[client].collection(topic, **options)
        stop = one.subscribe(lambda change: report({"of": name, "change": {"type": change.type, "key": change.key}}))
        self.objects[f"{name}.stop"] = stop

    async def do_collection(self, name):
        one = self.objects[name]
        return {"documents": dict(one), "size": len(one), "is_ready": one.is_ready, "is_same": one.snapshot() is one.snapshot()}

    async def do_get(self, name, key):
        return self.objects[name].get(key)

    async def do_release(self, name):
        self.objects.pop(f"{name}.stop")()

    # ---- producing ----

    async def do_produce(self, name, url, token, back_off=None, limits=None, outbox=None, ca_file=None, **options):
        options.update(trusting(ca_file))
        producer = self.objects[name] = khala.Producer(
            url, token=self.token_callback(token, name), back_off=khala.BackOff(*back_off or [0.02, 0.2]),
            limits=khala.Limits(**limits or {}), outbox=khala.Outbox(outbox) if outbox else None,
            rejected=lambda event, error: report({"of": name, "rejected": {"event": event, "code": error.code}}), **options)
        producer.on_warning(lambda error: report({"of": name, "warning": error_of(error)}))

    async def do_chain(self, name, event, turns):
        """Appends after the answer of the event before and so many turns of the event loop."""
        for count in [0, *turns]:
            for _ in range(count):
                await asyncio.sleep(0)
            await self.objects[name].append(**event)

    async def do_append(self, name, events):
        """Appends all events, in order, and answers the result of each."""
        producer = self.objects[name]
        answers = []
        for event in events:
            try:
                answers.append(producer.append(**event))
            except khala.KhalaError as error:
                answers.append(error)
        report({"of": name, "length": len(producer), "is_full": producer.is_full})
        return [await self.result(answer) for answer in answers]

    async def result(self, answer):
        try:
            if isinstance(answer, khala.KhalaError):
                raise answer
            appended = await answer
            return {"event": dict(appended.event), "seq": appended.seq, "deduplicated": appended.deduplicated}
        except khala.KhalaError as error:
            return {"error": error_of(error)}

    async def do_room(self, name, **entity):
        await self.objects[name].room(**entity)

    async def do_flush(self, name):
        await self.objects[name].flush()

    async def do_event_ids(self, walls):
        return [khala.event_id(wall) for wall in walls]


async def run(driver, message):
    name, number = message.pop("do"), message.pop("id")
    try:
        report({"id": number, "value": await getattr(driver, f"do_{name}")(**message)})
    except Exception as error:
        report({"id": number, "error": error_of(error)})


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    driver = Driver()
    report({"ready": True})
    while True:
        line = await reader.readline()
        if not line:
            return
        # In the order of the commands, up to the first wait of each.
        asyncio.ensure_future(run(driver, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
