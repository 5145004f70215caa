/* A frame: one item of a topic as it is delivered, immutable and shared by everybody who reads it.
 * Any thread. One block of memory a frame, and one for each form it was encoded to, all returned
 * with the last reference.
 * STATUS_OUT_OF_MEMORY, and what an encoder answers.
 * A form is the same bytes for everybody, whoever made it. */
#ifndef HUB_FRAME_H
#define HUB_FRAME_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "store/store.h"

/* What a frame says. Absent texts have data NULL. */
struct frame_content {
    struct slice topic;
    uint64_t seq;
    struct slice kind; /* the event's type, or the document's kind */
    struct slice document_key;
    uint64_t document_version;
    struct slice payload; /* canonical JSON */
    uint8_t payload_hash[SHA256_BYTES];
    struct uuid event_id;
    struct uuid cursor;
    uint64_t published_at_ms;
    struct owner owner; /* entitlement asks for it */
};

/* The forms there may be; each is one dialect's own, who knows its number. */
#define FRAME_FORMS_MAX 4

struct frame_text;

struct frame {
    struct frame_content content;
    uint64_t committed_ns; /* by the monotonic clock; 0: read from the store */
    atomic_uint references;
    size_t bytes; /* of the frame, and of two forms, reserved before they are made */
    _Atomic(struct frame_text *) forms[FRAME_FORMS_MAX];
    char texts[];
};

struct frame_form {
    unsigned index;
    size_t bytes_max;
    MUST_CHECK enum status (*encode)(const struct frame_content *content, struct buffer *out);
};

/* Copies all texts. The caller has the one reference. */
MUST_CHECK enum status frame_make(struct frame **frame, const struct frame_content *content);
struct frame *frame_ref(struct frame *frame);
void frame_unref(struct frame *frame);
/* The text lives as long as the frame. */
MUST_CHECK enum status frame_encoded(struct frame *frame, const struct frame_form *form,
                                     struct slice *text);
/* Appends the text, which is only kept when it is asked for again: most frames of a replay are
 * wanted once. */
MUST_CHECK enum status frame_append(struct frame *frame, const struct frame_form *form,
                                    struct buffer *out);

#endif
