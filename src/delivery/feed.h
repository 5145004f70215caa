/* The feeds of a loop: the topics that its connections read. Each topic is watched once in the hub,
 * for all its members.
 * Thread: the loop's.
 * Memory: a feed lives while it has a member; a member is part of its subscription. A member that
 * is listed by owner has a listing besides, and the lists take about eight bytes for each entry.
 * Errors: STATUS_OUT_OF_MEMORY for a topic that cannot be watched, or a member that cannot be
 * listed.
 * Invariant: a commit costs the loop one task, however many topics it advanced. On a shared topic
 * each member is woken for every frame that it may read, and rarely for another one. */
#ifndef DELIVERY_FEED_H
#define DELIVERY_FEED_H

#include "auth/grant.h"
#include "base/list.h"
#include "base/map.h"
#include "delivery/page.h"
#include "hub/hub.h"
#include "net/loop.h"
#include "topic/position.h"

struct feed;
struct writer;

/* The epoch of a topic, which most subscriptions of the topic have in common. The text never
 * changes. */
struct shared_epoch {
    size_t references;
    struct topic_epoch epoch;
};

void shared_epoch_unref(struct shared_epoch *epoch);

/* What the subscriptions of a topic on one thread share. It outlives them. */
struct feed_topic {
    struct hub_watch *watch;
    struct slice name; /* or a stream id of the kind ADDRESS_STORED_STREAM, until bound */
    const struct policy_table *policies;
    const struct policy *policy; /* feed_topic_policy keeps it current */
    unsigned policy_generation;
    struct writer *writer;      /* raises the floor of a damaged journal */
    struct shared_epoch *epoch; /* the last one that the store named; NULL: none yet */
};

/* The store named this epoch of the topic: place refers to it, instead of the one before. */
MUST_CHECK enum status feed_topic_set_epoch(struct feed_topic *topic,
                                            const struct topic_epoch *epoch,
                                            struct shared_epoch **place);
/* The policy in force, which is also that of all subscriptions of the topic from now on. */
const struct policy *feed_topic_policy(struct feed_topic *topic);
/* After its last subscription. */
void feed_topic_release(struct feed_topic *topic);

/* ---- members ---- */

struct feed_entry {
    struct hlist_node node;
    uint32_t key;
    uint32_t slot; /* its index in the listing */
};

/* The entries of a member that is listed by owner, and sees only frames of that owner. */
struct feed_listing {
    struct feed_member *member;
    struct feed_entry entries[PRINCIPAL_KEYS_MAX];
    uint64_t hidden_seq; /* for a settled member: see feed_hidden_seq */
    uint32_t own_count;  /* frames for it since it settled; FEED_UNKNOWN: not counted */
};

struct feed_member {
    struct feed *feed;
    struct hlist_node node;       /* in the list of all */
    struct feed_listing *listing; /* NULL: it reads everything */
    /* The topic advanced. May end this member and add others, but end no other. */
    void (*advanced)(struct feed_member *member);
};

/* The members of a topic by the owner whose frames they see. Zeroes: empty. */
struct feed_members {
    struct hlist all;      /* those that read everything */
    struct hlist *buckets; /* the others by key; NULL: none yet */
    size_t bucket_count;   /* a power of two */
    size_t entry_count;    /* in the buckets */
    size_t walks;          /* under way: the buckets must not change */
};

typedef void feed_visit(struct feed_member *member, void *user);

/* After the last member has left. */
void feed_members_release(struct feed_members *members);
bool feed_members_is_empty(const struct feed_members *members);
/* principal and view decide which frames it sees; the principal is not kept. */
MUST_CHECK enum status feed_members_add(struct feed_members *members, struct feed_member *member,
                                        const struct principal *principal, enum grant_view view);
void feed_members_remove(struct feed_members *members, struct feed_member *member);
/* A visit may end the visited member and add others, but end no other. */
void feed_members_visit_all(struct feed_members *members, feed_visit *visit, void *user);
/* The members that are listed by owner: those of this owner, or every one. */
void feed_members_visit_owner(struct feed_members *members, const struct owner *owner,
                              feed_visit *visit, void *user);
void feed_members_visit_listed(struct feed_members *members, feed_visit *visit, void *user);

/* ---- feeds ---- */

#define FEED_UNKNOWN UINT32_MAX

struct feeds {
    struct io_loop *loop;
    struct loop_task advanced; /* posted by the hub when topics advanced */
    struct hub_listener listener;
    struct map by_name;
    struct list pages; /* the pages of all feeds, the least recently used first */
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
 * of the last frame there, or NULL if it is not known. */
uint64_t feed_hidden_seq(const struct feed_member *member, const struct uuid **cursor);
/* The frames for this member since it settled; FEED_UNKNOWN: not counted. */
uint32_t feed_own_count(const struct feed_member *member);
/* For the subscriptions of its members. Policy and writer are the caller's to set. */
struct feed_topic *feed_topic(struct feed *feed);
/* The page behind that position, for such members that are there; NULL: none. A feed keeps its most
 * recently used pages. */
struct page *feed_page(struct feed *feed, uint64_t after_seq, const struct page_key *key);
/* Takes over the page. */
void feed_page_add(struct feed *feed, struct page *page);
/* No member waits for its turn: the pages are idle from now on. Frames of an idle page may have
 * been pruned since. */
void feeds_pages_idle(struct feeds *feeds);
bool feed_page_is_idle(const struct page *page);

#endif
