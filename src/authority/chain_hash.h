/* The hash chain of an entity's events: chain_hash = SHA-256 of prev_chain_hash's 32 bytes (zeros
 * before seq 1) and the canonical JSON of the event's link.
 * Version 2, of new events: {chain_version, cursor, entity, entity_id, event_id, event_type, owner
 * {guest_scope, org_id, user_id}, payload_hash, recorded_at, seq}, null for an absent owner.
 * Version 1, of events from before it: {cursor, entity, event_id, payload_hash, seq, type}, where
 * entity is "<kind>:<id>".
 * Any thread; the scratch buffer belongs to the caller and may be reused.
 * Errors: the buffer's own, when an id or a type is longer than it takes.
 * Changing, removing or reordering an event breaks every later link of its entity. */
#ifndef AUTHORITY_CHAIN_HASH_H
#define AUTHORITY_CHAIN_HASH_H

#include "base/buffer.h"
#include "store/store.h"

/* Room for any event the authority takes; an escaped byte of JSON becomes six. */
#define CHAIN_HASH_SCRATCH_BYTES 16384

/* Of an event whose other parts, prev_chain_hash and chain_version included, are set. The canonical
 * text is left in scratch behind the previous hash. */
MUST_CHECK enum status chain_hash(const struct store_event *event, struct buffer *scratch,
                                  uint8_t digest[SHA256_BYTES]);

#endif
