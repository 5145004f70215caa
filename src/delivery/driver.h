/* A driver: one subscription with its feed, and what happens with each answer of the subscription.
 * Push sessions and polls drive their subscriptions with it; they differ in their sinks.
 * Belongs to its loop's thread, except driver_read_run, which runs on a thread of the store pool.
 * Memory: a member of the sink's own object. The topic's name is the feed's.
 * STATUS_OUT_OF_MEMORY for a topic that cannot be watched.
 * Each step ends in exactly one call of the sink. */
#ifndef DELIVERY_DRIVER_H
#define DELIVERY_DRIVER_H

#include "delivery/feeds.h"
#include "delivery/subscription.h"

struct driver {
    struct feed_member member;
    struct subscription subscription;
};

struct driver_sink {
    /* Frames, or a range without any for this principal. The sink releases the batch. */
    void (*frames)(struct driver *driver, struct delivery_batch *batch);
    /* There is nothing more for now. The driver's member is called when the topic advances. */
    void (*at_head)(struct driver *driver);
    /* The subscription needs a read: have driver_read_run run, then call driver_read_done. */
    void (*read)(struct driver *driver);
    /* The frames are being read ahead. NULL for a sink that does not read ahead. */
    void (*ahead)(struct driver *driver);
    /* Retention overtook the position: see subscription_continuity. */
    void (*stale)(struct driver *driver);
    /* See the subscription's status. */
    void (*failed)(struct driver *driver);
};

/* Of the server: the same for all subscriptions. */
struct driver_rules {
    const struct policy_table *policies;
    struct writer *writer; /* raises the floor of a damaged journal */
};

MUST_CHECK enum status driver_open(struct driver *driver, struct feeds *feeds, struct slice topic,
                                   const struct driver_rules *rules,
                                   const struct subscription_options *options);
/* Not while a read is under way. */
void driver_close(struct driver *driver);
/* Asks the subscription once, not while a read is under way. */
void driver_step(struct driver *driver, size_t frames_max, size_t bytes_max,
                 const struct driver_sink *sink);
/* True: it must be run again, before driver_read_done. */
bool driver_read_run(struct driver *driver, struct store_session *store);
/* status: STATUS_OK, or why the read could not be run. */
void driver_read_done(struct driver *driver, enum status status);
/* Moves the position over frames that the feed knows to be hidden. */
void driver_skip_hidden(struct driver *driver);
/* The client was sent that batch, which another subscription took. */
void driver_pass(struct driver *driver, const struct delivery_batch *batch, uint64_t head_seq);
/* How many frames the subscription is behind, by the newest head that it knows. */
uint64_t driver_lag(const struct driver *driver);
/* The same by the present head, without frames that are known to be hidden: on a shared topic,
 * after the subscription has reached the head once. */
uint64_t driver_own_lag(const struct driver *driver);
/* The frames behind the subscription include hidden ones: it shares its topic with other owners,
 * and has not reached the head. */
bool driver_hides_lag(const struct driver *driver);

#endif
