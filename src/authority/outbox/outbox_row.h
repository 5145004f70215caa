/* One row of the outbox as a request of the authority. A row is outside input: a user may have
 * inserted it directly, past the checks of the SQL functions.
 * Any thread; a reader belongs to one thread at a time and keeps its memory between calls. Texts of
 * a request are copied into the caller's arena.
 * Errors: those of append_read, STATUS_PAYLOAD_TOO_LARGE, and those of JSON.
 * A row and the body of the endpoint that appends the same give the same request. */
#ifndef AUTHORITY_OUTBOX_OUTBOX_ROW_H
#define AUTHORITY_OUTBOX_OUTBOX_ROW_H

#include "authority/append_read.h"
#include "store/store.h"
#include "topic/policy.h"

#define OUTBOX_KIND_COUNT 4

struct outbox_row_reader {
    struct append_parser parser;
    struct buffer body;
    size_t row_bytes_max;
};

/* row_bytes_max: the texts of a row are at most so long. */
void outbox_row_reader_init(struct outbox_row_reader *reader, size_t row_bytes_max);
void outbox_row_reader_release(struct outbox_row_reader *reader);
MUST_CHECK enum status outbox_row_read(struct outbox_row_reader *reader,
                                       const struct store_outbox_row *row, struct arena *arena,
                                       struct append_request *request);
/* The largest payload of each kind of row. */
void outbox_limits_of(const struct policy_table *policies,
                      struct store_outbox_limit limits[OUTBOX_KIND_COUNT]);

#endif
