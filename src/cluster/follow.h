/* Following the log: announces the commits that the writer of this process did not see succeed,
 * because another node made them or because their answers were lost.
 * Thread: the writer's; follow_wait_post, follow_hint and follow_ask_beat from any thread.
 * Memory: rows live until an announcement returns. A node that is far behind announces heads,
 * without frames, so that its memory is bounded.
 * Errors: the statuses of the store's walks. The next pass continues one that failed. In another
 * epoch a pass announces nothing and answers STATUS_WRITER_LOST.
 * Invariant: each event is announced once, in the order of the log; then the heads of topics with
 * journal rows.
 */
#ifndef CLUSTER_FOLLOW_H
#define CLUSTER_FOLLOW_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/role.h"
#include "store/store_nodes.h"

/* Waits for a pass over the log. */
struct follow_wait {
    struct follow_wait *next;
    /* STATUS_OK, or the status of the pass, or STATUS_SHUTTING_DOWN. */
    enum status status;
    void (*done)(struct follow_wait *wait);
};

/* The state of this node, for its row. */
struct follow_beat {
    enum writer_role role; /* LOST at the end */
    bool is_ending;
    uint64_t log_id; /* of the last event that was announced; 0: none */
    struct uuid cursor;
};

/* All run on the writer's thread. Each may be NULL. */
struct follow_hooks {
    void *user;
    /* The epoch that this process delivers. NULL: it is not checked. */
    const char *epoch;
    /* The log has another epoch. Nothing more is announced. */
    void (*epoch_changed)(void *user, const char *epoch);
    /* A commit of another node. states[i] is the entity of batch->events[i]. */
    void (*commit)(void *user, const struct store_batch *batch, const struct store_entity *states);
    /* False: commits that were made before this call need no announcement, because every later
     * reader reads the store first. NULL: always true. */
    bool (*is_watched)(void *user);
    /* The topic has advanced, by more than was announced. Topic absent: the log itself. */
    void (*head)(void *user, struct slice topic, uint64_t head_seq);
    void (*pruned)(void *user, struct slice topic, uint64_t oldest_seq);
    /* Runs if it was asked for, if the node became or ceased to be the writer, and after the
     * milliseconds that it returned last. */
    uint64_t (*beat)(void *user, struct store_session *side, const struct follow_beat *beat);
};

struct follow {
    struct follow_hooks hooks;
    const struct role *role;
    struct store_session *side; /* NULL: nodes cannot share the store */
    uint64_t poll_ms;
    uint64_t log_id; /* of the last event that was announced; 0: none */
    struct uuid cursor;
    uint64_t commit_id;  /* of the last commit whose topics were announced, */
    bool has_commit_id;  /* if it is known */
    uint64_t pass_at_ns; /* when the log is read next without a hint */
    uint64_t beat_at_ns;
    uint64_t role_changes; /* that a beat has shown */
    atomic_bool is_hinted;
    atomic_bool is_beat_asked;
    pthread_mutex_t lock;
    struct follow_wait *waits; /* under lock */
};

/* Opens a side session, where the store has such sessions. */
MUST_CHECK enum status follow_open(struct follow *follow, struct store *store,
                                   const struct role *role, const struct follow_hooks *hooks,
                                   uint64_t poll_ms);
/* Ends all waits with STATUS_SHUTTING_DOWN. */
void follow_close(struct follow *follow);
/* Begins behind the last event of the store. */
MUST_CHECK enum status follow_begin(struct follow *follow);
/* Announces all commits since the last pass, with any session. */
MUST_CHECK enum status follow_pass(struct follow *follow, struct store_session *session);
/* The writer announced its own commits up to this event. */
void follow_note(struct follow *follow, uint64_t log_id, const struct uuid *cursor);
/* Does what is due: a pass, unless this node is the writer, and a beat. A beat has a pass before
 * it. Returns how long until the next is due; negative: never. */
int64_t follow_turn(struct follow *follow);

/* Any thread. The caller wakes the writer's thread. */
void follow_wait_post(struct follow *follow, struct follow_wait *wait);
/* The log may have advanced: the next turn has a pass. */
void follow_hint(struct follow *follow);
/* The next turn has a beat. */
void follow_ask_beat(struct follow *follow);

#endif
