/* Pages as Phoenix pushes: one sync:update_batch a page, or a sync:frame for each frame of it.
 * Belongs to a loop's thread. Written with join_ref null, so that they are the same bytes for
 * every client.
 * Errors: the buffer's own.
 * Every page names the range it covers. */
#ifndef DIALECT_PHOENIX_PHOENIX_FORM_H
#define DIALECT_PHOENIX_PHOENIX_FORM_H

#include "delivery/page.h"

#define PHOENIX_CHANNEL SLICE("sync:v1")

/* What a subscription gets of each frame. */
enum phoenix_updates {
    PHOENIX_UPDATES_FULL,
    PHOENIX_UPDATES_LEAN, /* form: "lean" */
    PHOENIX_UPDATES_NONE, /* frames: true: sync:frame instead */
    PHOENIX_UPDATES_COUNT,
};

/* The form of a subscription, with or without compression. */
const struct page_form *phoenix_form(enum phoenix_updates updates, bool compress);

/* The part of a topic that a batch covers: (after, through] of that epoch. */
struct phoenix_range {
    struct slice topic;
    const char *epoch;
    uint64_t after;
    uint64_t through;
    uint64_t head;
};

/* The payload of an empty sync:update_batch, the last one of a replay. */
MUST_CHECK enum status phoenix_empty_batch(const struct phoenix_range *range, struct buffer *out);

#endif
