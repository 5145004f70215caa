/* The condition of a subscription to summaries (`where`), and the fields that it reads: those of a
 * document as a frame leaves them, and as the frame of that document before it left them.
 * Thread: any.
 * Memory: a condition is one block without pointers, of which where_size bytes are used. Fields
 * point into the text that they were read from.
 * Errors: STATUS_UNKNOWN_PARAMETER for a field that no condition has; STATUS_INVALID_REQUEST for
 * another shape, or more than WHERE_VALUES_MAX values or WHERE_TEXT_BYTES_MAX bytes of them.
 * Invariant: two conditions with equal bytes hide the same frames. The answer for a frame needs the
 * frame alone, so it is the same on every node and after every reconnect. */
#ifndef TOPIC_WHERE_H
#define TOPIC_WHERE_H

#include "base/buffer.h"
#include "base/limits.h"
#include "wire/json.h"

/* Members of a summary. In a condition each is a text or a list of texts, of which any may match;
 * of several fields all must match. */
#define WHERE_FIELDS(X)                                                                            \
    X(WHERE_STATUS, "status")                                                                      \
    X(WHERE_TAGS, "tags") /* a list in the summary: any of its texts may match */                  \
    X(WHERE_PARENT_RUN_ID, "parent_run_id")                                                        \
    X(WHERE_WORKER_ID, "worker_id")

#define WHERE_ENUMERATOR(field, ...) field,
enum where_field { WHERE_FIELDS(WHERE_ENUMERATOR) WHERE_FIELD_COUNT };
#undef WHERE_ENUMERATOR

/* For messages. */
#define WHERE_FIELD_NAMES "status, tag, parent_run_id and worker_id"

/* WHERE_FIELD_COUNT for any other name. */
enum where_field where_field_of(struct slice name);

/* ---- conditions ---- */

/* The values of the first field, then those of the second, and so on; of each field sorted and
 * without repetition. */
struct where {
    uint8_t counts[WHERE_FIELD_COUNT];
    uint16_t text_bytes;
    uint16_t ends[WHERE_VALUES_MAX]; /* in text */
    char text[WHERE_TEXT_BYTES_MAX];
};

/* Reads {"status": "running", "tag": ["a", "b"]}; "tags", as the list is called in a summary, is
 * "tag" too. *unknown: with STATUS_UNKNOWN_PARAMETER, the field as it stands in the text. */
MUST_CHECK enum status where_read(struct slice text, struct where *where, struct slice *unknown);
/* The bytes that hold all of it. */
size_t where_size(const struct where *where);
bool where_equal(const struct where *a, const struct where *b);

/* ---- fields ---- */

struct where_fields {
    struct json_value values[WHERE_FIELD_COUNT]; /* JSON_KIND_NULL: the document has none */
};

/* The fields of a summary, or of an object that where_fields_write wrote. */
MUST_CHECK enum status where_fields_read(struct slice object, struct where_fields *fields);
/* The member of that name, for a reader that wants other members of the summary too. */
struct slice where_field_name(enum where_field field);
/* Appends an object without the fields that are null. */
enum status where_fields_write(struct buffer *out, const struct where_fields *fields);
bool where_matches(const struct where *where, const struct where_fields *fields);

/* ---- what a frame records ---- */

/* A journal row records how the fields were in the frame of the document before it:
 *
 *   {}              as they are in this frame
 *   {"was":{…}}     they changed
 *   {"was":null}    this is the first frame of the document
 *
 * Any other text, and none, means that the frame before is not known. The fields as they are now
 * stand in the payload, whose hash covers them. A frame in memory has both: {"now":{…},…}. */
enum where_before { WHERE_SAME, WHERE_CHANGED, WHERE_FIRST, WHERE_UNKNOWN };

/* The record of a row; absent for WHERE_UNKNOWN. was: for WHERE_CHANGED, as where_fields_write
 * wrote it. */
enum status where_record_write(struct buffer *out, enum where_before before, struct slice was);
/* Appends the record of a frame. */
enum status where_record_complete(struct buffer *out, struct slice record,
                                  const struct where_fields *now);

/* ---- the decision ---- */

/* What a reader gets of a frame. */
enum where_outcome {
    WHERE_HIDDEN,
    WHERE_WHOLE,
    WHERE_REMOVED, /* the document matched before, and does not match now */
};

/* A document whose state before is not known counts as one that matched: a reader that does not
 * have it ignores that it was removed. */
enum where_outcome where_decide(bool matched_before, bool matches_now);
/* Decides by the record of a frame. */
enum where_outcome where_judge(const struct where *where, struct slice record);

#endif
