/* The outbox's side of the writer: rows that users left in their own transactions become the
 * requests of a group, which the writer applies like any other.
 * Owned by the writer's thread. Memory: one group of bounded size, used again.
 * Errors: the store's, from outbox_read; STATUS_OUT_OF_MEMORY.
 * A row is removed by the commit that holds its event or its rejection. A row that is refused for
 * now stays, and the later rows of its entity stay behind it. */
#ifndef AUTHORITY_OUTBOX_OUTBOX_H
#define AUTHORITY_OUTBOX_OUTBOX_H

#include "authority/append.h"
#include "authority/batch.h"
#include "authority/outbox/outbox_row.h"

struct outbox;

/* row_bytes_max: a row with longer texts is rejected unread. The SQL functions get the largest
 * payloads of the policies. */
MUST_CHECK enum status outbox_open(struct outbox **outbox, size_t row_bytes_max,
                                   const struct policy_table *policies);
void outbox_close(struct outbox *outbox);

/* Reads the rows that are visible now into the group, at most row_max, and OUTBOX_ROWS_MAX. */
MUST_CHECK enum status outbox_read(struct outbox *outbox, struct store_session *session,
                                   size_t row_max);
struct append_group *outbox_group(struct outbox *outbox);
/* After the group was applied: tells the batch which rows its commit removes. */
void outbox_settle(struct outbox *outbox, struct batch *batch);
/* After that commit. */
void outbox_committed(struct outbox *outbox);
/* Whether the rows that were read last are gone, so that the next ones can be read at once. */
bool outbox_is_progressing(const struct outbox *outbox);

#endif
