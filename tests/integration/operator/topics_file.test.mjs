// Topic policies that users declare in KHALA_TOPICS_FILE.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "../../lib/cases.mjs";
import { folder, run } from "../../lib/khala.mjs";
import { operate } from "../../lib/operator.mjs";
import { Client } from "../../lib/phoenix.mjs";
import { scrape } from "../../lib/prometheus.mjs";
import { sql } from "../../lib/store.mjs";
import { until } from "../../lib/wait.mjs";

const RULES = `# rules of this test
chat:*         replay_budget_events=5 publish_rate_per_second=3 class=chat
tenant:*:feed  qos_tier=hot max_payload_bytes=100 retention_seconds=1234   # small
*:big          max_payload_bytes=400000
run:fast*      publish_rate_per_second=2 replay_budget_events=4
`;

/** A server with these rules, and what changes them. */
async function ruled(t, rules = RULES, settings = {}) {
  const file = join(folder(t), "topics");
  writeFileSync(file, rules);
  const operator = await operate(t, { settings: { KHALA_TOPICS_FILE: file, RUNTIME_KHALA_POLL_MIN_INTERVAL_MS: "0", ...settings } });
  let reloads = 0;
  /** Writes other rules, and waits until the server has read them; answers the line of the log. */
  const reload = async (text, outcome = "reloaded") => {
    if (text != null) writeFileSync(file, text);
    operator.server.kill("SIGHUP");
    const lines = () => operator.server.log.match(/^.* topics\.(?:reloaded|reload_failed|unchanged) .*\n/gm) ?? [];
    await operator.server.until(() => lines().length > reloads, "the server has read the file");
    const line = lines()[reloads++];
    assert.match(line, new RegExp(`topics\\.${outcome} `));
    return line;
  };
  return { operator, file, reload };
}

const said = (text = "hello") => ({ event_type: "said", payload: { text } });

/** How many of ten appends in one batch are accepted. */
async function accepted(operator, target, event_type = "said") {
  const results = await operator.batch(Array(10).fill({ ...target, event_type }));
  return results.filter(({ status }) => status === 200).length;
}

const policyOf = async (operator, topic) => operator.read(`topics/${encodeURIComponent(topic)}/policy`);

test("a file that is no regular file is refused, and nothing waits for it", async (t) => {
  const { operator, file, reload } = await ruled(t);
  rmSync(file);
  execFileSync("mkfifo", [file]);
  assert.match(await reload(null, "reload_failed"), /is not a regular file/);
  assert.equal((await policyOf(operator, "chat:one")).replay_budget_events?.value ?? 5, 5);
  rmSync(file);
  assert.match(await reload(RULES.split("\n").slice(0, 3).join("\n")), /rules=2/);
});

test("rules limit the topics whose names they match, and no others", async (t) => {
  const { operator } = await ruled(t);
  // One commit takes no time, so that no token comes back.
  const results = await operator.batch(Array(10).fill({ topic: "chat:one", event_type: "said" }));
  assert.deepEqual(results.map(({ status }) => status).slice(0, 4), [200, 200, 200, 429]);
  let limited;
  await until(async () => (limited = await operator.post("topics/chat:one/events", said())).status === 429, "the limit");
  const { error, message, details } = JSON.parse(limited.body);
  assert.deepEqual([error, details.topic_class, details.limit], ["khala_publish_rate_limited", "chat", 3]);
  assert.equal(await accepted(operator, { topic: "chat" }), 10);
  assert.match(message, /Its rule in KHALA_TOPICS_FILE raises it\.$/);

  assert.equal((await operator.post("topics/tenant:a:feed/events", said("x".repeat(80)))).status, 200);
  const large = await operator.post("topics/tenant:a:feed/events", said("x".repeat(100)));
  assert.equal(large.status, 413, large.body);
  assert.equal(JSON.parse(large.body).details.max_payload_bytes, 100);
  assert.equal((await operator.post("topics/tenant:feed/events", said("x".repeat(100)))).status, 200);
  assert.equal((await operator.post("topics/a:big/events", said("x".repeat(390_000)))).status, 200);
  assert.equal((await operator.post("topics/a:small/events", said("x".repeat(390_000)))).status, 413);

  await operator.did("runs", { run_id: "fast1" }, 201);
  await operator.did("runs", { run_id: "slow1" }, 201);
  // run.started took one of the two tokens, which may be back.
  assert.ok(await accepted(operator, { run_id: "fast1" }, "step") <= 2);
  assert.equal(await accepted(operator, { run_id: "slow1" }, "step"), 10);
});

