/* Repairs derived rows on behalf of a read that found them missing or altered.
 * Thread: that of the read; the writer does the work, and the caller waits for it. repair_post: any
 * thread, without a wait.
 * Memory: allocates nothing that stays.
 * Errors: STATUS_NOT_FOUND: nothing was damaged any more, or nothing is derived.
 * STATUS_STORE_UNAVAILABLE: try again later; a node without the writer role has asked the writer.
 * Invariant: the repair is durable before the read answers, so every client gets the same answer.
 */
#ifndef DELIVERY_REPAIR_H
#define DELIVERY_REPAIR_H

#include "authority/writer.h"

/* Whether an entity without a document is damage. */
bool repair_finds_missing(const struct writer *writer);
MUST_CHECK enum status repair(struct writer *writer, const struct store_damage *damage);
/* Loads the summary of an entity. One that is missing or altered is repaired first. */
MUST_CHECK enum status repair_load_document(struct writer *writer, struct store_session *session,
                                            const struct store_entity *entity, struct arena *arena,
                                            struct store_document *document);
/* What another node has reported. A repair that fails is left to the next read that meets it. */
void repair_post(struct writer *writer, const struct store_damage *damage);

#endif
