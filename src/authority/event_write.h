/* Events, runs and workers as JSON, and events as lines of a table, for people with spreadsheets
 * and for loading into databases. Times are integers of milliseconds since 1970, hashes are
 * "sha256:" and hex, and an absent value is null. Members come in a fixed order.
 * Thread: any.
 * Memory: the caller's buffer, all or nothing.
 * Errors: the buffer's own.
 * Invariant: the same row gives the same bytes; only liveness depends on the given time. */
#ifndef AUTHORITY_EVENT_WRITE_H
#define AUTHORITY_EVENT_WRITE_H

#include "base/buffer.h"
#include "store/store.h"
#include "wire/object_writer.h"

/* {event_id, cursor, entity, entity_id, seq, event_type, payload, payload_hash, owner {user_id,
 * guest_scope, org_id}, recorded_at, prev_chain_hash, chain_hash, chain_version}. The owner has
 * only the members that are known. chain_version is absent unless it is 1. */
MUST_CHECK enum status event_write_json(struct buffer *out, const struct store_event *event);
/* {run_id, status, owner_user_id, owner_guest_scope, org_id, worker_id, thread_id, metadata,
 * created_at, started_at, finished_at, latest_seq, head_hash} */
MUST_CHECK enum status run_write_json(struct buffer *out, const struct store_entity *run);
/* The same members in an object that the caller began, for one that has more of them. */
void run_put_members(struct object_writer *object, const struct store_entity *run);
/* {worker_id, status, owner_user_id, owner_guest_scope, org_id, workspace_ref, codex_home_ref,
 * adapter, metadata, created_at, started_at, stopped_at, last_heartbeat_at, liveness, latest_seq,
 * head_hash} */
MUST_CHECK enum status worker_write_json(struct buffer *out, const struct store_entity *worker,
                                         uint64_t now_ms);

/* The names of the columns, with the line's end. */
#define EVENT_CSV_HEADER                                                                           \
    "event_id,cursor,entity,entity_id,seq,event_type,payload,payload_hash,owner_user_id,"          \
    "owner_guest_scope,org_id,recorded_at,prev_chain_hash,chain_hash,chain_version\r\n"

/* The columns are the members of the JSON, in that order, with the owner's members spread out. The
 * payload is its canonical JSON. No field holds a line's end, so a line is a record. */
MUST_CHECK enum status event_write_csv(struct buffer *out, const struct store_event *event);

#endif
