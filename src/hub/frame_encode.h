/* Encodes the text of a frame: the JSON members that every dialect sends.
 * Any thread.
 * Memory: the encoding has room for the longest names on the stack of its caller. The payload is
 * not copied.
 * STATUS_PAYLOAD_TOO_LARGE for names beyond their limits.
 * The stored rows of a frame alone determine its text, so that a replayed frame has the bytes of
 * the live one. */
#ifndef HUB_FRAME_ENCODE_H
#define HUB_FRAME_ENCODE_H

#include "base/limits.h"
#include "hub/frame.h"

/* The members that struct frame_content does not have. */
struct frame_members {
    struct slice topic;
    const struct store_event *event; /* the event, or the last one that a document has folded */
    uint64_t first_seq;              /* the first event that the frame covers; 0: only the last */
    uint64_t document_version;
    const uint8_t *payload_hash; /* SHA256_BYTES */
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

#endif
