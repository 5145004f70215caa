/* Append requests, their groups and their answers: plain structs that travel to the writer thread
 * and back.
 * Thread: a group and all its slices belong to its maker until writer_post, to the writer until
 * done is called, then to its maker again.
 * Memory: answers live in the group's arena.
 * Errors: every request of a group gets a status of its own. A bad request does not fail the
 * others.
 * Invariant: nothing is answered before the commit that holds it is durable. */
#ifndef AUTHORITY_APPEND_H
#define AUTHORITY_APPEND_H

#include <stdatomic.h>

#include "auth/principal.h"
#include "authority/run_report.h"
#include "base/fair_queue.h"
#include "base/limits.h"
#include "base/mailbox.h"
#include "base/map.h"
#include "store/store.h"

#define APPEND_IDEMPOTENCY_BYTES_MAX 256
#define APPEND_TYPE_BYTES_MAX        128
#define APPEND_ID_BYTES_MAX          256
#define AUDIT_ENTITY_ID              "audit"

enum append_kind {
    APPEND_RUN_CREATE,
    APPEND_RUN_EVENT,
    APPEND_WORKER_CREATE,
    APPEND_WORKER_HEARTBEAT,
    APPEND_WORKER_STATUS,
    APPEND_WORKER_EVENT,
    APPEND_TOPIC_EVENT, /* an application topic; those the projector writes are refused */
    APPEND_AUDIT_EVENT,
    APPEND_NOTIFICATION, /* the topic runtime.notifications, whatever entity_id says */
    APPEND_KIND_COUNT,
};

/* Details of a refusal, for the error body. The status decides which of them are set. */
struct append_refusal {
    uint64_t actual_seq;     /* sequence_conflict */
    uint64_t retry_after_ms; /* the same, and quota_exceeded; 0: time does not help */
    uint64_t limit;          /* khala_publish_rate_limited: publishes a second; quota_exceeded */
    const char *quota;       /* quota_exceeded: its name */
    uint64_t used;           /* quota_exceeded */
    uint64_t payload_bytes;  /* khala_frame_payload_too_large */
    uint64_t max_payload_bytes;
    struct slice topic;          /* the topic with the limit */
    const struct policy *policy; /* the policy of that topic */
    const char *state;           /* invalid_transition: the present state */
    const char *message;         /* NULL: the status's own */
};

/* An event of another store's log. It is appended as it was there. */
struct append_import {
    uint64_t log_id; /* its number in the log */
    struct uuid cursor;
    uint64_t recorded_at_ms;
    unsigned chain_version;
    uint64_t seq;
    uint8_t chain_hash[SHA256_BYTES];
};

struct append_request {
    /* Lives until the group is answered. NULL: the operator, or the server itself. */
    const struct principal *producer;

    /* The question. The poster's thread checks shapes and makes the payload canonical before
     * posting. Absent slices have data NULL. */
    enum append_kind kind;
    struct slice entity_id; /* absent at creation: the writer makes one */
    struct slice event_type;
    struct slice payload; /* canonical JSON; {} when none was given */
    uint8_t payload_hash[SHA256_BYTES];
    bool has_event_id;
    struct uuid event_id;
    struct slice idempotency_key;
    bool has_expected_seq;
    uint64_t expected_previous_seq;
    struct owner owner;
    struct slice worker_id;
    struct slice thread_id;
    struct slice parent_run_id;
    struct slice title;
    struct slice tags; /* canonical JSON array */
    struct slice workspace_ref;
    struct slice codex_home_ref;
    struct slice adapter;
    struct slice metadata; /* canonical JSON object; the patch of a heartbeat or a run.updated */
    struct slice status_name;
    struct slice reason;
    /* NULL: a new event. Otherwise the event becomes exactly this one, without checks of limits and
     * conditions, or the request is refused with STATUS_IMPORT_REFUSED. */
    const struct append_import *import;
    bool is_rate_free;          /* publish rates do not apply */
    enum store_room room_least; /* the event is refused with less */

    /* The answer. The status is STATUS_OK when posted. A request that was refused while it was read
     * is posted with its refusal and keeps it. If the answer is STATUS_OK, event is the event that
     * was appended, or the earlier event that stands for it (deduplicated). The entity is complete
     * after creations, heartbeats and changes of status. After the others it has its ref, kind, id,
     * status and head only. */
    enum status status;
    bool deduplicated;
    bool created;
    struct store_event event;
    struct store_entity entity;
    struct append_refusal refusal;
};

/* The order of one batch, whose groups wait behind each other. If an event is refused for now, its
 * entity is blocked, so that later events do not overtake it: they are answered
 * STATUS_NOT_ATTEMPTED, and a retry of the batch keeps its order. The order belongs to the writer's
 * thread from the first post of the batch until its last answer, except for is_abandoned, which any
 * thread may set. It holds bounded copies of the ids, none before the first refusal. Without room
 * for another entity it blocks every later request. */
struct append_order {
    struct map entities; /* blocked entities; key: kind and id */
    struct arena names;
    bool blocks_all;
    const struct append_group *last_waiting; /* the last group in the writer's queue; NULL: none */
    atomic_bool is_abandoned; /* no client waits for the answers: waiting groups are not applied */
};

/* An item of the writer's mailbox; filled by posting. */
struct writer_item {
    struct mailbox_item item;
    bool is_job;
};

struct append_group {
    struct writer_item posted;
    struct append_request *requests;
    size_t request_count;
    struct arena arena; /* the maker's; the writer puts answers here */
    /* Shared by the groups of one batch, which are posted in order. NULL: later requests are
     * applied even after a refusal. */
    struct append_order *order;
    /* Called on the writer's thread, once; typically posts the group back to a loop. */
    void (*done)(struct append_group *group);
    void *user;
    /* The writer's: the group's lane, memory and cost. */
    struct fair_item waiting;
};

/* A small patch merges and copies all metadata of the run. */
static inline uint64_t append_group_cost(const struct append_group *group) {
    uint64_t cost = group->request_count * APPEND_EVENT_COST;
    for (size_t i = 0; i < group->request_count; i++) {
        const struct append_request *request = &group->requests[i];
        bool patches = request->kind == APPEND_RUN_EVENT && request->metadata.size > 0;
        cost += request->payload.size + request->metadata.size;
        cost += patches ? RUN_METADATA_BYTES_MAX : 0;
    }
    return cost;
}

bool append_is_creation(enum append_kind kind);
/* Whether the stored idempotency key holds its scope: kind, topic and producing owner. The other
 * keys are stored with their entity. */
bool append_key_is_scoped(enum append_kind kind);
/* The kind of entity that a request appends to. */
enum entity_kind append_entity_kind(enum append_kind kind);
/* The id of that entity. Absent if the request is refused before its entity matters, or if an id
 * will be made. */
struct slice append_entity_id(const struct append_request *request);

/* Refuses all requests that were not refused before; the second, all of these but imports. */
void append_group_refuse(struct append_group *group, enum status status);
void append_group_refuse_new(struct append_group *group, enum status status);

void append_order_init(struct append_order *order);
void append_order_release(struct append_order *order);
/* The request was answered or refused. A refusal with 429 or 503 blocks its entity. Other requests
 * change nothing. */
void append_order_note(struct append_order *order, const struct append_request *request);
/* Whether an earlier request of the same entity was refused for now. */
bool append_order_blocks(const struct append_order *order, const struct append_request *request);

#endif
