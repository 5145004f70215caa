/* What every summary shares, and the one codec between summaries and their documents.
 * Any thread; a summary belongs to one at a time. Texts are slices of canonical JSON ("null" where
 * absent) that live in the document read, or in the arena given to the fold.
 * STATUS_INVALID_REQUEST for a document that is no such summary; STATUS_OUT_OF_MEMORY.
 * The log alone determines a summary: what is written differs between two foldings of the same
 * events in nothing but projected_at, however the events were cut into commits. */
#ifndef PROJECTOR_SUMMARY_H
#define PROJECTOR_SUMMARY_H

#include "base/arena.h"
#include "base/buffer.h"
#include "store/store.h"
#include "wire/json.h"

#define PROJECTION_VERSION_DEFAULT "khala_summary_v1"
#define SUMMARY_FIELDS_MAX         32

/* The beginning of struct run_summary and struct worker_summary. */
struct summary {
    struct slice entity_id; /* plain text, not JSON */
    struct slice status;
    struct slice owner_user_id;
    struct slice owner_guest_scope;
    struct slice org_id;
    struct slice latest_event_type;
    struct slice terminal_reason_class;
    struct slice terminal_reason;
    uint64_t latest_seq; /* 0: no event folded yet */
    uint64_t event_count;
    uint64_t latest_event_at_ms;
    uint64_t terminal_at_ms; /* times of 0 are null */
};

enum summary_field_kind {
    SUMMARY_TEXT,
    SUMMARY_OBJECT,
    SUMMARY_COUNT,
    SUMMARY_TIME_MS,
    /* These follow from the rest and are not held. */
    SUMMARY_DOCUMENT_ID,
    SUMMARY_KIND,
    SUMMARY_ENTITY_ID,
    SUMMARY_SOURCE,
    SUMMARY_VERSION,
    SUMMARY_PROJECTED_AT,
};

struct summary_field {
    struct slice name;
    struct slice opening; /* what stands before the value: ,"name": */
    enum summary_field_kind kind;
    size_t offset; /* of the slice or the number, in the summary */
};

#define SUMMARY_MEMBER(name)                                                                       \
    {name, sizeof(name) - 1}, {                                                                    \
        ",\"" name "\":", sizeof(name) + 3                                                         \
    }

/* A kind of document: its members in the order of canonical JSON. */
struct summary_layout {
    enum document_kind document;
    const struct summary_field *fields;
    size_t field_count;
    size_t summary_size;
    /* Folds the event after summary->latest_seq. */
    enum status (*fold)(struct summary *summary, const struct store_event *event,
                        struct arena *arena);
};

/* What a writing adds to what the events say. */
struct summary_stamp {
    struct slice projection_version;
    uint64_t projected_at_ms;
};

/* Where things lie in a document just written, so that nobody has to read it to know. */
struct summary_marks {
    size_t values[SUMMARY_FIELDS_MAX]; /* of each field */
    size_t seq_end;                    /* of runtime_source */
    size_t projected_at;               /* the member, with the comma before it */
    size_t projected_at_end;
};

/* No events yet; every text is null. */
void summary_init(const struct summary_layout *layout, struct summary *summary,
                  struct slice entity_id);
/* Counts an event: what every type has in common. */
MUST_CHECK enum status summary_count(struct summary *summary, const struct store_event *event,
                                     struct arena *arena);
/* Writes canonical JSON into an empty buffer. */
MUST_CHECK enum status summary_write(const struct summary_layout *layout,
                                     const struct summary *summary,
                                     const struct summary_stamp *stamp, struct buffer *out,
                                     struct summary_marks *marks);
/* Makes the texts of a summary those of its document, wherever that was copied to. */
void summary_settle(const struct summary_layout *layout, const struct summary_marks *marks,
                    const char *document, struct summary *summary);
/* Appends the document with the range of events that became one frame. Frames only: a document
 * must not depend on how its events were cut into commits. */
MUST_CHECK enum status summary_write_range(struct slice document, const struct summary_marks *marks,
                                           uint64_t first_seq, uint64_t last_seq,
                                           struct buffer *out);
/* The way back; entity_id becomes the summary's and must be the document's. */
MUST_CHECK enum status summary_read(const struct summary_layout *layout, struct slice document,
                                    struct slice entity_id, struct summary *summary);
/* The hash of a document without its projected_at: of one just written, and of any. */
MUST_CHECK enum status summary_hash_marked(struct slice document, const struct summary_marks *marks,
                                           struct buffer *scratch, uint8_t hash[SHA256_BYTES]);
MUST_CHECK enum status summary_hash(struct slice document, uint8_t hash[SHA256_BYTES]);
/* "runtime/run_summary:<id>". */
MUST_CHECK enum status summary_document_key(enum document_kind kind, struct slice entity_id,
                                            struct buffer *out);

/* For folds. A wanted member of an event's payload as a JSON text that lives in the arena: null
 * when absent or not a string. False without memory. */
bool summary_take_text(const struct json_field *field, struct arena *arena, struct slice *text);
bool summary_take_object(const struct json_field *field, struct arena *arena, struct slice *text);
/* Reads members of an event's payload; a payload that is no object has none of them. */
void summary_payload_fields(struct slice payload, struct json_field *fields, size_t count);

static inline bool summary_is_null(struct slice text) {
    return slice_equal(text, SLICE("null"));
}

#endif
