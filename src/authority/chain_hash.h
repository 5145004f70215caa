/* The hash chain of an entity's events: chain_hash is SHA-256 of the 32 bytes of prev_chain_hash
 * (zeros before seq 1) and the canonical JSON of the event's link.
 * Version 2, of new events: {chain_version, cursor, entity, entity_id, event_id, event_type, owner
 * {guest_scope, org_id, user_id}, payload_hash, recorded_at, seq}, null for an absent owner.
 * Version 1, of older events: {cursor, entity, event_id, payload_hash, seq, type}, where entity is
 * "<kind>:<id>".
 * Thread: any.
 * Memory: the caller's scratch buffer, which may be reused.
 * Errors: the buffer's own, if an id or a type is longer than it takes.
 * Invariant: changing, removing or reordering an event breaks every later link of its entity. */
#ifndef AUTHORITY_CHAIN_HASH_H
#define AUTHORITY_CHAIN_HASH_H

#include "base/buffer.h"
#include "store/store.h"

/* Room for any event of the authority. An escaped byte of JSON becomes six. */
#define CHAIN_HASH_SCRATCH_BYTES 16384

/* The event's other parts, prev_chain_hash and chain_version included, are set. The canonical text
 * is left in scratch behind the previous hash. */
MUST_CHECK enum status chain_hash(const struct store_event *event, struct buffer *scratch,
                                  uint8_t digest[SHA256_BYTES]);

#endif
