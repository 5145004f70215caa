// What a cluster looked like when a test failed: the faults so far, the table of nodes, the sessions and locks of the
// database, and the logs of the nodes, which stay in a folder.
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { within } from "./wait.mjs";

const ANSWER_MS_MAX = 10_000;
const QUERIES = {
  nodes: "SELECT node_id, address, role, term, log_id, now() - seen_at AS unseen FROM runtime.nodes",
  writer: "SELECT *, now() FROM runtime.writer",
  sessions: `SELECT pid, application_name, state, wait_event, now() - state_change AS unchanged, now() - xact_start AS transaction,
    left(regexp_replace(query, '\\s+', ' ', 'g'), 120) AS query FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY state_change`,
  locks: `SELECT pid, locktype, relation::regclass, classid, objid, mode, granted FROM pg_locks
    WHERE NOT granted OR mode LIKE '%Exclusive%' ORDER BY pid`,
};

/** The rows of a query, a line each; or why there are none. */
async function rowsOf(cluster, query) {
  try {
    return await within(cluster.sql(`SELECT row_to_json(r) FROM (${query}) r`), "an answer of the database", ANSWER_MS_MAX);
  } catch (error) {
    return `no answer: ${error.message}`;
  }
}

/** Writes the logs of the nodes to a folder that stays, and answers its path. */
function keepLogs({ nodes }) {
  const path = mkdtempSync(join(tmpdir(), "khala-failed-"));
  for (const node of nodes) writeFileSync(join(path, `${node.name}.log`), `${node.log}${node.process?.log ?? ""}`);
  return path;
}

/** The report of a world, as text. */
export async function reportOf({ cluster, faults }) {
  const parts = [
    `faults:\n${faults.map((fault) => JSON.stringify(fault)).join("\n")}`,
    `nodes of the test:\n${cluster.nodes.map((node) => JSON.stringify(node.description)).join("\n")}`,
    `time: ${new Date().toISOString()}`,
  ];
  for (const [name, query] of Object.entries(QUERIES)) parts.push(`${name}:\n${await rowsOf(cluster, query)}`);
  parts.push(`logs of the nodes: ${keepLogs(cluster)}`);
  return parts.join("\n");
}
