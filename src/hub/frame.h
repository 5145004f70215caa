/* A frame: one item of a topic as it is delivered. It is immutable and shared by all subscribers.
 * Any thread.
 * One block of memory for a frame and one for each encoded form. All are freed with the last
 * reference.
 * STATUS_OUT_OF_MEMORY, and the status of an encoder.
 * A form has the same bytes for every subscriber. */
#ifndef HUB_FRAME_H
#define HUB_FRAME_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "store/store.h"

/* The content of a frame. Absent texts have data NULL. */
struct frame_content {
    struct slice topic;
    uint64_t seq;
    struct slice kind; /* the type of the event or the kind of the document */
    struct slice document_key;
    uint64_t document_version;
    struct slice payload; /* canonical JSON */
    uint8_t payload_hash[SHA256_BYTES];
    struct uuid event_id;
    struct uuid cursor;
    uint64_t published_at_ms;
    struct owner owner; /* for the check of entitlement */
};

/* The number of forms. Each dialect has its own index. */
#define FRAME_FORMS_MAX 4

struct frame_text;

struct frame {
    struct frame_content content;
    uint64_t committed_ns; /* monotonic; 0: read from the store */
    atomic_uint references;
    size_t bytes; /* of the frame and of two forms, reserved in advance */
    _Atomic(struct frame_text *) forms[FRAME_FORMS_MAX];
    char texts[];
};

struct frame_form {
    unsigned index;
    size_t bytes_max;
    MUST_CHECK enum status (*encode)(const struct frame_content *content, struct buffer *out);
};

/* Copies all texts. The caller owns the only reference. */
MUST_CHECK enum status frame_make(struct frame **frame, const struct frame_content *content);
struct frame *frame_ref(struct frame *frame);
void frame_unref(struct frame *frame);
/* The text lives as long as the frame. */
MUST_CHECK enum status frame_encoded(struct frame *frame, const struct frame_form *form,
                                     struct slice *text);
/* Appends the text. It is stored only from the second call on, because most frames of a replay are
 * sent once. */
MUST_CHECK enum status frame_append(struct frame *frame, const struct frame_form *form,
                                    struct buffer *out);

#endif
