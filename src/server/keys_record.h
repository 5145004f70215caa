/* The record of changed signing keys: an operator.signing_keys_changed event of the audit log.
 * Thread: main; the writer's thread frees the event.
 * Memory: one event until the writer has answered it.
 * Errors: logged. A node that is not the writer records nothing, because each node reads the keys.
 * Invariant: the same keys are recorded once, however often and on however many nodes they are
 * read. */
#ifndef SERVER_KEYS_RECORD_H
#define SERVER_KEYS_RECORD_H

#include "authority/writer.h"
#include "http/admit/gate.h"

/* The gate has read its keys. Records them if they are other ones than those of the digest, which
 * becomes that of these keys. Without a writer, at start, nothing is recorded. */
void keys_record(struct writer *writer, const struct gate *gate, uint8_t digest[SHA256_BYTES]);

#endif
