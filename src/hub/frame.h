/* A frame: one item of a topic as it is delivered. It is immutable and shared by all subscribers.
 * Any thread.
 * Memory: a frame has its own, or shares a block with frames that were made after each other. It is
 * freed with the last reference to the frame, or to all frames of the block.
 * STATUS_OUT_OF_MEMORY.
 * The text of a frame is encoded once, before the frame is made. Every dialect sends these bytes,
 * live and on replay, and adds only a few words of its own. */
#ifndef HUB_FRAME_H
#define HUB_FRAME_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "store/store.h"

/* The content of a frame that the server itself reads. Absent texts have data NULL. */
struct frame_content {
    uint64_t seq;
    struct slice kind; /* the type of the event or the kind of the document */
    struct slice document_key;
    struct slice payload; /* canonical JSON */
    struct uuid cursor;
    uint64_t published_at_ms;
    struct owner owner; /* for the check of entitlement */
};

/* The JSON members of a frame, without braces, around the payload. Both are empty where the payload
 * is the whole text. */
struct frame_text {
    struct slice head;
    size_t lean_begin; /* in head */
    struct slice tail;
};

/* How much of a frame a client asked for. */
enum frame_form {
    FRAME_FULL,
    FRAME_LEAN, /* seq, kind, doc_key and payload */
    FRAME_FORM_COUNT,
};

struct frame {
    struct frame_content content;
    struct slice forms[FRAME_FORM_COUNT]; /* JSON members without braces; both in the same bytes */
    uint64_t committed_ns;                /* monotonic; 0: read from the store */
    atomic_uint references;
    struct frame_block *block; /* NULL: the frame has its own memory */
    size_t bytes;
    char texts[];
};

/* Memory for frames that are made after each other on one thread. Begins as zero. Allocating each
 * frame of a replay alone, and freeing it on another thread, would take a tenth of the replay. */
struct frame_room {
    struct frame_block *block;
};

void frame_room_release(struct frame_room *room);

/* The form of that name: "full" or "lean". False for any other. */
MUST_CHECK bool frame_form_of(struct slice name, enum frame_form *form);

/* Copies all texts. The caller owns the only reference. room: NULL for a frame with its own memory.
 */
MUST_CHECK enum status frame_make(struct frame_room *room, const struct frame_content *content,
                                  const struct frame_text *text, struct frame **frame);
/* A copy with its own memory; NULL where there is none. */
struct frame *frame_copy(const struct frame *frame);
struct frame *frame_ref(struct frame *frame);
void frame_unref(struct frame *frame);

#endif