test("windows, lists, plans, stale answers and statistics show the values in force", async (t) => {
  const { operator, reload } = await ruled(t);
  for (let i = 0; i < 3; i++) await operator.did("topics/chat:one/events", said());
  await operator.did("topics/tenant:a:feed/events", said());
  await reload(RULES.replace("publish_rate_per_second=3", "publish_rate_per_second=1000"));
  for (let i = 0; i < 7; i++) await operator.did("topics/chat:one/events", said());

  const { items } = await operator.read("topics?class=chat");
  assert.deepEqual(items.map(({ topic, topic_class, window }) => [topic, topic_class, window.replay_budget_events]), [["chat:one", "chat", 5]]);
  assert.equal((await operator.get("topics?class=nothing")).status, 400);
  const one = await operator.read("/v1/topics/runtime.topic.tenant.a.feed");
  assert.deepEqual([one.topic, one.qos_tier, one.window.replay_budget_events], ["tenant:a:feed", "hot", 20000]);

  const stale = await operator.poll("chat:one", "after_seq=2");
  assert.equal(stale.status, 410, stale.body);
  const [topic] = JSON.parse(stale.body).details.stale_topics;
  assert.deepEqual([topic.reason_codes, topic.replay_budget_events, topic.replay_lag], [["replay_budget_exceeded"], 5, 8]);
  assert.equal((await operator.poll("chat:one", "after_seq=5")).status, 200);
  const { plans } = await operator.did("/v1/cursors/plan", { cursors: [{ topic: "chat:one", after_seq: 2 }, { topic: "tenant:a:feed", after_seq: 0 }] });
  assert.deepEqual(plans.map(({ decision, window }) => [decision, window.replay_budget_events, window.qos_tier]),
    [["rebootstrap", 5, "cold"], ["resume", 20000, "hot"]]);

  const { topic_windows } = await operator.read("khala/fanout/metrics");
  const shown = topic_windows.find((window) => window.topic === "chat:one");
  assert.deepEqual([shown.topic_class, shown.replay_budget_events, shown.publish_rate_limit_per_second], ["chat", 5, 1000]);
  const { topic_stats } = await operator.did("retention/run");
  const pruned = topic_stats.find((one) => one.topic === "tenant:a:feed");
  assert.deepEqual([pruned.class, pruned.retention_seconds], ["fallback", 1234]);
  assert.equal(topic_stats.find((one) => one.topic === "chat:one").class, "chat");

  const client = await Client.join(operator);
  const reply = await client.subscribe({ streams: ["runtime.topic.chat.one"], resume_after: { "chat:one": 8 } });
  assert.equal(reply.windows[0].replay_budget_events, 5);
});

