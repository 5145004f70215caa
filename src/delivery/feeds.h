/* The feeds of a loop: the topics that its connections read. Each topic is watched once in the hub,
 * for all its members.
 * Belongs to its loop's thread.
 * Memory: a feed lives while it has a member. A member is part of its subscriber or poll.
 * STATUS_OUT_OF_MEMORY for a topic that cannot be watched.
 * A commit costs the loop one task, however many topics it advanced. */
#ifndef DELIVERY_FEEDS_H
#define DELIVERY_FEEDS_H

#include "base/list.h"
#include "base/map.h"
#include "delivery/page.h"
#include "hub/hub.h"
#include "io/loop.h"

struct feed;

/* One that reads a topic. */
struct feed_member {
    struct feed *feed;
    struct hlist_node node; /* in the feed's members */
    /* The topic advanced. May end this member, and no other. */
    void (*advanced)(struct feed_member *member);
};

struct feeds {
    struct io_loop *loop;
    struct loop_task advanced; /* posted by the hub when topics advanced */
    struct hub_listener listener;
    struct map by_name;
    struct hlist paged; /* the feeds that have a page */
};

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub);
/* When no member is left. */
void feeds_close(struct feeds *feeds);

MUST_CHECK enum status feed_join(struct feeds *feeds, struct slice topic,
                                 struct feed_member *member);
void feed_leave(struct feed_member *member);
struct hub_watch *feed_watch(struct feed *feed);
struct slice feed_name(const struct feed *feed);
/* The last page that a member was sent, for members at the same position; NULL: none. Takes over
 * the new one. */
struct page *feed_page(const struct feed *feed);
void feed_page_set(struct feed *feed, struct page *page);
void feeds_forget_pages(struct feeds *feeds);

#endif
