/* The feeds of a loop: the topics that its connections read. Each topic is watched once in the hub,
 * for all its members.
 * Belongs to its loop's thread.
 * Memory: a feed lives while it has a member. A member is part of its subscriber or poll.
 * STATUS_OUT_OF_MEMORY for a topic that cannot be watched.
 * A commit costs the loop one task, however many topics it advanced. On a shared topic, a frame
 * wakes only the members that may read it. */
#ifndef DELIVERY_FEEDS_H
#define DELIVERY_FEEDS_H

#include "base/list.h"
#include "base/map.h"
#include "delivery/page.h"
#include "delivery/readers.h"
#include "hub/hub.h"
#include "io/loop.h"

struct feed;

/* One that reads a topic. */
struct feed_member {
    struct feed *feed;
    struct reader reader;
    /* The topic advanced. May end this member, and no other. */
    void (*advanced)(struct feed_member *member);
};

#define FEED_UNKNOWN UINT32_MAX

struct feeds {
    struct io_loop *loop;
    struct loop_task advanced; /* posted by the hub when topics advanced */
    struct hub_listener listener;
    struct map by_name;
    struct list pages; /* of all feeds, the least recently used first */
    size_t page_bytes;
    uint64_t round; /* rises when no member waits for its turn */
};

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub);
/* When no member is left. */
void feeds_close(struct feeds *feeds);

/* principal and view: which frames the member may read; the principal is not kept. */
MUST_CHECK enum status feed_join(struct feeds *feeds, struct slice topic,
                                 struct feed_member *member, const struct principal *principal,
                                 enum grant_view view);
void feed_leave(struct feed_member *member);
/* The member has examined every frame up to head_seq, the hub's head. Frames after that wake it if
 * it may read them. */
void feed_settled(struct feed_member *member, uint64_t head_seq);
/* The member was sent frames that it may read. */
void feed_taken(struct feed_member *member, size_t count);
/* How far a settled member may move its position without examining frames; 0: not at all. cursor:
 * of the last frame there, or NULL where it is not known. */
uint64_t feed_hidden_seq(const struct feed_member *member, const struct uuid **cursor);
/* The frames of its own since the member settled; FEED_UNKNOWN: not counted. */
uint32_t feed_own_count(const struct feed_member *member);
/* For the subscriptions of its members. Policy and writer are the caller's to set. */
struct subscription_topic *feed_topic(struct feed *feed);
/* The page behind that position, for members that are there; NULL: none. A feed keeps its most
 * recently used pages. */
struct page *feed_page(struct feed *feed, uint64_t after_seq);
/* Takes over the page. */
void feed_page_add(struct feed *feed, struct page *page);
/* No member waits for its turn: the pages are idle from now on. Frames of an idle page may have
 * been pruned since. */
void feeds_pages_idle(struct feeds *feeds);
bool feed_page_is_idle(const struct page *page);

#endif
