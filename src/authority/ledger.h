/* The ledger: what the writer knows of the log, and the rules by which a request becomes an event.
 * Owned by the writer's thread. Memory: a bounded cache, a bounded set of ids, one batch.
 * A request's mistake is a status in the request; a store that cannot be read is one as well.
 * A batch is: ledger_begin, ledger_apply for each request in order, then ledger_committed or
 * ledger_forget. Each request sees what the ones before it in the batch did.
 * Until ledger_committed nothing that was applied counts; ledger_forget undoes all of it. */
#ifndef AUTHORITY_LEDGER_H
#define AUTHORITY_LEDGER_H

#include "authority/append.h"
#include "authority/batch.h"
#include "authority/entity_cache.h"
#include "authority/recent_ids.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "topic/policy.h"

struct ledger {
    struct store_session *session; /* the write session; not the ledger's to close */
    const struct policy_table *policies;
    struct entity_cache cache;
    struct recent_ids recent;
    struct uuid7_generator generator;
    struct buffer hash_text;
    struct buffer text;
    uint64_t committed_log_id;
    struct store_state state; /* as of the batch under way */
    struct clock_reading now;
    struct batch batch;
    bool is_sound; /* memory can be trusted: the store was read, and nothing failed half-way */
};

struct ledger_options {
    struct store_session *session;
    const struct policy_table *policies;
    size_t entity_count_max;
};

/* The store must be readable. */
MUST_CHECK enum status ledger_init(struct ledger *ledger, const struct ledger_options *options);
void ledger_release(struct ledger *ledger);

/* Reads the state of the store again where the last batch failed: STATUS_STORE_UNAVAILABLE when
 * that cannot be done yet. */
MUST_CHECK enum status ledger_begin(struct ledger *ledger, struct clock_reading now);
/* Sets the request's status and, where that is STATUS_OK, its answer, which lives in the arena. */
void ledger_apply(struct ledger *ledger, struct append_request *request, struct arena *arena);
void ledger_committed(struct ledger *ledger);
/* The batch was not stored, or nobody knows: those who would have been, and those who were answered
 * with one of them or refused because of it, hear STATUS_STORE_UNAVAILABLE. */
void ledger_forget(struct ledger *ledger);

/* Between batches: somebody else made topics with the session. */
void ledger_refresh(struct ledger *ledger);

/* ---- for the rules: runs, workers, topics -------------------------------------------------- */

/* An event on its way into the batch. */
struct draft {
    struct append_request *request;
    struct arena *arena;        /* the group's */
    struct entity_entry *entry; /* NULL: the entity is made with this event */
    struct store_entity entity; /* its state after the event; filled by the rule */
    bool is_changed;            /* the entity's row must be written */
    bool is_borrowing;          /* the entity has texts of the group's */
    bool answers_entity;        /* the whole of it, not only its head */
    struct slice topic;         /* of a new entity */
    struct slice stream_id;
    struct slice type;
    struct slice payload;
    uint8_t payload_hash[SHA256_BYTES];
    struct uuid cursor;
    uint64_t time_ms;    /* recorded_at */
    bool is_answered;    /* nothing is to be appended */
    bool rests_on_batch; /* what it was told of is only in the batch under way */
    bool is_pending;
};

/* Fills entry and entity; STATUS_NOT_FOUND leaves entry NULL. */
MUST_CHECK enum status ledger_find(struct ledger *ledger, struct draft *draft,
                                   enum entity_kind kind, struct slice id);
/* "<prefix><uuid>" in the arena. */
MUST_CHECK enum status ledger_make_id(struct ledger *ledger, struct draft *draft,
                                      struct slice prefix, struct slice *id);
/* The canonical text in ledger->text becomes the payload. */
MUST_CHECK enum status ledger_take_payload(struct ledger *ledger, struct draft *draft);
/* STATUS_OWNER_MISMATCH when the request names an owner that is not the entity's. */
MUST_CHECK enum status ledger_check_owner(const struct draft *draft);
/* Key, event id, expected sequence, in the order of the checks. May answer. */
MUST_CHECK enum status ledger_check_conditions(struct ledger *ledger, struct draft *draft);
/* Limits, then the append. */
MUST_CHECK enum status ledger_append(struct ledger *ledger, struct draft *draft);
/* Answers with the first event of the entity, and the entity, instead of appending.
 * must_match: STATUS_ALREADY_EXISTS unless that event has the draft's payload. */
MUST_CHECK enum status ledger_answer_first(struct ledger *ledger, struct draft *draft,
                                           bool must_match);

#endif
