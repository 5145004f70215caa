/* The first message of an audit socket: its capability, its position and its filters.
 * Thread: any; a pure reader.
 * Memory: one block holds the decoded texts; audit_init_release returns it.
 * Errors: STATUS_INVALID_MESSAGE with the problem in a static sentence; STATUS_OUT_OF_MEMORY.
 * Invariant: unknown members are ignored, except in filters: an ignored filter would let through
 * events that the client did not ask for. */
#ifndef DIALECT_AUDIT_INIT_H
#define DIALECT_AUDIT_INIT_H

#include "hub/frame.h"
#include "topic/event_cursor.h"
#include "topic/since.h"

#define AUDIT_NONCE_BYTES_MAX  128
#define AUDIT_FILTER_NAMES_MAX 64

struct audit_names {
    bool given; /* an empty list lets nothing through */
    size_t count;
    struct slice names[AUDIT_FILTER_NAMES_MAX];
};

struct audit_init {
    struct slice capability;
    struct slice nonce;
    uint64_t at_ms;
    bool has_cursor;
    struct event_cursor cursor;
    bool has_since; /* instead of a cursor */
    struct since since;
    struct audit_names event_types; /* exact */
    struct audit_names entities;    /* "run", or one of them: "run:ID" */
    struct buffer texts;
};

/* legacy_cursors: whether event_cursor_read accepts cursors of the legacy form. */
MUST_CHECK enum status audit_init_read(struct slice text, bool legacy_cursors,
                                       struct audit_init *init, const char **problem);
void audit_init_release(struct audit_init *init);
bool audit_init_filters(const struct audit_init *init);
/* Whether the filters let an event of the log through. */
bool audit_init_wants(const struct audit_init *init, const struct frame_content *content);

#endif
