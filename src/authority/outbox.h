/* The writer's part of the outbox: rows that users left in their own transactions become the
 * requests of a group, which the writer applies like any other. A row is outside input: a user may
 * have inserted it directly, past the checks of the SQL functions.
 * Thread: the writer's; a row reader belongs to one thread at a time.
 * Memory: one group of bounded size, used again. A row reader keeps its memory between calls, and
 * copies the texts of a request into the caller's arena.
 * Errors: the store's, from outbox_read; STATUS_OUT_OF_MEMORY.
 * Invariant: the commit that holds the event or the rejection of a row removes the row. A row that
 * is refused for now stays, and the later rows of its entity stay behind it. A row and the body of
 * the endpoint that appends the same give the same request. */
#ifndef AUTHORITY_OUTBOX_H
#define AUTHORITY_OUTBOX_H

#include "authority/append_read.h"
#include "authority/ledger_batch.h"
#include "topic/policy.h"

#define OUTBOX_KIND_COUNT 4

struct outbox_row_reader {
    struct append_parser parser;
    struct buffer body;
    size_t row_bytes_max;
};

/* row_bytes_max: the longest texts of a row. */
void outbox_row_reader_init(struct outbox_row_reader *reader, size_t row_bytes_max);
void outbox_row_reader_release(struct outbox_row_reader *reader);
/* Errors are those of append_read, STATUS_PAYLOAD_TOO_LARGE, and those of JSON. */
MUST_CHECK enum status outbox_row_read(struct outbox_row_reader *reader,
                                       const struct store_outbox_row *row, struct arena *arena,
                                       struct append_request *request);

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
/* After the group was applied: names the rows that the commit of the batch removes. */
void outbox_settle(struct outbox *outbox, struct ledger_batch *batch);
/* Call it after that commit. */
void outbox_committed(struct outbox *outbox);
/* Whether the rows that were read last are gone, so that the next ones can be read at once. */
bool outbox_is_progressing(const struct outbox *outbox);

#endif
