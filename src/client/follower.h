/* One topic of a client: runs the topic's machine, keeps its position, passes frames to the
 * application, and queues them while the application answers KHALA_LATER.
 * Thread: that of the client's loop.
 * Memory: owns its queue, its parts of a snapshot and its texts.
 * Errors: STATUS_OUT_OF_MEMORY: the position covers what the application got, so a new connection
 * continues.
 * Invariant: applied frames ascend within an epoch; the stored position never passes an applied
 * frame. */
#ifndef CLIENT_FOLLOWER_H
#define CLIENT_FOLLOWER_H

#include <khala/khala.h>

#include "base/list.h"
#include "client/client_error.h"
#include "client/client_limits.h"
#include "client/machine.h"
#include "client/range.h"
#include "client/recent.h"
#include "topic/position.h"

/* What an application applies, in order: frames, resets and moves of the position. The queue owns
 * its entries and copies of their texts. */

enum entry_kind { ENTRY_FRAME, ENTRY_RESET, ENTRY_MOVE };

#define ENTRY_REASON_BYTES_MAX 64

struct entry {
    struct list_node node;
    enum entry_kind kind;
    struct position position; /* behind the entry */
    struct slice json;        /* the frame; the documents of a reset, if it has some */
    char reason[ENTRY_REASON_BYTES_MAX];
    bool is_truncated;
    size_t bytes;
};

struct entry_queue {
    struct list entries;
    size_t frames;
    size_t bytes;
};

struct follower;

/* The follower's way to its connection. */
struct follower_link {
    void *user;
    void (*subscribe)(void *user, struct follower *follower);
    void (*unsubscribe)(void *user, struct follower *follower);
    void (*warn)(void *user, const struct client_error *error, const char *topic);
    /* The follower takes no more of the server. */
    void (*done)(void *user, struct follower *follower);
    /* The application got its last call. The follower may be freed, but not by this call. */
    void (*finished)(void *user, struct follower *follower);
    /* A timer is due at that time. */
    void (*wait)(void *user, uint64_t at_ms);
};

struct follower_place {
    bool is_known;
    struct position position;
};

struct follower_fault {
    uint64_t at_ms;
    bool is_gap;
};

struct follower {
    struct list_node node;        /* in the list of the connection */
    struct list_node wanted_node; /* in the channel's list of followers to subscribe */
    bool is_alone;                /* needs a subscribe request of its own */
    uint64_t number;
    const struct follower_link *link;
    const struct khala_options *options;
    struct khala_follow follow; /* its texts are in texts */
    char *texts;
    struct machine machine;
    struct follower_place received;
    struct follower_place applied;
    bool is_unsaved;
    bool is_pending;    /* the server has no such topic for this client yet */
    const char *since;  /* where to begin without a position; NULL: at the beginning */
    const char *form;   /* of its frames, as it is asked for now */
    bool has_caught_up; /* report it to the application once the queue is empty */
    char reason[CLIENT_CODE_BYTES_MAX]; /* reason of the next reset; "": none */
    struct recent recent;
    struct buffer documents; /* the parts of a snapshot, without brackets */
    bool has_parts;
    struct position parts_position;
    uint64_t next_part;
    struct entry_queue queue;
    bool is_held; /* the application said KHALA_LATER */
    bool is_over; /* done was called */
    bool has_error;
    bool is_finished;
    struct client_error error;
    enum status failure; /* first failure of an action */
    struct follower_fault faults[CLIENT_FAULTS_MAX];
    unsigned fault_count;
    unsigned trips;
    uint64_t retry_at_ms; /* 0: no wait */
};

MUST_CHECK enum status follower_make(struct follower **follower, const struct khala_follow *follow,
                                     const struct follower_link *link,
                                     const struct khala_options *options);
void follower_free(struct follower *follower);
/* Reads the stored position and begins. */
void follower_load(struct follower *follower, bool is_live);
void follower_give(struct follower *follower, enum topic_input input,
                   const struct client_error *error);
/* Answers of the server. A status other than STATUS_OK ends the connection. */
MUST_CHECK enum status follower_accepted(struct follower *follower, struct json_value epoch,
                                         struct json_value resume_after);
/* The server accepted the subscription, which begins when the topic exists. */
MUST_CHECK enum status follower_pending(struct follower *follower, struct json_value epoch);
MUST_CHECK enum status follower_started(struct follower *follower, struct json_value epoch,
                                        uint64_t from_seq, bool is_truncated);
MUST_CHECK enum status follower_range(struct follower *follower, struct json_value body);
/* A range without frames, from a heartbeat. */
MUST_CHECK enum status follower_covered(struct follower *follower, struct json_value body);
MUST_CHECK enum status follower_part(struct follower *follower, struct json_value body);
/* The server refuses the topic for good. */
void follower_refused(struct follower *follower, const struct client_error *error);
/* reason: the first reason of the server; "" if it has none. */
void follower_stale(struct follower *follower, const char *reason);
/* Offers the held entry to the application again. */
void follower_next(struct follower *follower);
/* Drops the entries of an ended follower that the application has not applied. */
void follower_abandon(struct follower *follower);
/* Ends its wait if that is due, and forgets old frames. Returns the time of its wait, or 0. */
uint64_t follower_tick(struct follower *follower, uint64_t now_ms);

#endif
