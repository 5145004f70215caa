/* The ledger: the writer's memory of the log, and the batch of events that is being formed.
 * A batch is: ledger_begin, ledger_gather for each group in order, ledger_prefetch,
 * rules_apply_group for each group in the same order, then ledger_committed or ledger_forget. Each
 * request sees the effects of the requests before it. Only ledger_begin and ledger_prefetch read
 * the store. Thread: the writer's. Memory: a bounded cache, a bounded set of ids, one batch.
 * Errors: the store's statuses from the calls that use the store; STATUS_OUT_OF_MEMORY.
 * Invariant: nothing that was applied counts until ledger_committed. ledger_forget undoes all of
 * it. */
#ifndef AUTHORITY_LEDGER_H
#define AUTHORITY_LEDGER_H

#include "authority/append.h"
#include "authority/entity_cache.h"
#include "authority/event_ids.h"
#include "authority/ledger_batch.h"
#include "authority/lookups.h"
#include "authority/publish_limit.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "topic/policy.h"

struct ledger {
    struct store_session *session; /* the write session; the ledger does not close it */
    const struct policy_table *policies;
    unsigned policy_generation; /* in this batch */
    struct entity_cache cache;
    struct publish_buckets buckets; /* buckets of topics and of the audit log */
    struct usages usages;
    bool has_documents; /* each commit writes summaries */
    struct recent_ids recent;
    struct id_minter minter;
    struct lookups lookups;
    struct buffer hash_text;
    struct buffer text;
    uint64_t committed_log_id;
    struct store_state state; /* after the requests applied so far */
    struct clock_reading now;
    struct ledger_batch batch;
    enum store_room room; /* room on the disk at the beginning of the batch */
    bool is_sound; /* memory can be trusted: the store was read, and nothing failed half-way */
};

struct ledger_options {
    struct store_session *session;
    const struct policy_table *policies;
    struct quota_table *quotas; /* NULL: there are no limits */
    bool has_documents;
    size_t entity_count_max;
    bool is_unread; /* the store is read by the first ledger_begin */
};

/* The store must be readable, unless the options say that it is read later. */
MUST_CHECK enum status ledger_init(struct ledger *ledger, const struct ledger_options *options);
void ledger_release(struct ledger *ledger);

/* Reads the state of the store again if the last batch failed: STATUS_STORE_UNAVAILABLE if that is
 * not possible yet, STATUS_WRITER_LOST if it never will be. */
MUST_CHECK enum status ledger_begin(struct ledger *ledger, struct clock_reading now);
/* Gathers the lookups of all requests that were not refused before. */
void ledger_gather(struct ledger *ledger, struct append_group *group);
/* Asks the store for all of it at once. Unless the status is STATUS_OK, no request may be applied,
 * and the caller calls ledger_forget. */
MUST_CHECK enum status ledger_prefetch(struct ledger *ledger);
void ledger_committed(struct ledger *ledger);
/* The batch was not stored, or its outcome is unknown: drops the batch and the caches. Requests
 * that were part of it, were answered with one of its events, or were refused because of one, get
 * this answer instead. */
void ledger_forget(struct ledger *ledger, enum status answer);

/* Between batches, after a job may have made topics with the session. */
void ledger_refresh(struct ledger *ledger);

/* Ids are minted above the log's last cursor, also after an import has moved it. */
MUST_CHECK enum status ledger_start_minting(struct ledger *ledger);

/* ---- for the rules: runs, workers, topics -------------------------------------------------- */

/* An event that is being added to the batch. */
struct draft {
    struct append_request *request;
    const struct request_lookup *lookup;
    struct arena *arena;        /* the group's */
    struct entity_entry *entry; /* NULL: the entity is made with this event */
    struct store_entity entity; /* its state after the event; filled by the rule */
    bool is_changed;            /* the entity's row must be written */
    bool is_borrowing;          /* texts of the entity are in the group's memory */
    bool answers_entity;        /* the answer has the whole entity, not only its head */
    struct slice topic;         /* the new entity's */
    struct slice stream_id;     /* the new entity's */
    struct slice type;
    struct slice payload;
    uint8_t payload_hash[SHA256_BYTES];
    struct publish_key publish_key; /* only if each event of the entity has its own owner */
    const struct policy *limits[ENTITY_BUCKETS_MAX]; /* as checked: its topic's, the shared one's */
    struct usage *usage;                             /* the payer's; NULL: none */
    struct quota_use use;
    bool writes_metadata; /* the entity's row gets other metadata */
    struct uuid cursor;
    uint64_t time_ms;    /* recorded_at: the wall clock's, not the cursor's */
    bool is_answered;    /* the rule appends nothing */
    bool rests_on_batch; /* the answer rests on an event of the batch under way */
    bool is_pending;
};

/* Sets entry and entity of the draft. STATUS_NOT_FOUND leaves entry NULL. */
MUST_CHECK enum status ledger_find(struct draft *draft);
/* "<prefix><uuid>" in the arena. */
MUST_CHECK enum status ledger_make_id(struct ledger *ledger, struct draft *draft,
                                      struct slice prefix, struct slice *id);
/* The canonical text in ledger->text becomes the payload. */
MUST_CHECK enum status ledger_take_payload(struct ledger *ledger, struct draft *draft);
/* Limits, then the append. */
MUST_CHECK enum status ledger_append(struct ledger *ledger, struct draft *draft);

/* Copies the entity into the answer: all of it if the draft says so, otherwise its head only. */
MUST_CHECK enum status ledger_answer_entity(struct draft *draft, const struct store_entity *entity);
/* The answer or refusal holds only if this batch is committed. */
void ledger_add_pending(struct ledger *ledger, struct draft *draft);
/* The batch under way has changed the draft's entity. */
bool ledger_is_under_way(const struct ledger *ledger, const struct draft *draft);

#endif
