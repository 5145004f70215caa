/* The batch under way: all rows of the next commit, and indexes by which its requests find each
 * other's rows.
 * Thread: the writer's.
 * Memory: for BATCH_REQUESTS_MAX requests, allocated once and reused.
 * Errors: STATUS_OUT_OF_MEMORY, before anything was added.
 * Invariant: the log ids of its events run from first_log_id on without gaps. */
#ifndef AUTHORITY_LEDGER_BATCH_H
#define AUTHORITY_LEDGER_BATCH_H

#include "authority/append.h"
#include "authority/entity_cache.h"
#include "base/map.h"

struct ledger_batch {
    uint64_t first_log_id;
    bool is_shared;             /* between principals; the writer sets it */
    uint64_t imported_log_id;   /* the last imported event; 0: none */
    enum store_room room_least; /* the least room that one of its events accepts */
    struct store_event *events;
    struct store_entity *states; /* the entity of each event, after the event */
    size_t event_count;
    struct entity_entry **changed; /* entities with rows to write */
    size_t changed_count;
    struct store_entity *entities; /* the rows of the changed entities, made by ledger_batch_fill */
    struct store_key *keys;
    size_t key_count;
    struct store_topic *topics; /* new topics */
    size_t topic_count;
    /* Requests whose answer, or refusal, holds only if this batch is committed. */
    struct append_request **pending;
    size_t pending_count;

    /* The outbox rows that the commit removes, in the outbox's memory. */
    const int64_t *outbox_ids;
    size_t outbox_count;
    const struct store_outbox_rejection *rejections;
    size_t rejection_count;

    struct map key_index;    /* entity ref and key: the key's row */
    struct map stream_index; /* stream id: the topic's row */
    struct arena arena;
};

MUST_CHECK enum status ledger_batch_init(struct ledger_batch *batch);
void ledger_batch_release(struct ledger_batch *batch);
void ledger_batch_begin(struct ledger_batch *batch, uint64_t first_log_id);

/* NULL: the event is not in this batch. */
const struct store_event *ledger_batch_event(const struct ledger_batch *batch, uint64_t log_id);
/* The log id of the event with that minted id; 0: this batch has none. */
uint64_t ledger_batch_find_minted(const struct ledger_batch *batch, const struct uuid *id);
/* The log id of the event with that key; 0: this batch has none. */
uint64_t ledger_batch_find_key(const struct ledger_batch *batch, uint64_t entity_ref,
                               struct slice key);
const struct store_topic *ledger_batch_find_stream(const struct ledger_batch *batch,
                                                   struct slice stream_id);

/* The slices are kept as they are. */
MUST_CHECK enum status ledger_batch_add_key(struct ledger_batch *batch,
                                            const struct store_key *key);
MUST_CHECK enum status ledger_batch_add_topic(struct ledger_batch *batch,
                                              const struct store_topic *topic);
void ledger_batch_add_changed(struct ledger_batch *batch, struct entity_entry *entry);
void ledger_batch_add_pending(struct ledger_batch *batch, struct append_request *request);

/* The rows to store, as store_commit takes them. */
void ledger_batch_fill(struct ledger_batch *batch, struct store_batch *rows);

#endif
