/* The topic that an address means: the one place where names of clients become topics.
 * A thread of the store pool.
 * Texts live in the caller's arena, or are the address itself.
 * The store's errors; STATUS_INVALID_TOPIC for a text that cannot be an address;
 * STATUS_STREAM_ID_CONFLICT for the name of a topic that cannot exist, because another topic has
 * its stream id. A topic and its stream id give the same answer. */
#ifndef DELIVERY_TOPIC_ADDRESS_H
#define DELIVERY_TOPIC_ADDRESS_H

#include "store/store.h"
#include "topic/stream_id.h"

struct topic_address {
    struct slice topic; /* data NULL: no topic has the stream id yet, and several names could */
    struct slice stream_id;
    bool exists;
    struct store_topic row; /* if it exists */
};

MUST_CHECK enum status topic_address_find(struct store_session *session, struct slice address,
                                          struct arena *arena, struct topic_address *found);
/* The same as if the topic did not exist: its names follow from the address. */
MUST_CHECK enum status topic_address_absent(struct slice address, struct arena *arena,
                                            struct topic_address *found);

#endif
