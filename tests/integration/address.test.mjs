// Topics and stream ids are one address space: each name reaches the same topic on every transport.
import assert from "node:assert/strict";
import { test } from "node:test";
import { operate } from "../lib/operator.mjs";
import { Socket } from "../lib/socket.mjs";

const bearer = (token) => ({ headers: { authorization: `Bearer ${token}` } });

test("topics and stream ids are one address space", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0" } });

  await t.test("a topic has the same routes under /v1/topics and under /internal/v1/khala/topics", async () => {
    await operator.did("topics/both/events", { event_type: "x" });
    for (const base of ["/v1/topics/both", "/internal/v1/khala/topics/both"]) {
      const page = await operator.read(`${base}/messages?after_seq=0`);
      assert.deepEqual(page.messages.map((one) => one.sequence), [1]);
      const socket = await Socket.open(operator, `${base}/ws?after_seq=0`, bearer(operator.reader));
      await socket.until((one) => one.of("message").length === 1, "the message");
    }
  });
});
