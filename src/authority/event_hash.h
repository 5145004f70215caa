/* The hash chain of an entity's events: event_hash = SHA-256 of prev_hash's 32 bytes (zeros before
 * seq 1) and the canonical JSON of {cursor, entity, event_id, payload_hash, seq, type}.
 * Any thread; the scratch buffer belongs to the caller and may be reused.
 * Errors: the buffer's own, when an id or a type is longer than it takes.
 * Changing, removing or reordering an event breaks every later link of its entity. */
#ifndef AUTHORITY_EVENT_HASH_H
#define AUTHORITY_EVENT_HASH_H

#include "base/buffer.h"
#include "store/store.h"

/* Room for any event the authority takes; an escaped byte of JSON becomes six. */
#define EVENT_HASH_SCRATCH_BYTES 8192

/* Of an event whose other parts, prev_hash included, are set. The canonical text is left in
 * scratch behind the previous hash. */
MUST_CHECK enum status event_hash(const struct store_event *event, struct buffer *scratch,
                                  uint8_t digest[SHA256_BYTES]);

#endif
