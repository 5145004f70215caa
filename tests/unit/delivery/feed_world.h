/* Feeds on a loop that the test turns by hand, over a real hub and the store of a publisher. */
#ifndef FEED_WORLD_H
#define FEED_WORLD_H

#include "delivery/feed.h"
#include "delivery/publisher.h"
#include "net/hand_turned_loop.h"

struct feed_world {
    struct io_loop io;
    struct hub *hub;
    struct publisher *publisher;
    struct store_session *session; /* of the reads */
    struct policy_table policies;
    struct feeds feeds;
};

static inline void feed_world_open(struct feed_world *world, size_t window_frames) {
    memset(world, 0, sizeof(*world));
    policy_table_init(&world->policies);
    assert_ok(hub_open(&world->hub, &(struct hub_options){{window_frames, 4u << 20}, 256u << 20}));
    world->publisher = publisher_open(world->hub);
    assert_ok(store_session_open(world->publisher->store, STORE_READ, &world->session));
    hand_turned_loop_open(&world->io);
    feeds_open(&world->feeds, &world->io, world->hub);
}

/* The hub announces a commit through the loop's mailbox. */
static inline void feed_world_handle_wakes(struct feed_world *world) {
    io_loop_turn(&world->io, false);
}

static inline void feed_world_commit(struct feed_world *world, size_t count) {
    while (count > 0) {
        size_t part = count > PUBLISHER_BATCH_MAX ? PUBLISHER_BATCH_MAX : count;
        publisher_commit(world->publisher, part);
        count -= part;
    }
    feed_world_handle_wakes(world);
}

/* Every member has left, so no topic is watched any more. */
static inline void feed_world_close(struct feed_world *world) {
    assert_int_equal(world->feeds.by_name.count, 0);
    hand_turned_loop_end(&world->io);
    io_loop_close(&world->io);
    feeds_close(&world->feeds);
    store_session_close(world->session);
    publisher_close(world->publisher);
    hub_close(world->hub);
}

#endif
