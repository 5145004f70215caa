/* The nodes over one store: this node's row, and the last read table of all rows.
 * Thread: any, except nodes_beat (the writer's) and nodes_set_address (main).
 * Memory: at most NODES_MAX rows with texts of bounded size.
 * Errors: a beat that fails is counted and repeated by the next one. The table then grows old.
 * Invariant: a node is live for NODE_LIVE_MS after it wrote its row, by the clock of the database.
 */
#ifndef CLUSTER_NODES_H
#define CLUSTER_NODES_H

#include "base/limits.h"
#include "cluster/follow.h"
#include "topic/policy.h"

#define NODE_ID_SIZE    16
#define NODE_LIVE_MS    5000
#define NODE_TEXT_BYTES 280

struct nodes;

/* Where a node listens. */
struct node_address {
    char id[NODE_ID_SIZE + 1];
    char text[NODE_TEXT_BYTES];          /* "host:port" */
    char operator_text[NODE_TEXT_BYTES]; /* of its operator routes */
    bool is_self;
};

/* A row of the table. */
struct node_row {
    struct node_address address;
    char version[64];
    uint64_t schema_version;
    bool is_writer;
    bool is_live;
    uint64_t term;
    uint64_t log_id;
    uint64_t revocations_seen;
    char topics_hash[TOPIC_RULES_HASH_SIZE]; /* of its topics file; "": it has none */
    bool knows_topics;                       /* its build has topics files */
    uint64_t started_at_ms;
    uint64_t age_ms; /* since the node wrote its row */
};

/* Waits until every live node has confirmed a revocation, or until the time is over. */
struct nodes_wait {
    struct nodes_wait *next;
    uint64_t serial; /* of the revocation */
    uint64_t end_ns;
    size_t confirmed; /* nodes, with this one */
    size_t unconfirmed;
    /* On the writer's thread. */
    void (*done)(struct nodes_wait *wait);
};

struct nodes_options {
    struct store *store;
    const char *version; /* of this build */
    const struct policy_table *policies;
};

MUST_CHECK enum status nodes_open(struct nodes **nodes, const struct nodes_options *options);
/* NULL is no table. */
void nodes_close(struct nodes *nodes);
/* The sockets are bound: from now on the node has a row. operator_address "": none of its own. */
void nodes_set_address(struct nodes *nodes, const char *address, const char *operator_address);
/* Writes this node's row, and reads the table. The statuses of the store. */
MUST_CHECK enum status nodes_beat(struct nodes *nodes, struct store_session *side,
                                  const struct follow_beat *beat, uint64_t term,
                                  uint64_t revocations_seen);
/* After a beat that could not begin. */
void nodes_note_failure(struct nodes *nodes, enum status status, const char *error);
/* After how many milliseconds the next beat is due. */
uint64_t nodes_beat_ms(struct nodes *nodes);

/* The id of this node. It lives as long as the table. */
const char *nodes_self(const struct nodes *nodes);
/* False: no live writer is known. */
bool nodes_writer(struct nodes *nodes, struct node_address *address);
/* Whether another node is live. */
bool nodes_has_others(struct nodes *nodes);
/* This node has the revocation in force. The caller wakes the writer's thread for a beat. */
void nodes_confirm_post(struct nodes *nodes, struct nodes_wait *wait);
/* Copies at most NODES_MAX rows. */
size_t nodes_list(struct nodes *nodes, struct node_row rows[NODES_MAX]);

#endif
