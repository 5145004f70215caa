/* The hub: the watched topics and their newest frames, between the writer that publishes and the
 * loops that deliver.
 * Thread: any; hub_publish, hub_advance and hub_prune belong to the writer; a listener and its
 * watches belong to one thread, except where a function says otherwise.
 * Memory: windows are bounded for each topic and in total. The least recently used windows are
 * evicted. A topic without a watch so far costs nothing. A slow loop costs nothing, because a topic
 * is announced once.
 * Errors: STATUS_OUT_OF_MEMORY for a watch. Publishing cannot fail: without memory, frames are read
 * from the store instead.
 * Invariant: the head known to the hub is durable. Watch first, then read the store: every frame
 * that the read missed is announced. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "base/list.h"
#include "hub/folded.h"
#include "hub/frame.h"
#include "hub/owner_map.h"
#include "hub/window.h"

struct hub;
struct hub_topic;

struct hub_options {
    struct window_limits window; /* for one topic */
    size_t bytes_max;            /* for all windows; each shard has an equal share */
};

#define HUB_SHARDS 16

/* A thread that learns which of its topics advanced. wake runs on the writer's thread, at most
 * once a commit and not again before hub_listener_begin. It must neither wait nor call the hub. */
struct hub_listener {
    struct hub *hub;
    void (*wake)(void *user);
    void *user;
    /* Under the lock of the listeners. */
    struct list_node node; /* in hub.listeners */
    struct list advanced;  /* watches whose topics advanced */
    size_t count;          /* in that list */
    bool is_woken;
};

/* The interest of a listener in a topic; embedded in an object of the listener. */
struct hub_watch {
    struct hub_topic *topic;
    struct hub_listener *listener;
    struct hlist_node node;    /* in hub_topic.watches */
    struct list_node advanced; /* in hub_listener.advanced */
};

MUST_CHECK enum status hub_open(struct hub **hub, const struct hub_options *options);
/* After the last watch, listener and publish. */
void hub_close(struct hub *hub);
/* The projection version of the frames that events become; PROJECTION_VERSION_DEFAULT unless set
 * before the first watch and publish. The text outlives the hub. */
void hub_set_projection_version(struct hub *hub, struct slice version);
struct slice hub_projection_version(const struct hub *hub);
/* It lives as long as the hub. */
struct owner_map *hub_owner_map(const struct hub *hub);
/* No topic is watched or has frames, so that nothing needs to be published. */
MUST_CHECK bool hub_is_empty(struct hub *hub);

void hub_listen(struct hub *hub, struct hub_listener *listener, void (*wake)(void *user),
                void *user);
/* The caller has removed its watches. wake is not called after the return. */
void hub_unlisten(struct hub_listener *listener);
/* The number of topics that have advanced. The caller takes that many with hub_listener_next; wake
 * is called for later ones. */
MUST_CHECK size_t hub_listener_begin(struct hub_listener *listener);
/* The next watch whose topic advanced, or NULL. */
struct hub_watch *hub_listener_next(struct hub_listener *listener);

MUST_CHECK enum status hub_watch(struct hub_listener *listener, struct slice topic,
                                 struct hub_watch *watch);
void hub_unwatch(struct hub_watch *watch);
/* The text that the hub keeps for the topic, as long as the watch exists: its name, or for an
 * application topic its stream id. */
struct slice hub_watch_key(const struct hub_watch *watch);
/* Any thread, while the watch exists. Tells the hub the head that a read of the store found after
 * hub_watch. */
void hub_learn_head(struct hub_watch *watch, uint64_t head_seq);
/* The current head. */
uint64_t hub_head_seq(struct hub_watch *watch);
/* The first seq in the window; UINT64_MAX for an empty window. */
uint64_t hub_first_seq(struct hub_watch *watch);

enum hub_take_result {
    HUB_FRAMES,  /* frames were taken */
    HUB_AT_HEAD, /* no frame has that seq yet */
    HUB_BELOW,   /* older than the window: read the store */
};

struct hub_take {
    uint64_t next_seq;
    size_t count_max;
    size_t bytes_max;      /* for the payloads; the first frame is taken at any size */
    struct frame **frames; /* the caller owns a reference to each */
    replay_place *place;   /* the replaying subscriber's; NULL: the frames are only examined */
    size_t count;
    uint64_t head_seq;
    uint64_t edition; /* hub_edition */
    bool is_replay;   /* the frames were read again from the store */
};

MUST_CHECK enum hub_take_result hub_take(struct hub_watch *watch, struct hub_take *take);

/* Frames that were read again from the store are kept at a few places (hub/window.h). */

/* The subscriber replays no more. */
void hub_replay_end(struct hub_watch *watch, replay_place *place);

/* Folded frames are kept in one list for each topic (hub/folded.h). */

/* As hub_take, from that list. False: it has no frame that begins there. */
MUST_CHECK bool hub_take_folded(struct hub_watch *watch, struct hub_take *take);
/* Keeps frames, some of which are folded, with references of its own. They follow each other.
 * edition: of the topic when the frames were taken, or before they were read. */
void hub_keep_folded(struct hub_watch *watch, const struct replay_page *page, uint64_t edition,
                     size_t payload_bytes_max);
/* Any thread, while the watch exists: whether that list has a frame that begins there; 0: any. */
bool hub_holds_folded(struct hub_watch *watch, uint64_t first_seq);

/* Changes when frames of the topic are pruned or its journal is rebuilt. */
uint64_t hub_edition(struct hub_watch *watch);
/* Any thread, while the watch exists. Adds frames, with references of its own. Frames that end
 * where the window begins, or at the head while the window is empty, go into the window, as far as
 * it has room: clients that come back later share them. Others are kept at a place, which the
 * subscriber joins. place: NULL for a subscriber that does not replay, whose frames stay only where
 * others replay. edition: of the topic before the read. False if not all are in memory afterwards:
 * memory is short, all places are taken, or the frames may have been pruned since they were read.
 */
bool hub_refill(struct hub_watch *watch, const struct replay_page *page, uint64_t edition,
                replay_place *place);
/* Any thread, while the watch exists: whether the frame is in memory. */
bool hub_holds(struct hub_watch *watch, uint64_t seq);
/* For a subscriber that replays from memory and has all frames before next_seq. True if at most
 * near_count frames are left and the caller shall read the frames after after_seq from the store.
 * One caller at a time reads ahead at a place; hub_read_ahead_end ends it. */
MUST_CHECK bool hub_read_ahead_begin(struct hub_watch *watch, uint64_t next_seq, size_t near_count,
                                     uint64_t *after_seq);
void hub_read_ahead_end(struct hub_watch *watch, uint64_t after_seq);

/* On the writer's thread, after frames below oldest_seq were pruned. They leave the windows, so
 * that a subscriber below the floor reads the store and learns that they are gone. */
void hub_prune(struct hub *hub, struct slice name, uint64_t oldest_seq);

struct hub_stats {
    size_t topics;
    size_t bytes;
};

struct hub_stats hub_stats(struct hub *hub);

/* ---- publishing, on the writer's thread ---- */

/* After the commit is durable: adds its frames, which copy the texts of the batch, and wakes the
 * listeners once. A frame without memory is read from the store later. states[i] is the entity of
 * events[i]. */
void hub_publish(struct hub *hub, const struct store_batch *batch,
                 const struct store_entity *states);

/* The topic has advanced to that head, and its new frames are in the store. Name absent: the log.
 */
void hub_advance(struct hub *hub, struct slice name, uint64_t head_seq);

#endif
