/* The common part of all summaries, and the codec between summaries and documents.
 * Thread: one at a time for a summary.
 * Memory: texts are slices of canonical JSON ("null" if absent) in the document read or in the
 * arena of the fold. What a fold must remember is in the document.
 * Errors: STATUS_INVALID_REQUEST for a document of another form; STATUS_OUT_OF_MEMORY.
 * Invariant: the log alone determines a summary. Two folds of the same events differ in
 * projected_at only, however the events were split into commits. */
#ifndef PROJECTOR_SUMMARY_H
#define PROJECTOR_SUMMARY_H

#include "base/arena.h"
#include "base/buffer.h"
#include "store/store.h"
#include "wire/json.h"

#define PROJECTION_VERSION_DEFAULT "khala_summary_v2"
#define SUMMARY_FIELDS_MAX         32

/* Embedded in struct run_summary and struct worker_summary. */
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
    uint64_t created_at_ms; /* a time of 0 is null */
    uint64_t latest_event_at_ms;
    uint64_t terminal_at_ms;
};

enum summary_field_kind {
    SUMMARY_TEXT,
    SUMMARY_OBJECT,
    SUMMARY_METADATA, /* an object; a document has one at most */
    SUMMARY_ARRAY,    /* [] instead of null */
    SUMMARY_COUNT,
    SUMMARY_TIME_MS,
    /* Derived from other fields; not stored in the summary. */
    SUMMARY_DOCUMENT_ID,
    SUMMARY_KIND,
    SUMMARY_ENTITY_ID,
    SUMMARY_SOURCE,
    SUMMARY_VERSION,
    SUMMARY_PROJECTED_AT,
};

#define SUMMARY_OPENING_BYTES 32

struct summary_field {
    struct slice name;
    /* The text before the value: ,"name": of a fixed size, which is copied faster. */
    char opening[SUMMARY_OPENING_BYTES];
    size_t opening_bytes;
    enum summary_field_kind kind;
    size_t offset; /* offset of the slice or number in the summary */
};

#define SUMMARY_FIELD(name_, kind_, offset_)                                                       \
    {                                                                                              \
        .name = {name_, sizeof(name_) - 1},                                                        \
        .opening = ",\"" name_ "\":", .opening_bytes = sizeof(name_) + 3, .kind = (kind_),         \
        .offset = (offset_)                                                                        \
    }

/* The layout of a document kind: its members in the order of canonical JSON. */
struct summary_layout {
    enum document_kind document;
    const struct summary_field *fields;
    size_t field_count;
    size_t summary_size;
    /* Folds the event after summary->latest_seq. */
    enum status (*fold)(struct summary *summary, const struct store_event *event,
                        struct arena *arena);
};

/* The members of a document that do not come from events. */
struct summary_stamp {
    struct slice projection_version;
    uint64_t projected_at_ms;
};

/* Offsets in a document that was just written, so that it need not be parsed. */
struct summary_marks {
    size_t values[SUMMARY_FIELDS_MAX]; /* the value of each field */
    size_t metadata;                   /* its value; 0: there is none */
    size_t projected_at;               /* the member, comma included */
    size_t projected_at_end;
};

/* No events yet; every text is null, every array empty. */
void summary_init(const struct summary_layout *layout, struct summary *summary,
                  struct slice entity_id);
/* Folds the part of an event that all types have in common. */
MUST_CHECK enum status summary_count(struct summary *summary, const struct store_event *event,
                                     struct arena *arena);
/* Writes canonical JSON into an empty buffer. */
MUST_CHECK enum status summary_write(const struct summary_layout *layout,
                                     const struct summary *summary,
                                     const struct summary_stamp *stamp, struct buffer *out,
                                     struct summary_marks *marks);
/* Appends the object of the fields that a condition reads (topic/where.h). */
MUST_CHECK enum status summary_write_fields(const struct summary_layout *layout,
                                            const struct summary *summary, struct buffer *out);
/* Makes the texts of the summary point into a copy of its document, except for nulls. */
void summary_settle(const struct summary_layout *layout, const struct summary_marks *marks,
                    const char *document, struct summary *summary);
/* The JSON text of a member in the document that was just written; absent: it is null, or documents
 * of this layout have no such member. */
struct slice summary_value(const struct summary_layout *layout, const struct summary_marks *marks,
                           struct slice document, struct slice name);
/* The metadata of a summary; absent: documents of this layout have none, or it is null. */
struct slice summary_metadata(const struct summary_layout *layout, const struct summary *summary);

/* Reads a document, which must be of this entity. The summary keeps entity_id. */
MUST_CHECK enum status summary_read(const struct summary_layout *layout, struct slice document,
                                    struct slice entity_id, struct summary *summary);
/* The hash of a document without projected_at: by marks, together with that of all of it, or by
 * parsing it. */
void summary_hash_marked(struct slice document, const struct summary_marks *marks,
                         uint8_t payload_hash[SHA256_BYTES], uint8_t hash[SHA256_BYTES]);
MUST_CHECK enum status summary_hash(struct slice document, uint8_t hash[SHA256_BYTES]);
/* "runtime/run_summary:<id>". */
MUST_CHECK enum status summary_document_key(enum document_kind kind, struct slice entity_id,
                                            struct buffer *out);

/* For folds: copies a member of a payload into the arena as JSON text. An absent member, or one of
 * another type, becomes null, or an empty array. False without memory. */
bool summary_take_text(const struct json_field *field, struct arena *arena, struct slice *text);
bool summary_take_object(const struct json_field *field, struct arena *arena, struct slice *text);
bool summary_take_array(const struct json_field *field, struct arena *arena, struct slice *text);
/* Reads members of a payload. A payload that is no object has no members. */
void summary_payload_fields(struct slice payload, struct json_field *fields, size_t count);

static inline bool summary_is_null(struct slice text) {
    return slice_equal(text, SLICE("null"));
}

#endif