test("metrics count the classes of rules under their names", async (t) => {
  const { operator, reload } = await ruled(t);
  const subscriptions = async (topic_class) => (await scrape(operator)).get("openagents_runtime_sync_socket_subscriptions", { topic_class });
  assert.doesNotMatch((await operator.get("/metrics")).body, /declared_/);
  assert.equal(await subscriptions("chat"), 0);
  await operator.did("topics/chat:one/events", said());
  const client = await Client.join(operator);
  await client.subscribe({ topics: ["chat:one"], resume_after: { "chat:one": 0 } });
  await client.reached("chat:one", 1);
  assert.equal(await subscriptions("chat"), 1);
  assert.equal((await scrape(operator)).get("khala_fanout_frames_total", { dialect: "phoenix", topic_class: "chat" }), 1);
  // A subscription ends under the class that it was counted under.
  await reload("chat:* class=talk\n");
  await operator.did("topics/chat:one/events", said());
  await client.reached("chat:one", 2);
  assert.equal((await scrape(operator)).get("khala_fanout_frames_total", { dialect: "phoenix", topic_class: "talk" }), 1);
  assert.equal((await client.ask("sync:unsubscribe", { topics: ["chat:one"] })).status, "ok");
  assert.deepEqual([await subscriptions("chat"), await subscriptions("talk")], [0, 0]);
});

test("a file that cannot be used is refused at the start, by check and by doctor, with line and reason", (t) => {
  const file = join(folder(t), "topics");
  const bad = [
    ["chat:* rate=5", 1, /'rate' is no key; there are class, /],
    ["# one\nchat:* class=run_events", 2, /built-in class/],
    ["chat:* publish_rate_per_second=0", 1, /is not a whole number from 1 to 1000000/],
    ["chat:* class=a\nchat:* class=b", 2, /'chat:\*' in line 1 takes all its topics/],
    ["run:* retention_seconds=5", 1, /owned by a projection/],
    ["chat:*", 1, /sets nothing/],
  ];
  const settings = { KHALA_TOPICS_FILE: file };
  for (const [text, line, reason] of bad) {
    writeFileSync(file, text);
    for (const [status, ...args] of [[3, "serve", "--bind", "127.0.0.1:0", "--data-dir", folder(t)], [2, "config", "--check"], [2, "topic", "policy", "a"]]) {
      const { code, problem } = run(args, { settings });
      assert.equal(code, status, `${args[0]}: ${problem}`);
      assert.ok(problem.includes(`KHALA_TOPICS_FILE: ${file}:${line}: `), problem);
      assert.match(problem, reason);
    }
    const { checks } = JSON.parse(run(["doctor", "--json", "--data-dir", folder(t)], { settings }).out);
    assert.equal(checks.find(({ check }) => check === "topics").finding, "wrong");
  }
  rmSync(file);
  assert.match(run(["config", "--check"], { settings }).problem, /cannot read \S*topics: No such file/);
  writeFileSync(file, Buffer.alloc(300_000, "#"));
  assert.match(run(["config", "--check"], { settings }).problem, /more than 262144 bytes/);
  writeFileSync(file, RULES);
  assert.equal(run(["config", "--check"], { settings }).code, 0);
});

test("SIGHUP puts new rules in force for open subscriptions and known entities, and a bad file leaves the old ones", async (t) => {
  const { operator, reload, file } = await ruled(t);
  const client = await Client.join(operator);
  await operator.did("topics/chat:one/events", said());
  await client.subscribe({ topics: ["chat:one"], resume_after: { "chat:one": 0 } });
  assert.equal(await accepted(operator, { topic: "chat:two" }), 3);
  const before = (await policyOf(operator, "chat:one")).topics_hash;
  assert.ok((await reload("chat:* publish_rate_per_second=none", "reload_failed"))
    .includes(`${file}:1: publish_rate_per_second=none is not a whole number`));
  rmSync(file);
  await reload(null, "reload_failed");
  await reload("a max_payload_bytes=400001", "reload_failed"); // more than the server has room for
  assert.equal((await policyOf(operator, "chat:one")).topics_hash, before);
  assert.equal(await accepted(operator, { topic: "chat:three" }), 3);
  await reload(RULES, "unchanged");
  await reload(RULES.replace("second=3", "second=8").replace("run:fast*", "run:slow*"));
  assert.equal(await accepted(operator, { topic: "chat:four" }), 8);
  assert.equal((await policyOf(operator, "run:fast1:events")).rule, null);
  await reload("");
  assert.equal(await accepted(operator, { topic: "chat:one" }), 10);
  await client.reached("chat:one", 11);
  const { event_type, payload } = (await operator.log()).findLast((event) => event.event_type.startsWith("operator.topic"));
  assert.equal(event_type, "operator.topic_policies_changed");
  assert.notEqual(payload.before, payload.after);
});

