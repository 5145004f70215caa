// Lists of runs and workers: orders, filters, exclusive paging while runs change, and what a token sees.
import assert from "node:assert/strict";
import { test } from "node:test";
import { onPostgres } from "../../lib/database.mjs";
import { run, startVerb } from "../../lib/khala.mjs";
import { operate, refused } from "../../lib/operator.mjs";
import { seeded } from "../../lib/seeded.mjs";
import { alter } from "../../lib/store.mjs";
import { tokenFor } from "../../lib/token.mjs";
import { until } from "../../lib/wait.mjs";

const STATES = ["running", "succeeded", "failed"];

/** All items of a list, by pages of that size; between two pages something may happen. */
async function pages(read, path, limit, between = async () => {}) {
  const items = [];
  for (let after = ""; ;) {
    const page = await read(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}${after}`);
    assert.ok(page.items.length <= limit);
    assert.equal(page.is_complete, true);
    items.push(...page.items);
    assert.equal(page.next_cursor === null, !page.has_more);
    if (!page.has_more) return items;
    after = `&after=${encodeURIComponent(page.next_cursor)}`;
    await between();
  }
}

/** A run that lists can tell from others, as it should be listed. */
async function create(operator, i) {
  const run = { run_id: `r${String((i * 37) % 100).padStart(2, "0")}`, owner_user_id: i % 3 ? "ada" : "bob", title: `Title ${i % 10}`,
    tags: i % 4 ? [`t${i % 5}`, "é\"x"] : [], worker_id: i % 2 ? "w1" : undefined, parent_run_id: i >= 6 && i % 3 ? "r37" : undefined };
  await operator.did("runs", run, 201);
  const status = STATES[i % 7 === 1 ? 1 : i % 7 === 2 ? 2 : 0];
  if (status !== "running") await operator.did(`runs/${run.run_id}/events`, { event_type: "run.finished", payload: { status } });
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

test("lists of runs", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 40; i++) await create(operator, i);
  for (const worker_id of ["w2", "w1", "w3"]) await operator.did("workers", { worker_id, owner_user_id: worker_id === "w3" ? "bob" : "ada" }, 201);
  await operator.did("workers/w2/heartbeat", {});
  const all = (await operator.read("runs?limit=1000")).items;
  assert.equal(all.length, 40);
  const ids = (items) => items.map((run) => run.run_id);

  await t.test("each order has every run once, either way", async () => {
    for (const [sort, key] of [["updated_at", "updated_at"], ["created_at", "created_at"], ["run_id", "run_id"]]) {
      const up = await pages(operator.read.bind(operator), `runs?sort=${sort}`, 7);
      const down = await pages(operator.read.bind(operator), `runs?sort=-${sort}`, 7);
      assert.deepEqual(ids(up).toSorted(), ids(all).toSorted());
      assert.deepEqual(ids(down), ids(up).toReversed());
      assert.deepEqual(up.map((run) => run[key]), up.map((run) => run[key]).toSorted(compare));
    }
  });

  await t.test("filters alone and together are what a full scan finds", async () => {
    const updated = all.map((run) => run.updated_at).toSorted(compare);
    const created = all.map((run) => run.created_at).toSorted(compare);
    const filters = [
      ["status=succeeded", (run) => run.status === "succeeded"],
      ["tag=t3", (run) => run.tags.includes("t3")],
      [`tag=${encodeURIComponent("é\"x")}`, (run) => run.tags.includes("é\"x")],
      ["tag=t", () => false],
      ["parent_run_id=r37", (run) => run.parent_run_id === "r37"],
      ["worker_id=w1", (run) => run.worker_id === "w1"],
      ["owner_user_id=bob", (run) => run.owner_user_id === "bob"],
      ["title=tle%203", (run) => run.title.includes("tle 3")],
      [`updated_after=${updated[10]}`, (run) => run.updated_at > updated[10]],
      [`updated_before=${updated[25]}`, (run) => run.updated_at < updated[25]],
      [`created_after=${new Date(created[12]).toISOString()}`, (run) => run.created_at > created[12]],
      [`created_before=${created[30]}`, (run) => run.created_at < created[30]],
      ["updated_after=1h", () => true],
      ["created_before=1h", () => false],
    ];
    for (const [first, isFirst] of filters)
      for (const [second, isSecond] of filters) {
        if (first.split("=")[0] === second.split("=")[0] && first !== second) continue;
        const expected = ids(all.filter((run) => isFirst(run) && isSecond(run))).toSorted();
        const query = first === second ? first : `${first}&${second}`;
        for (const sort of ["", "&sort=-updated_at", "&sort=created_at"]) {
          const found = await operator.read(`runs?${query}${sort}&count=true&limit=1000`);
          assert.deepEqual(ids(found.items).toSorted(), expected, query + sort);
          assert.deepEqual([found.count, found.count_is_exact], [expected.length, true]);
        }
      }
    const page = await operator.read("runs?sort=-updated_at&limit=3&count=true");
    assert.deepEqual([page.items.length, page.count], [3, 40]);
  });

  await t.test("a run that does not change is neither skipped nor repeated while others do", async () => {
    const { pick } = seeded(7);
    for (const sort of ["updated_at", "-updated_at", "created_at", "-run_id"])
      for (const filter of ["", "&owner_user_id=ada", "&worker_id=w1"]) {
        const before = (await operator.read(`runs?limit=1000${filter}`)).items;
        const changed = new Set();
        const items = await pages(operator.read.bind(operator), `runs?sort=${sort}${filter}`, 4, async () => {
          for (let i = 0; i < 2; i++) {
            const { run_id } = pick(all);
            changed.add(run_id);
            await operator.did(`runs/${run_id}/events`, { event_type: "run.note" });
          }
        });
        for (const { run_id } of before.filter((run) => !changed.has(run.run_id)))
          assert.equal(ids(items).filter((id) => id === run_id).length, 1, `${run_id} by ${sort}`);
      }
  });

  await t.test("a token sees its own rows alone", async () => {
    const scopes = ["runtime.run_events", "runtime.codex_worker_events"];
    const reader = (claims) => {
      const authorization = `Bearer ${tokenFor(operator, { scopes, ...claims })}`;
      return async (path) => {
        const answer = await operator.ask("GET", path, undefined, { authorization });
        return answer.status === 200 ? JSON.parse(answer.body) : answer.status;
      };
    };
    const [ada, bob, nobody] = [reader({ user_id: "ada" }), reader({ user_id: "bob" }), reader({ user_id: "eve" })];
    for (const sort of ["", "?sort=-updated_at", "?sort=created_at", "?status=running", "?worker_id=w1&sort=run_id", "?parent_run_id=r37"]) {
      const path = `/v1/runs${sort}`;
      const expected = (await operator.read(`runs${sort}${sort ? "&" : "?"}limit=1000`)).items;
      for (const [read, owner] of [[ada, "ada"], [bob, "bob"], [nobody, "eve"]]) {
        const own = ids(expected.filter((run) => run.owner_user_id === owner));
        assert.deepEqual(ids(await pages(read, path, 5)).toSorted(), own.toSorted(), path);
        // Rows of others do not show in has_more. Own rows that do not match may.
        if (sort.includes("status")) continue;
        const whole = await read(`${path}${sort ? "&" : "?"}limit=${Math.max(1, own.length)}`);
        assert.deepEqual([whole.items.length, whole.has_more], [own.length, false], path);
      }
    }
    assert.deepEqual((await ada("/v1/runs?owner_user_id=bob")).items, []);
    assert.deepEqual((await ada("/v1/runs?count=true&limit=1")).count, all.filter((run) => run.owner_user_id === "ada").length);
    assert.deepEqual((await ada("/v1/workers?sort=-updated_at")).items.map((worker) => worker.worker_id), ["w2", "w1"]);
    assert.deepEqual((await bob("/v1/workers?sort=worker_id")).items.map((worker) => worker.worker_id), ["w3"]);
    assert.equal(await reader({ user_id: "ada", scopes: ["runtime.append"] })("/v1/runs"), 403);
    assert.equal(await reader({ user_id: "ada", topics: ["run:r00:events"] })("/v1/runs"), 403);
    assert.equal((await reader({ scopes: ["runtime.read_all"] })("/v1/runs?limit=1000")).items.length, 40);
    assert.equal((await operator.ask("GET", "/v1/runs")).status, 200); // an operator key in the header
  });

  await t.test("what no list has is refused", async () => {
    for (const query of ["tags=x", "updated=1", "fold=true"])
      await refused(operator, () => operator.get(`runs?${query}`), 400, "unknown_parameter");
    await refused(operator, () => operator.get("workers?tag=x"), 400, "unknown_parameter");
    for (const query of ["sort=title", "sort=worker_id", "sort=", "sort=--run_id", "count=1", "updated_after=yesterday", "created_before=-1",
      "status=done", "tag=%ff", `title=${"x".repeat(2100)}`])
      await refused(operator, () => operator.get(`runs?${query}`), 400, "invalid_request");
    const { next_cursor } = await operator.read("runs?sort=-updated_at&owner_user_id=ada&limit=2");
    const after = `after=${encodeURIComponent(next_cursor)}`;
    assert.equal((await operator.read(`runs?sort=-updated_at&owner_user_id=ada&limit=9&${after}`)).items.length, 9);
    for (const query of [`sort=updated_at&owner_user_id=ada&${after}`, `sort=-updated_at&${after}`, `sort=-updated_at&owner_user_id=bob&${after}`, after,
      "sort=-updated_at&after=r1", "sort=run_id&after=r1", `sort=-updated_at&owner_user_id=ada&${after.slice(0, -2)}`])
      await refused(operator, () => operator.get(`runs?${query}`), 400, "invalid_cursor");
    await refused(operator, () => operator.get(`workers?sort=-updated_at&owner_user_id=ada&${after}`), 400, "invalid_cursor");
  });
});

/** The lists that need documents. */
const listed = async (operator) => {
  const lists = [];
  for (const query of ["sort=-updated_at", "tag=t3", "parent_run_id=r37", "title=Title"])
    lists.push((await operator.read(`runs?limit=1000&owner_user_id=ada&${query}`)).items);
  return lists;
};

test("lists of a store that lost its documents, or what lists know of them", async (t) => {
  const first = await operate(t);
  for (let i = 0; i < 20; i++) await create(first, i);
  const before = await listed(first);
  assert.ok(before.every((items) => items.length > 0));
  let { data } = first;
  let operator = first;
  const damages = ["DROP TABLE run_documents"];
  // The repair of another table runs the migration again.
  if (onPostgres) damages.push("UPDATE run_documents SET owner = NULL, state = NULL, updated_at = NULL; DROP TABLE checkpoints");
  for (const damage of damages) {
    await operator.server.stop();
    alter(data, damage);
    operator = await operate(t, { data });
    await until(async () => (await operator.read("runs?limit=1")).is_complete, "the repair");
    assert.deepEqual(await listed(operator), before);
  }
});

test("a store without summaries says that its lists are not complete", async (t) => {
  const operator = await operate(t, { settings: { RUNTIME_KHALA_SINK: "noop" } });
  for (let i = 0; i < 3; i++) await create(operator, i);
  const page = await operator.read("runs?status=running");
  assert.deepEqual([page.items.length, page.is_complete], [1, false]);
  assert.deepEqual(await operator.read("runs?sort=updated_at"), { items: [], next_cursor: null, has_more: false, is_complete: false });
});

test("khala get filters, sorts and watches lists", async (t) => {
  const operator = await operate(t);
  for (let i = 0; i < 20; i++) await create(operator, i);
  const options = ["--url", operator.server.url, "--key", operator.key];
  const get = (...args) => run(["get", ...args, ...options]);
  const found = JSON.parse(get("runs", "--where", "tag=t3", "--where=status=running", "--sort", "-updated_at", "--json").out);
  const { items } = await operator.read("runs?tag=t3&status=running&sort=-updated_at");
  assert.deepEqual(found.items, items);
  assert.ok(items.length > 1);
  for (const [args, code, problem] of [[["--where", "tag"], 2, /--where 'tag' is not NAME=VALUE/], [["--where", "colour=red"], 1, /does not know/],
    [["--where", "status=done"], 1, /state of a run/], [["--sort", "size"], 1, /sort must be/]]) {
    const refused = get("runs", ...args);
    assert.equal(refused.code, code, refused.problem);
    assert.match(refused.problem, problem);
  }
  assert.equal(get("topics", "--watch").code, 2);
  const watching = startVerb(t, ["get", "runs", "--where", "tag=t3", "--watch", "--json", ...options]);
  const shown = () => JSON.parse(watching.lines.at(-1)).items;
  await watching.until((one) => one.lines.length === 1, "the list");
  assert.equal(shown().length, (await operator.read("runs?tag=t3")).items.length);
  const [{ run_id }] = shown();
  await operator.did(`runs/${run_id}/events`, { event_type: "run.updated", payload: { title: "Another" } });
  await watching.until(() => shown().find((one) => one.run_id === run_id)?.title === "Another", "the new title");
  await operator.did(`runs/${run_id}/events`, { event_type: "run.updated", payload: { tags: [] } });
  await watching.until(() => !shown().some((one) => one.run_id === run_id), "the run to leave the list");
});
