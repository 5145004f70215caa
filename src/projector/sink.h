/* Sinks: the destinations of projected summaries. Noop and tables implement the interface; systems
 * outside the store get the documents from the journal (delivery/relay/relay.h).
 * Thread: the writer's, or the one that reprojects.
 * Memory: the data of a commit lives until settle has returned.
 * Errors: a sink that fails has written nothing of the commit, and never fails the append.
 * Invariant: each write is followed by exactly one settle. The data is valid after settle(true)
 * only, so a sink that writes outside the store must wait for it. */
#ifndef PROJECTOR_SINK_H
#define PROJECTOR_SINK_H

#include "base/limits.h"
#include "store/store.h"

/* The new summary of one entity. */
struct sink_update {
    struct store_document document;
    struct store_checkpoint checkpoint;
    uint64_t first_seq; /* first event since the last frame; 0: one event, or unknown */
    uint64_t log_id;    /* log id of the last event */
    struct owner owner;
    struct slice fields_before; /* as in struct store_journal_row */
    bool is_checkpoint_only;    /* the stored document is correct: no frame */
};

/* An event for the topic that carries the events of all entities of its kind. */
struct sink_shared_event {
    enum topic_kind topic;
    uint64_t log_id;
    uint64_t entity_ref;
    uint8_t payload_hash[SHA256_BYTES];
};

struct sink_commit {
    uint64_t now_ms;
    const struct sink_update *updates;
    size_t update_count;
    const struct sink_shared_event *shared_events;
    size_t shared_event_count;
    const struct store_drift *drifts;
    size_t drift_count;
    /* The commit of the events, for sinks whose rows belong to it. */
    struct store_session *session;
    struct arena *arena;
    struct store_batch *batch;
    uint64_t *last_topic_ref;
};

struct sink {
    const char *name;
    void *user;
    /* NULL: the sink needs no documents, and the projector folds none. */
    enum status (*write)(void *user, const struct sink_commit *commit);
    void (*settle)(void *user, bool committed); /* may be NULL */
};

extern const struct sink sink_noop;
/* Adds documents, checkpoints, journal rows, topic counters and drifts to the batch. */
extern const struct sink sink_tables;

#endif
