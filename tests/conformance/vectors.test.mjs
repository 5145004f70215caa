// Every row of spec/vectors, through the command line.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { answer, run, vectors } from "../lib/khala.mjs";

function rows(table, name) {
  assert.ok(table[name].length > 0, `${name} has rows`);
  return table[name];
}

/** Asserts exit code 1, nothing on stdout, and a reason on stderr. */
function refused(args, options) {
  const { code, out, problem } = run(args, options);
  assert.equal(code, 1, `${args}: ${out}`);
  assert.equal(out, "");
  assert.match(problem, /^khala: .+\n$/);
  return problem;
}

test("every topic maps to its stream id", () => {
  for (const { topic, stream_id: stream } of rows(vectors("topic_mapping"), "forward")) {
    assert.equal(answer(["topic", "map", topic]), stream, topic);
  }
});

test("every stream id maps back to its topic, or to no topic", () => {
  for (const { topic, stream_id: stream } of rows(vectors("topic_mapping"), "reverse")) {
    if (topic === null) refused(["topic", "unmap", stream]);
    else assert.equal(answer(["topic", "unmap", stream]), topic, stream);
  }
});

test("every event cursor encodes and decodes", () => {
  for (const { timestamp_ms: timestamp, uuid, cursor } of rows(vectors("event_cursor"), "derive")) {
    assert.equal(answer(["cursor", "encode", String(timestamp), uuid]), cursor);
    assert.equal(answer(["cursor", "decode", cursor]), `${timestamp} ${uuid}`);
  }
});

test("event cursors compare by timestamp and UUID in both directions", () => {
  for (const { a, b, expected } of rows(vectors("event_cursor"), "compare")) {
    assert.equal(answer(["cursor", "compare", a, b]), String(expected));
    assert.equal(answer(["cursor", "compare", b, a]), String(-expected));
    assert.equal(answer(["cursor", "compare", a, a]), "0");
  }
});

test("every invalid event cursor is refused with its reason", () => {
  const { derive, invalid } = vectors("event_cursor");
  for (const { name, cursor } of rows({ invalid }, "invalid")) {
    const problem = refused(["cursor", "decode", cursor]);
    assert.match(problem, /^khala: invalid_cursor: .+/, name);
    refused(["cursor", "compare", cursor, derive[0].cursor]);
    refused(["cursor", "compare", derive[0].cursor, cursor]);
  }
});

/** What a legacy cursor means, read without the server's code: its time, with the least UUIDv7. */
function legacyPosition(cursor) {
  const [, time, id] = /^(\d+):(.+)$/su.exec(Buffer.from(cursor, "base64").toString("utf8"));
  assert.ok(id);
  return `${time} 00000000-0000-7000-8000-000000000000`;
}

test("legacy event cursors are taken with KHALA_LEGACY_CURSORS only, as positions before their millisecond", () => {
  const settings = { KHALA_LEGACY_CURSORS: "true" };
  const { derive, invalid, legacy, legacy_invalid: bad } = vectors("event_cursor");
  for (const { name, cursor, timestamp_ms: timestamp } of rows({ legacy }, "legacy")) {
    assert.match(refused(["cursor", "decode", cursor]), /^khala: invalid_cursor: .+/, name);
    const position = answer(["cursor", "decode", cursor], { settings });
    assert.equal(position, legacyPosition(cursor), name);
    assert.equal(position.split(" ")[0], String(timestamp));
    const { out } = run(["cursor", "compare", cursor, derive[0].cursor], { settings });
    assert.equal(out.trim(), String(Math.sign(timestamp - derive[0].timestamp_ms)));
  }
  const strict = new Set(legacy.map(({ cursor }) => cursor));
  for (const { name, cursor } of [...bad, ...invalid.filter((one) => !strict.has(one.cursor) && /empty|colon|zero|sign|2\^53|alphabet|mod 4/.test(one.name))]) {
    const { code, problem } = run(["cursor", "decode", cursor], { settings });
    assert.deepEqual([code, problem.split(": ").slice(0, 2)], [1, ["khala", "invalid_cursor"]], name);
  }
  for (const { cursor, timestamp_ms: timestamp, uuid } of derive) assert.equal(answer(["cursor", "decode", cursor], { settings }), `${timestamp} ${uuid}`);
});

