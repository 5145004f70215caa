// Lines of an export that a test changes: their hashes and their manifest.
import { createHash } from "node:crypto";

/** The lines with a manifest that fits them. */
export function sealed(lines) {
  const text = lines.map((line) => `${line}\n`).join("");
  const sha256 = createHash("sha256").update(text).digest("hex");
  return `${text}${JSON.stringify({ manifest: { format: "ndjson", count: lines.length, sha256 } })}\n`;
}

const sorted = (value) => (value && typeof value === "object" ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value);

/** A line with other members, whose chain hash fits them. */
export function relinked(line, changes) {
  const event = { ...JSON.parse(line), ...changes };
  const { cursor, entity, entity_id, event_id, event_type, payload_hash, recorded_at, seq } = event;
  const owner = { guest_scope: null, org_id: null, user_id: null, ...event.owner };
  const link = sorted({ chain_version: 2, cursor, entity, entity_id, event_id, event_type, owner, payload_hash, recorded_at, seq });
  const hash = createHash("sha256").update(Buffer.from(event.prev_chain_hash.slice(7), "hex")).update(JSON.stringify(link));
  return JSON.stringify({ ...event, chain_hash: `sha256:${hash.digest("hex")}` });
}
