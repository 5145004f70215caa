/* An exchange that reads a topic: its subscription, its place among the loop's readers, and its
 * reads of the store.
 * Belongs to the exchange's loop. Is the beginning of the exchange's work, and freed with it.
 * What the readers refuse becomes the subscription's failure.
 * go_on is called when it may be worth asking the subscription again, never while a read is under
 * way, and never for an exchange whose peer is gone. */
#ifndef DELIVERY_TOPIC_READER_H
#define DELIVERY_TOPIC_READER_H

#include "delivery/feeds.h"
#include "delivery/subscription.h"
#include "http/exchange.h"
#include "io/loop.h"
#include "io/store_pool.h"

struct topic_reader {
    struct feed_member member;
    struct deadline deadline; /* of one that waits */
    struct exchange *exchange;
    struct subscription subscription;
    struct store_task task;
    struct loop_task back;
    void (*go_on)(struct topic_reader *reader);
    void (*timed_out)(struct topic_reader *reader);
    bool is_open;
};

/* The topic is the exchange's parameter. */
MUST_CHECK enum status topic_reader_open(struct topic_reader *reader, struct exchange *exchange,
                                         bool has_cursor, uint64_t after_seq);
/* After SUBSCRIPTION_READ. */
void topic_reader_read(struct topic_reader *reader);
struct topic_reader *topic_reader_of_deadline(struct deadline *deadline);
void topic_reader_expired(struct topic_reader *reader);
/* For the work's end. */
void topic_reader_release(struct topic_reader *reader);

/* One message of the polling dialect, as a frame's shared form. */
extern const struct frame_form message_form;

#endif
