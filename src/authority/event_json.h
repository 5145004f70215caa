/* Events, runs and workers as they appear on the wire.
 * Any thread. Appends to the caller's buffer, all or nothing; allocates nothing else.
 * Errors: the buffer's own. Times are integers of milliseconds since 1970, hashes "sha256:" and
 * hex; an absent value is null. Members come in a fixed order.
 * The same row gives the same bytes; only liveness depends on the time asked for. */
#ifndef AUTHORITY_EVENT_JSON_H
#define AUTHORITY_EVENT_JSON_H

#include "base/buffer.h"
#include "store/store.h"

/* {event_id, cursor, entity, entity_id, seq, event_type, payload, payload_hash, owner {user_id,
 * guest_scope, org_id}, recorded_at, prev_chain_hash, chain_hash, chain_version}. The owner has
 * only the members that are known. chain_version is absent unless it is 1. */
MUST_CHECK enum status event_write_json(struct buffer *out, const struct store_event *event);
/* {run_id, status, owner_user_id, owner_guest_scope, org_id, worker_id, thread_id, metadata,
 * created_at, started_at, finished_at, latest_seq, head_hash} */
MUST_CHECK enum status run_write_json(struct buffer *out, const struct store_entity *run);
/* {worker_id, status, owner_user_id, owner_guest_scope, org_id, workspace_ref, codex_home_ref,
 * adapter, metadata, created_at, started_at, stopped_at, last_heartbeat_at, liveness, latest_seq,
 * head_hash} */
MUST_CHECK enum status worker_write_json(struct buffer *out, const struct store_entity *worker,
                                         uint64_t now_ms);

#endif
