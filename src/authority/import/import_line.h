/* A line of an export: an event with its link, or the manifest at the end.
 * Thread: any; a parser belongs to one thread at a time.
 * Memory: texts are copied into the caller's arena.
 * Errors: STATUS_IMPORT_REFUSED with a static reason for a line that no export contains;
 * STATUS_OUT_OF_MEMORY if the arena is full.
 * Invariant: a line that is read has the payload and the hashes that it names. import_check.h
 * checks that it follows the lines before it. */
#ifndef AUTHORITY_IMPORT_IMPORT_LINE_H
#define AUTHORITY_IMPORT_IMPORT_LINE_H

#include "authority/append_read.h"

struct import_line {
    bool is_manifest;
    struct store_event event; /* without log_id and entity_ref */
    /* The members of a manifest. */
    uint64_t count;
    uint8_t sha256[SHA256_BYTES];
    bool has_fork; /* the log has had several epochs, which are the same up to this event */
    uint64_t fork_log_id;
};

/* scratch: for chain_hash. */
MUST_CHECK enum status import_line_read(struct json_value value, struct buffer *scratch,
                                        struct arena *arena, struct import_line *line,
                                        const char **reason);
/* Whether the event may be written: an import creates no entity that an append could not create. */
MUST_CHECK enum status import_check_names(const struct store_event *event, const char **reason);
/* The request that appends the event of a line as it was. value is the line's. */
MUST_CHECK enum status import_request_read(struct append_parser *parser, struct json_value value,
                                           const struct import_line *line, struct arena *arena,
                                           struct append_request *request);

#endif