test("every link of a chain has its hash", () => {
  const sorted = (_, value) => value && typeof value === "object"
    ? Object.fromEntries(Object.keys(value).sort().map((name) => [name, value[name]])) : value;
  for (const { name, prev_chain_hash: before, canonical_json: text, chain_hash: hash, ...link } of rows(vectors("chain_hash"), "vectors")) {
    const { cursor, entity, entity_id: id, event_id, payload_hash, seq, event_type: type } = link;
    const signed = link.chain_version === 1 ? { cursor, entity: `${entity}:${id}`, event_id, payload_hash, seq, type } : link;
    assert.equal(JSON.stringify(signed, sorted), text, name);
    const digest = createHash("sha256").update(Buffer.from(before.slice(7), "hex")).update(text).digest("hex");
    assert.equal(`sha256:${digest}`, hash, name);
  }
});

test("every position has the expected lineage", () => {
  for (const vector of rows(vectors("lineage"), "vectors")) {
    const { about, after_seq: after, epoch, topic_epoch: own, fork_seq: fork, window, reason_codes: reasons } = vector;
    const args = ["cursor", "plan", "--json", "--after", epoch ? `${after}@${epoch}` : String(after)];
    if (epoch) args.push("--store-epoch", own);
    if (fork !== null) args.push("--fork", String(fork));
    if (window) args.push("--oldest", String(window.oldest_seq), "--head", String(window.head_seq), "--budget", String(window.replay_budget_events));
    const { code, out } = run(args);
    // The verb compares the epochs of position 0 too, and takes a window that is older than the position.
    const expected = reasons.filter((reason) => reason !== "cursor_ahead_of_head");
    if (after === 0 && epoch && epoch !== own) expected.unshift("epoch_mismatch");
    assert.deepEqual([JSON.parse(out).reason_codes ?? [], code], [expected, expected.length > 0 ? 1 : 0], about);
  }
});

test("every continuity plan has the expected decision", () => {
  for (const { after_seq: after, window, expected } of rows(vectors("continuity"), "vectors")) {
    const args = ["cursor", "plan", "--json", "--after", String(after)];
    if (window) {
      args.push("--oldest", String(window.oldest_seq), "--head", String(window.head_seq));
      args.push("--budget", String(window.replay_budget_events));
    }
    const { code, out } = run(args);
    assert.deepEqual(JSON.parse(out), expected, args.join(" "));
    assert.equal(code, expected.decision === "resume" ? 0 : 1, args.join(" "));
  }
});

test("an epoch mismatch is the first of the reasons", () => {
  const plan = ["cursor", "plan", "--json", "--after", "0", "--oldest", "2", "--head", "3", "--budget", "1"];
  const told = JSON.parse(run([...plan, "--epoch", "one", "--store-epoch", "two"]).out);
  assert.deepEqual(told.reason_codes, ["epoch_mismatch", "retention_floor_breach", "replay_budget_exceeded"]);
  const same = JSON.parse(run([...plan, "--epoch", "one", "--store-epoch", "one"]).out);
  assert.deepEqual(same.reason_codes, ["retention_floor_breach", "replay_budget_exceeded"]);
});

test("every payload has its canonical form and hash", () => {
  for (const { name, payload, canonical_json: canonical, sha256 } of rows(vectors("payload_hash"), "vectors")) {
    const input = JSON.stringify(payload, null, 2);
    assert.equal(answer(["json", "canonical"], { input }), canonical, name);
    assert.equal(answer(["json", "hash"], { input }), sha256, name);
    assert.equal(answer(["json", "hash"], { input: canonical }), sha256, name);
  }
});

test("a text that is not JSON has neither a canonical form nor a hash", () => {
  for (const input of ["", "{", "nul", '{"a":1,"a":2}', "[1,]", '"\\ud800"', "1 2"]) {
    refused(["json", "canonical"], { input });
    refused(["json", "hash"], { input });
  }
});
