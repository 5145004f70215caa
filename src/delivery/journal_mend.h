/* Raises the floor of a damaged journal, on behalf of a read that found the damage.
 * The thread of a read; the writer does the work, and the caller waits for it.
 * Allocates nothing.
 * The errors of the store and of writer_post_job.
 * The floor is durable before the read answers, so every client is told the same. */
#ifndef DELIVERY_JOURNAL_MEND_H
#define DELIVERY_JOURNAL_MEND_H

#include "authority/writer.h"

/* bad_seq: the first frame that is missing or cannot be read. */
MUST_CHECK enum status journal_mend(struct writer *writer, struct slice topic, uint64_t bad_seq);

#endif
