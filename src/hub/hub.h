/* The hub: the topics somebody watches, with the newest frames of each, between the writer that
 * publishes and the loops that deliver.
 * Any thread, but hub_publish and hub_prune, which are the writer's; a listener and its watches
 * belong to one thread. Memory: windows bounded a topic and in all (the coldest give way), nothing
 * for a topic nobody watched; a loop that is slow to come costs nothing, since a topic is announced
 * once. STATUS_OUT_OF_MEMORY for a watch; publishing cannot fail: where memory lacks, readers find
 * the frames in the store. The head the hub knows is never ahead of what is durable. No seam: watch
 * first, read the store afterwards; what that read did not see is announced. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "hub/window.h"

struct hub;
struct hub_topic;

struct hub_options {
    struct window_limits window; /* of a topic */
    size_t bytes_max;            /* of all windows; each of HUB_SHARDS parts has its share */
};

#define HUB_SHARDS 16

/* One thread that wants to know which of its topics advanced. wake runs on the writer's thread, at
 * most once a commit and not again before hub_listener_begin; it must neither wait nor call the
 * hub. */
struct hub_watch;
struct hub_listener {
    struct hub *hub;
    void (*wake)(void *user);
    void *user;
    struct hub_listener *next;
    /* Under the listeners' lock. */
    struct hub_watch *first;
    struct hub_watch *last;
    size_t count;
    bool is_woken;
};

/* A listener's interest in a topic; a member of the listener's own object. */
struct hub_watch {
    struct hub_topic *topic;
    struct hub_listener *listener;
    struct hub_watch *next; /* of the topic */
    /* Of the listener's list of topics that advanced. */
    struct hub_watch *advanced_previous;
    struct hub_watch *advanced_next;
    bool has_advanced;
};

MUST_CHECK enum status hub_open(struct hub **hub, const struct hub_options *options);
/* When nobody watches or publishes any more. */
void hub_close(struct hub *hub);

void hub_listen(struct hub *hub, struct hub_listener *listener, void (*wake)(void *user),
                void *user);
/* Not woken any more when it returns; its watches are gone before. */
void hub_unlisten(struct hub_listener *listener);
/* How many topics have advanced so far; ask for that many, and be woken for the ones after. */
MUST_CHECK size_t hub_listener_begin(struct hub_listener *listener);
/* The next one that advanced, or NULL. */
struct hub_watch *hub_listener_next(struct hub_listener *listener);

MUST_CHECK enum status hub_watch(struct hub_listener *listener, struct slice topic,
                                 struct hub_watch *watch);
void hub_unwatch(struct hub_watch *watch);
/* The head that a read of the store found, made after hub_watch. */
void hub_learn_head(struct hub_watch *watch, uint64_t head_seq);
/* The first seq in memory; UINT64_MAX when there is none. */
uint64_t hub_first_seq(struct hub_watch *watch);

enum hub_place {
    HUB_FRAMES,  /* here they are */
    HUB_AT_HEAD, /* there is nothing yet at that seq */
    HUB_BELOW,   /* older than the window: the store has it */
};

struct hub_take {
    uint64_t next_seq;
    size_t count_max;
    size_t bytes_max;      /* of payloads; the first frame is taken whatever its size */
    struct frame **frames; /* each with a reference for the taker */
    size_t count;
    uint64_t head_seq;
    bool is_replay; /* they were read again from the store */
};

MUST_CHECK enum hub_place hub_take(struct hub_watch *watch, struct hub_take *take);

/* Frames read again from the store, for all who replay about the same place: a second window of the
 * topic, with the same limit in bytes and within the same budget, that is there while somebody
 * replays. */

/* One more replays, or one less. */
void hub_replay_begin(struct hub_watch *watch);
void hub_replay_end(struct hub_watch *watch);
/* Keeps frames that follow each other, with references of its own. Answers whether they are all
 * there now: not without memory for them, nor while others replay elsewhere. */
bool hub_refill(struct hub_watch *watch, struct frame *const *frames, size_t count);
/* Any thread, while it is watched: whether that frame is in memory. */
bool hub_holds(struct hub_watch *watch, uint64_t seq);
/* For one that replays from memory and was given all before next_seq: whether it is to read on from
 * the store, behind after_seq, since no more than near_count frames are left. Only one does at a
 * time, and says when it is done. */
MUST_CHECK bool hub_ahead_begin(struct hub_watch *watch, uint64_t next_seq, size_t near_count,
                                uint64_t *after_seq);
void hub_ahead_end(struct hub_watch *watch);

/* On the writer's thread, after the commit; states[i] is the entity of events[i]. */
void hub_publish(struct hub *hub, const struct store_batch *batch,
                 const struct store_entity *states);

/* On the writer's thread, after frames below oldest_seq were pruned: they leave the window, so that
 * a reader below the floor asks the store, which tells it, wherever it was about to read. */
void hub_prune(struct hub *hub, struct slice name, uint64_t oldest_seq);

struct hub_stats {
    size_t topics;
    size_t bytes;
};

struct hub_stats hub_stats(struct hub *hub);

#endif