test("khala topic policy says which rule applies and where each value comes from, here and on a server", async (t) => {
  const { operator, file } = await ruled(t);
  const settings = { KHALA_TOPICS_FILE: file, RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS: "77" };
  const here = (...args) => JSON.parse(run(["topic", "policy", ...args, "--json"], { settings }).out);
  const at = ["--url", operator.server.url, "--data-dir", operator.data];
  const there = (...args) => JSON.parse(run(["topic", "policy", ...args, ...at, "--json"]).out);
  for (const ask of [here, there]) {
    const chat = ask("chat:one");
    assert.deepEqual([chat.topic, chat.owned_by, chat.rule], ["chat:one", "application", { line: 2, pattern: "chat:*" }]);
    assert.deepEqual(chat.policy.publish_rate_per_second, { value: 3, from: "rule" });
    assert.deepEqual(chat.policy.class, { value: "chat", from: "rule" });
    assert.equal(chat.policy.retention_seconds.from, "RUNTIME_KHALA_FALLBACK_RETENTION_SECONDS");
    assert.equal(chat.topics_hash.length, 64);
    const fast = ask("runtime.run.fast.events");
    assert.deepEqual([fast.topic, fast.owned_by, fast.rule.line], ["run:fast:events", "projection", 5]);
    const fleet = ask("fleet:user:a:workers");
    assert.deepEqual([fleet.rule, fleet.policy.max_payload_bytes.value], [null, null]);
    assert.match(fleet.reason, /begin with run:, worker:, fleet: or runtime\./);
  }
  assert.equal(here("chat:one").policy.retention_seconds.value, 77);
  const text = run(["topic", "policy", "chat:one", ...at]).out;
  assert.match(text, /^chat:one: The rule in line 2 is the first one that matches the name\. Its pattern is chat:\*\n  class +chat  \(rule\)\n/);
  assert.equal(run(["topic", "policy", ""]).code, 1);
  assert.equal(run(["topic", "policy"]).code, 2);
  assert.equal(run(["topic", "policy", "runtime.topic.unknown", ...at]).code, 1);
  assert.match(run(["topic", "policy", "a"]).out, /There is no topics file\./);
});

test("the retention of a rule prunes after a reload, and on a store without a server", async (t) => {
  const { operator, reload, file } = await ruled(t, "", { RUNTIME_KHALA_RETENTION_INTERVAL_MS: "50" });
  const oldest = () => sql(operator.data, "SELECT topic, oldest_seq FROM topics WHERE topic IN ('room:a', 'room:b', 'other') ORDER BY topic").trim().split("\n");
  await operator.did("topics/room:a/events", said());
  await operator.did("topics/other/events", said());
  // The keeper has computed when each topic is due; the new rule makes one of them due at once.
  await operator.did("retention/run");
  await reload("room:a retention_seconds=1");
  await until(() => oldest()[1] === "room:a|2", "the frame is pruned");
  assert.deepEqual(oldest(), ["other|1", "room:a|2"]);
  await operator.did("topics/room:b/events", said());
  await operator.server.stop();
  writeFileSync(file, "room:b retention_seconds=1");
  const settings = { KHALA_TOPICS_FILE: file };
  await until(() => JSON.parse(run(["retention", "run-once", "--json", "--data-dir", operator.data], { settings }).out).deleted === 1, "the frame is pruned");
  assert.deepEqual(oldest(), ["other|1", "room:a|2", "room:b|2"]);
});
