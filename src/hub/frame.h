/* A frame: one item of a topic as it is delivered, made of a stored event or journal row.
 * Thread: any; a frame is immutable and shared by all subscribers.
 * Memory: copies of all texts. A frame has its own memory, or shares a block with frames that were
 * made after each other. It is freed with the last reference to the frame, or to all frames of the
 * block.
 * Errors: STATUS_OUT_OF_MEMORY; STATUS_INTERNAL_ERROR for a stored document that is no JSON object.
 * Invariant: a frame is the same after its commit and after any later read. Its text is encoded
 * once, before it is made; every dialect sends these bytes and adds only a few words of its own.
 * The owner of a frame is the owner of the event if it has one, else the owner of its entity. */
#ifndef HUB_FRAME_H
#define HUB_FRAME_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/limits.h"
#include "store/store.h"
#include "topic/topic_name.h"

/* The content of a frame that the server itself reads. Absent texts have data NULL. */
struct frame_content {
    uint64_t seq;
    struct slice kind; /* the type of the event or the kind of the document */
    struct slice document_key;
    struct slice payload; /* canonical JSON */
    struct slice fields;  /* of a summary: the record of a frame (topic/where.h) */
    struct uuid cursor;
    uint64_t published_at_ms;
    uint64_t entity_ref; /* of the event */
    uint64_t document_version;
    struct owner owner; /* for the check of entitlement */
};

/* The JSON members of a frame, without braces, around the payload. Both are empty where the payload
 * is the whole text. */
struct frame_text {
    struct slice head;
    size_t lean_begin; /* in head: the members from there to the payload are the lean frame */
    struct slice tail;
};

/* How much of a frame a client asked for. */
enum frame_form {
    FRAME_FULL,
    FRAME_LEAN, /* what an application needs of an event, or of a document */
    FRAME_FORM_COUNT,
};

struct frame {
    struct frame_content content;
    uint64_t first_seq; /* the first event that it stands for; the seq, unless it is folded */
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
/* A frame that says, under the same seq, that the document is not among those that the reader asked
 * for any more: kind "removed", without the payload. NULL: there is no memory. */
struct frame *frame_removed(const struct frame *frame);
/* A copy with its own memory; NULL where there is none. */
struct frame *frame_copy(const struct frame *frame);
struct frame *frame_ref(struct frame *frame);
void frame_unref(struct frame *frame);

/* ---- the text of a frame ---- */

/* The members that struct frame_content does not have. */
struct frame_members {
    struct slice topic;
    const struct store_event *event; /* the event, or the last one that a document has folded */
    uint64_t first_seq;              /* the first event that the frame covers; 0: only the last */
    bool is_document;                /* not an event */
    const uint8_t *payload_hash;     /* SHA256_BYTES */
    struct slice projection_version;
};

struct frame_encoding {
    char head[FRAME_HEAD_BYTES_MAX];
    char tail[FRAME_TAIL_BYTES_MAX];
    struct frame_text text;
};

MUST_CHECK enum status frame_encode(const struct frame_content *content,
                                    const struct frame_members *members,
                                    struct frame_encoding *encoding);

/* ---- frames of stored rows ---- */

/* The owner of a frame of the event. It borrows the texts. */
struct owner frame_owner(const struct store_event *event, const struct owner *entity_owner);

/* The topic of a frame, and the version under which its events are projected now. A summary names
 * the version that it was stored with. */
struct frame_topic {
    struct slice name;
    struct slice projection_version;
};

/* An event on the topic of its entity, under the seq of the event. */
MUST_CHECK enum status frame_of_event(const struct frame_topic *topic,
                                      const struct store_event *event,
                                      const struct owner *entity_owner, struct frame_room *room,
                                      struct frame **frame);
/* A journal row: a summary, or the event itself if the row has no payload. */
MUST_CHECK enum status frame_of_row(const struct frame_topic *topic,
                                    const struct store_journal_row *row,
                                    const struct store_event *event,
                                    const struct owner *entity_owner, struct frame_room *room,
                                    struct frame **frame);
/* An event on the log. The payload is the whole event as JSON, and the key is "entity:id".
 * payload_hash is still the hash of the payload of the event. */
MUST_CHECK enum status frame_of_log(const struct store_event *event,
                                    const struct owner *entity_owner, struct frame_room *room,
                                    struct frame **frame);

#endif
