/* Append requests and their answers: plain structs that travel to the writer thread and back.
 * A group and all its slices belong to its maker until writer_post, to the writer until done is
 * called, then to its maker again. Answers live in the group's arena.
 * Every request of a group gets a status of its own; one bad request does not fail the others.
 * Nothing is answered before the commit that holds it is durable. */
#ifndef AUTHORITY_APPEND_H
#define AUTHORITY_APPEND_H

#include "auth/principal.h"
#include "base/fair_queue.h"
#include "base/limits.h"
#include "base/mailbox.h"
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

/* Details of a refusal, for the error body; which are set depends on the status. */
struct append_refusal {
    uint64_t actual_seq;     /* sequence_conflict */
    uint64_t retry_after_ms; /* the same, and quota_exceeded; 0: time does not help */
    uint64_t limit;          /* khala_publish_rate_limited: publishes a second; quota_exceeded */
    const char *quota;       /* quota_exceeded: its name */
    uint64_t used;           /* quota_exceeded */
    uint64_t payload_bytes;  /* khala_frame_payload_too_large */
    uint64_t max_payload_bytes;
    struct slice topic;          /* of the limit */
    const struct policy *policy; /* of the topic whose limit was exceeded */
    const char *state;           /* invalid_transition: the name of the present one */
    const char *message;         /* NULL: the status's own */
};

/* An event of another store's log, which is appended as it was there. */
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

    /* Asked. Shapes are checked and the payload is made canonical and hashed before posting, on
     * the poster's thread; absent slices have data NULL. */
    enum append_kind kind;
    struct slice entity_id; /* absent at creation: one is made */
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
    struct slice workspace_ref;
    struct slice codex_home_ref;
    struct slice adapter;
    struct slice metadata; /* canonical JSON object; the patch of a heartbeat */
    struct slice status_name;
    struct slice reason;
    /* NULL: a new event. Otherwise the event becomes exactly this one, without checks of limits and
     * conditions, or the request is refused with STATUS_IMPORT_REFUSED. */
    const struct append_import *import;
    bool is_rate_free;          /* publish rates do not apply */
    enum store_room room_least; /* the event is refused with less */

    /* Answered. STATUS_OK when posted; a request refused while it was read is posted with its
     * refusal, keeps it, and is otherwise left alone. When STATUS_OK is answered, event is set: the
     * one appended, or where nothing was the one that stands for it (deduplicated). entity is
     * whole after creations, heartbeats and changes of status; after the others it has its ref,
     * kind, id, status and head only. */
    enum status status;
    bool deduplicated;
    bool created;
    struct store_event event;
    struct store_entity entity;
    struct append_refusal refusal;
};

struct append_order;

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
    /* Shared by the groups of one batch, which are posted in order. NULL: no order is kept after a
     * refusal. */
    struct append_order *order;
    /* Called on the writer's thread, once; typically posts the group back to a loop. */
    void (*done)(struct append_group *group);
    void *user;
    /* The writer's: its memory, and what it costs in its turn. */
    struct fair_item waiting;
};

static inline uint64_t append_group_cost(const struct append_group *group) {
    uint64_t cost = group->request_count * APPEND_EVENT_COST;
    for (size_t i = 0; i < group->request_count; i++)
        cost += group->requests[i].payload.size + group->requests[i].metadata.size;
    return cost;
}

#endif
