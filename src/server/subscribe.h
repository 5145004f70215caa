/* A subscribe request of the main dialect: which topics, each from where, read from JSON and
 * resolved against the store.
 * Read on the loop, resolved on a reader's thread, one after the other. One block of memory with
 * copies of all names.
 * STATUS_BAD_SUBSCRIPTION for another shape, STATUS_BAD_TOPIC for a name that cannot be a topic's;
 * STATUS_LIMIT_REACHED for too many of them; STATUS_OUT_OF_MEMORY.
 * A topic named twice is asked for once; a cursor of a topic that is not asked for is not looked
 * at. */
#ifndef SERVER_SUBSCRIBE_H
#define SERVER_SUBSCRIBE_H

#include "base/arena.h"
#include "store/store.h"
#include "wire/json.h"

struct subscribe_item {
    struct slice name;
    bool is_stream;
    struct slice topic;  /* known once resolved */
    struct slice stream; /* only while cursors are placed */
    bool has_cursor;
    uint64_t after_seq;
};

struct subscribe {
    struct arena arena;
    struct subscribe_item *items;
    size_t count;
    bool epoch_differs;
    bool bootstrap;
    bool frames;
    uint64_t batch_size;
};

MUST_CHECK enum status subscribe_read(struct subscribe *subscribe, struct json_value payload,
                                      struct slice epoch, size_t topics_max);
/* Finds the topics of streams; afterwards each topic is there once. */
MUST_CHECK enum status subscribe_resolve(struct subscribe *subscribe,
                                         struct store_session *session);
void subscribe_release(struct subscribe *subscribe);

#endif
