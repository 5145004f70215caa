/* The feeds of a loop: the topics its connections read, each watched once in the hub, with its
 * members.
 * Belongs to its loop's thread. A feed lives while it has a member; a member is a member of the
 * exchange's work.
 * STATUS_OUT_OF_MEMORY for a topic that cannot be watched.
 * A commit costs the loop one task, whatever the number of topics it advanced. */
#ifndef DELIVERY_FEEDS_H
#define DELIVERY_FEEDS_H

#include "base/map.h"
#include "delivery/page.h"
#include "hub/hub.h"
#include "io/loop.h"

struct feed;

/* Somebody who reads a topic. */
struct feed_member {
    struct feed *feed;
    struct feed_member *previous;
    struct feed_member *next;
    /* There is more. May end this member, and no other. */
    void (*advanced)(struct feed_member *member);
};

struct feeds {
    struct io_loop *loop;
    struct loop_task advanced; /* posted by the hub when topics advanced */
    struct hub_listener listener;
    struct map by_name;
    struct feed *paged; /* those that have a page */
};

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub);
/* When no member is left. */
void feeds_close(struct feeds *feeds);

MUST_CHECK enum status feed_join(struct feeds *feeds, struct slice topic,
                                 struct feed_member *member);
void feed_leave(struct feed_member *member);
struct hub_watch *feed_watch(struct feed *feed);
struct slice feed_name(const struct feed *feed);
/* The last page a member of the topic was sent, for those at the same place; NULL: none. Takes
 * over the new one. */
struct page *feed_page(const struct feed *feed);
void feed_page_set(struct feed *feed, struct page *page);
void feeds_forget_pages(struct feeds *feeds);

#endif
