/* Several nodes over one store: the rows of the nodes, and how far the log is for nodes that
 * follow. All functions need a store that nodes can share.
 * Thread: as in store.h.
 * Memory: rows given to a callback live until it returns.
 * Errors: those of store.h. STATUS_LIMIT_REACHED from a callback ends a walk, like any other.
 * Invariant: a node learns of every commit by its log id or its commit id; both rise in the order
 * of commits. */
#ifndef STORE_STORE_NODES_H
#define STORE_STORE_NODES_H

#include "store/store.h"

/* One node. Times are by the clock of the database. */
struct store_node {
    struct slice id;
    struct slice address;
    struct slice operator_address; /* absent: operator routes share the address */
    struct slice version;
    uint64_t schema_version;
    bool is_writer;
    uint64_t term;      /* of the writer role */
    uint64_t log_id;    /* of the last event that the node has delivered; 0: none */
    struct uuid cursor; /* of that event */
    uint64_t revocations_seen;
    struct slice topics_hash; /* of its topics file; empty: it has none; absent: an earlier build */
    uint64_t started_at_ms;   /* read only */
    uint64_t age_ms;          /* read only: since the row was written */
};

/* How far the store is, read at one moment. */
struct store_progress {
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t log_id; /* of the last event; 0: none */
    struct uuid cursor;
    uint64_t commit_id;     /* of the last commit that changed topics with journal rows; 0: none */
    uint64_t commit_id_min; /* of the oldest that is kept */
    bool has_unlisted;      /* a commit after the given one does not name its topics */
    uint64_t revocation_serial; /* the last one given out */
    uint64_t term;
    uint64_t schema_version;
    uint64_t reader_version; /* the oldest schema version whose builds may read this schema */
};

/* Whether several servers can share the store. Such a store has sessions of mode STORE_SIDE. */
bool store_is_shared(const struct store *store);

/* Opens the store for a server. A store that servers can share is opened without the writer role
 * where another server has it: store_take_role then answers STATUS_NOT_WRITER. Other stores are
 * opened as with exclusive. */
MUST_CHECK enum status store_join(struct store **store, const char *url,
                                  struct store_message *message);

/* Writes the node's row. A side session. */
MUST_CHECK enum status store_put_node(struct store_session *session, const struct store_node *node);
/* The writer, once in a while: removes the rows of nodes that ended long ago, and old rows of
 * commits.
 */
MUST_CHECK enum status store_tidy_nodes(struct store_session *session);
MUST_CHECK enum status store_drop_node(struct store_session *session, struct slice id);

/* Any node, with a side session: asks the writer to repair a row. At most some hundreds wait; more
 * are dropped, and reported again by the next read that meets the row. */
MUST_CHECK enum status store_report_damage(struct store_session *session,
                                           const struct store_damage *damage);
/* The writer, with a side session: removes the reports that wait, and hands them on. The text of a
 * damage lives until the callback returns. */
MUST_CHECK enum status store_take_damages(struct store_session *session, void *user,
                                          void (*callback)(void *user,
                                                           const struct store_damage *damage));

typedef enum status store_node_cb(void *user, const struct store_node *node);

/* By id, all rows. */
MUST_CHECK enum status store_walk_nodes(struct store_session *session, void *user,
                                        store_node_cb *callback);

/* after_commit_id: the last commit that the caller knows. */
MUST_CHECK enum status store_read_progress(struct store_session *session, uint64_t after_commit_id,
                                           struct store_progress *progress);
/* By ref: the topics that commits after the given one name. */
MUST_CHECK enum status store_walk_changed_topics(struct store_session *session,
                                                 uint64_t after_commit_id, void *user,
                                                 store_topic_cb *callback);
/* Those that were put after the serial, expired ones too. */
MUST_CHECK enum status store_walk_new_revocations(struct store_session *session,
                                                  uint64_t after_serial, void *user,
                                                  store_revocation_cb *callback);

#endif
