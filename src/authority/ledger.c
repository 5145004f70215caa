#include "authority/ledger.h"

#include <assert.h>

#include "authority/event_hash.h"
#include "authority/runs.h"
#include "authority/topics.h"
#include "authority/workers.h"
#include "topic/stream_id.h"

#define CACHE_BYTES_MAX ((size_t)64 << 20)
/* Payloads that the rules make, and merged metadata: both are checked against far less. */
#define TEXT_BYTES_MAX       ((size_t)64 << 20)
#define LIMITS_OF_ENTITY_MAX ENTITY_BUCKETS_MAX

/* ---- life ---- */

static enum status load(struct ledger *ledger) {
    enum status status = store_read_state(ledger->session, &ledger->state);
    if (status == STATUS_OK)
        status = recent_ids_reset(&ledger->recent, &ledger->state.event_id_max);
    if (status != STATUS_OK)
        return status;
    entity_cache_clear(&ledger->cache);
    ledger->committed_log_id = ledger->state.log_id;
    ledger->is_sound = true;
    return STATUS_OK;
}

enum status ledger_init(struct ledger *ledger, const struct ledger_options *options) {
    *ledger = (struct ledger){.session = options->session, .policies = options->policies};
    entity_cache_init(&ledger->cache, options->entity_count_max, CACHE_BYTES_MAX);
    buffer_init(&ledger->hash_text, EVENT_HASH_SCRATCH_BYTES);
    buffer_init(&ledger->text, TEXT_BYTES_MAX);
    enum status status = batch_init(&ledger->batch);
    if (status == STATUS_OK)
        status = load(ledger);
    if (status == STATUS_OK)
        status = uuid7_generator_init(&ledger->generator,
                                      ledger->state.log_id > 0 ? &ledger->state.cursor : NULL);
    if (status != STATUS_OK)
        ledger_release(ledger);
    return status;
}

void ledger_release(struct ledger *ledger) {
    batch_release(&ledger->batch);
    buffer_release(&ledger->text);
    buffer_release(&ledger->hash_text);
    recent_ids_release(&ledger->recent);
    entity_cache_release(&ledger->cache);
}

/* ---- batches ---- */

enum status ledger_begin(struct ledger *ledger, struct clock_reading now) {
    if (!ledger->is_sound && load(ledger) != STATUS_OK)
        return STATUS_STORE_UNAVAILABLE;
    ledger->now = now;
    entity_cache_begin_batch(&ledger->cache);
    batch_begin(&ledger->batch, ledger->committed_log_id + 1);
    return STATUS_OK;
}

void ledger_committed(struct ledger *ledger) {
    struct batch *batch = &ledger->batch;
    ledger->committed_log_id = ledger->state.log_id;
    for (size_t i = 0; i < batch->changed_count; i++)
        entity_cache_settle(&ledger->cache, batch->changed[i]);
}

void ledger_forget(struct ledger *ledger) {
    struct batch *batch = &ledger->batch;
    for (size_t i = 0; i < batch->pending_count; i++) {
        struct append_request *request = batch->pending[i];
        request->status = STATUS_STORE_UNAVAILABLE;
        request->deduplicated = request->created = false;
        request->event = (struct store_event){0};
        request->entity = (struct store_entity){0};
        request->refusal = (struct append_refusal){0};
    }
    /* Entities borrow texts of groups that go back to their makers now. */
    entity_cache_clear(&ledger->cache);
    batch_begin(batch, ledger->committed_log_id + 1);
    ledger->is_sound = false;
}

void ledger_refresh(struct ledger *ledger) {
    struct store_state state;
    if (store_read_state(ledger->session, &state) == STATUS_OK)
        ledger->state.topic_ref = state.topic_ref;
    else
        ledger->is_sound = false;
}

/* ---- finding ---- */

enum status ledger_find(struct ledger *ledger, struct draft *draft, enum entity_kind kind,
                        struct slice id) {
    enum status status =
        entity_cache_find(&ledger->cache, ledger->session, kind, id, &draft->entry);
    if (status != STATUS_OK) {
        draft->entry = NULL;
        return status;
    }
    draft->entity = draft->entry->entity;
    return STATUS_OK;
}

static bool copy_text(struct arena *arena, struct slice *text) {
    if (text->data == NULL)
        return true;
    *text = arena_copy(arena, *text);
    return text->data != NULL;
}

static enum status copy_event(struct arena *arena, const struct store_event *from,
                              struct store_event *to) {
    *to = *from;
    bool done = copy_text(arena, &to->entity_id) && copy_text(arena, &to->type) &&
                copy_text(arena, &to->payload) && copy_text(arena, &to->owner.user_id) &&
                copy_text(arena, &to->owner.guest_scope) && copy_text(arena, &to->owner.org_id);
    return done ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

/* An event of this batch lives in another group's memory, which may go before the asker's. */
static enum status load_event(struct ledger *ledger, uint64_t log_id, struct arena *arena,
                              struct store_event *event) {
    const struct store_event *under_way = batch_event(&ledger->batch, log_id);
    if (under_way)
        return copy_event(arena, under_way, event);
    enum status status = store_load_event(ledger->session, log_id, arena, event);
    /* An index names it, so its absence is damage. */
    return status == STATUS_NOT_FOUND ? STATUS_INTERNAL_ERROR : status;
}

enum status ledger_make_id(struct ledger *ledger, struct draft *draft, struct slice prefix,
                           struct slice *id) {
    char *text = arena_alloc(draft->arena, prefix.size + UUID_TEXT_SIZE);
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    struct uuid uuid = uuid7_next(&ledger->generator, ledger->now.wall_ms);
    memcpy(text, prefix.data, prefix.size);
    uuid_format(&uuid, text + prefix.size);
    *id = (struct slice){text, prefix.size + UUID_TEXT_SIZE};
    return STATUS_OK;
}

enum status ledger_take_payload(struct ledger *ledger, struct draft *draft) {
    draft->payload = arena_copy(draft->arena, buffer_slice(&ledger->text));
    if (!draft->payload.data)
        return STATUS_OUT_OF_MEMORY;
    sha256(draft->payload.data, draft->payload.size, draft->payload_hash);
    return STATUS_OK;
}

/* ---- answering ---- */

/* Whole, or only what costs nothing. */
static enum status answer_entity(struct draft *draft, const struct store_entity *entity) {
    struct store_entity *answer = &draft->request->entity;
    if (draft->answers_entity)
        return store_entity_copy(draft->arena, entity, answer) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    *answer = (struct store_entity){
        .ref = entity->ref,
        .kind = entity->kind,
        .id = draft->request->entity_id,
        .head_seq = entity->head_seq,
    };
    memcpy(answer->head_hash, entity->head_hash, SHA256_BYTES);
    answer->status = entity->status;
    return copy_text(draft->arena, &answer->status) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static void hold_back(struct ledger *ledger, struct draft *draft) {
    if (!draft->is_pending)
        batch_add_pending(&ledger->batch, draft->request);
    draft->is_pending = true;
}

/* The entity is not what the log says until the batch is committed. */
static bool is_under_way(const struct ledger *ledger, const struct draft *draft) {
    return draft->entry && draft->entry->last_log_id > ledger->committed_log_id;
}

/* Answers with an event that is there already, in request->event. */
static enum status answer_repeated(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    enum status status = answer_entity(draft, &draft->entity);
    if (status != STATUS_OK)
        return status;
    request->deduplicated = true;
    draft->is_answered = true;
    bool is_committed = request->event.log_id <= ledger->committed_log_id;
    if (!is_committed || is_under_way(ledger, draft))
        hold_back(ledger, draft);
    return STATUS_OK;
}

struct first_event {
    struct arena *arena;
    struct store_event event;
    bool is_found;
};

static enum status keep_first(void *user, const struct store_event *event) {
    struct first_event *first = user;
    first->is_found = true;
    return copy_event(first->arena, event, &first->event);
}

static enum status load_first(struct ledger *ledger, const struct draft *draft,
                              struct store_event *event) {
    if (draft->entry->first_log_id > 0)
        return load_event(ledger, draft->entry->first_log_id, draft->arena, event);
    struct first_event first = {.arena = draft->arena};
    enum status status =
        store_walk_entity_events(ledger->session, draft->entity.ref, 0, 1, &first, keep_first);
    *event = first.event;
    return status == STATUS_OK && !first.is_found ? STATUS_INTERNAL_ERROR : status;
}

enum status ledger_answer_first(struct ledger *ledger, struct draft *draft, bool must_match) {
    struct store_event event;
    enum status status = load_first(ledger, draft, &event);
    if (status != STATUS_OK)
        return status;
    if (must_match && memcmp(event.payload_hash, draft->payload_hash, SHA256_BYTES) != 0)
        return STATUS_ALREADY_EXISTS;
    draft->request->event = event;
    return answer_repeated(ledger, draft);
}

/* ---- checks ---- */

static bool is_other(struct slice given, struct slice actual) {
    return given.data && !(actual.data && slice_equal(given, actual));
}

enum status ledger_check_owner(const struct draft *draft) {
    const struct owner *given = &draft->request->owner;
    const struct owner *actual = &draft->entity.owner;
    if (is_other(given->user_id, actual->user_id) ||
        is_other(given->guest_scope, actual->guest_scope) ||
        (actual->org_id.data && is_other(given->org_id, actual->org_id)))
        return STATUS_OWNER_MISMATCH;
    return STATUS_OK;
}

static bool is_same_content(const struct draft *draft, const struct store_event *event) {
    if (event->entity_ref != draft->entity.ref || !slice_equal(event->type, draft->type))
        return false;
    if (draft->request->kind == APPEND_WORKER_STATUS)
        return workers_is_same_status(draft->request, event->payload);
    return memcmp(event->payload_hash, draft->payload_hash, SHA256_BYTES) == 0;
}

/* The original where the content is the same, and the conflict where it is not. */
static enum status answer_original(struct ledger *ledger, struct draft *draft, uint64_t log_id,
                                   enum status conflict) {
    struct store_event event;
    enum status status = load_event(ledger, log_id, draft->arena, &event);
    if (status != STATUS_OK)
        return status;
    if (!is_same_content(draft, &event)) {
        draft->rests_on_batch = log_id > ledger->committed_log_id;
        return conflict;
    }
    draft->request->event = event;
    return answer_repeated(ledger, draft);
}

/* log_id 0: the key is new. */
static enum status find_key(struct ledger *ledger, const struct draft *draft, uint64_t *log_id) {
    struct slice key = draft->request->idempotency_key;
    *log_id = 0;
    if (!key.data || !draft->entry)
        return STATUS_OK;
    *log_id = batch_find_key(&ledger->batch, draft->entity.ref, key);
    if (*log_id > 0 || draft->entry->first_log_id > ledger->committed_log_id)
        return STATUS_OK;
    enum status status = store_find_key(ledger->session, draft->entity.ref, key, log_id);
    if (status != STATUS_NOT_FOUND)
        return status;
    *log_id = 0;
    return STATUS_OK;
}

/* log_id 0: the id is new. */
static enum status find_event_id(struct ledger *ledger, const struct uuid *id, uint64_t *log_id) {
    *log_id = 0;
    if (recent_ids_find(&ledger->recent, id, log_id) != RECENT_UNKNOWN)
        return STATUS_OK;
    enum status status = store_find_event_id(ledger->session, id, log_id);
    if (status != STATUS_NOT_FOUND)
        return status;
    *log_id = 0;
    return STATUS_OK;
}

enum status ledger_check_conditions(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    uint64_t log_id;
    enum status status = find_key(ledger, draft, &log_id);
    if (status != STATUS_OK)
        return status;
    if (log_id > 0)
        return answer_original(ledger, draft, log_id, STATUS_IDEMPOTENCY_KEY_CONFLICT);
    if (request->has_event_id) {
        status = find_event_id(ledger, &request->event_id, &log_id);
        if (status != STATUS_OK)
            return status;
        if (log_id > 0)
            return answer_original(ledger, draft, log_id, STATUS_EVENT_ID_CONFLICT);
    }
    if (request->has_expected_seq && request->expected_previous_seq != draft->entity.head_seq) {
        request->refusal.actual_seq = draft->entity.head_seq;
        return STATUS_SEQUENCE_CONFLICT;
    }
    return STATUS_OK;
}

/* The rows of the policy table that an entity's events are published under. */
static size_t limits_of(const struct ledger *ledger, const struct store_entity *entity,
                        const struct policy *limits[LIMITS_OF_ENTITY_MAX]) {
    const struct policy *rows = ledger->policies->rows;
    const struct entity_row *row = entity_row(entity->kind);
    /* The id of an application topic is its name, which may be one of the table (notifications). */
    limits[0] = row->topic == TOPIC_APPLICATION ? policy_of(ledger->policies, entity->id)
                                                : &rows[topic_row(row->topic)->policy];
    if (row->shared_topic == TOPIC_NONE)
        return 1;
    limits[1] = &rows[topic_row(row->shared_topic)->policy];
    return 2;
}

static enum status check_limits(struct ledger *ledger, struct draft *draft) {
    static const struct publish_bucket full = {0};
    struct append_refusal *refusal = &draft->request->refusal;
    const struct policy *limits[LIMITS_OF_ENTITY_MAX];
    size_t count = limits_of(ledger, &draft->entity, limits);
    for (size_t i = 0; i < count; i++) {
        const struct publish_bucket *bucket = draft->entry ? &draft->entry->buckets[i] : &full;
        enum status status = publish_limit_check(limits[i], bucket, draft->payload.size,
                                                 ledger->now.mono_ns, refusal);
        if (status == STATUS_OK)
            continue;
        enum status named = STATUS_OK;
        if (i > 0)
            refusal->topic = topic_name(entity_row(draft->entity.kind)->shared_topic);
        else
            named = topic_name_of_entity(draft->arena, draft->entity.kind,
                                         draft->request->entity_id, &refusal->topic);
        return named == STATUS_OK ? status : named;
    }
    return STATUS_OK;
}

/* ---- appending ---- */

/* The next event of the batch, which does not count yet. */
static enum status fill_event(struct ledger *ledger, const struct draft *draft) {
    const struct append_request *request = draft->request;
    struct store_event *event = &ledger->batch.events[ledger->batch.event_count];
    *event = (struct store_event){
        .log_id = ledger->state.log_id + 1,
        .entity_ref = draft->entity.ref,
        .entity_kind = draft->entity.kind,
        .entity_id = request->entity_id,
        .seq = draft->entity.head_seq + 1,
        .type = draft->type,
        .payload = draft->payload,
        .event_id = request->has_event_id ? request->event_id : draft->cursor,
        .cursor = draft->cursor,
    };
    if (entity_row(draft->entity.kind)->has_event_owner)
        event->owner = request->owner;
    memcpy(event->payload_hash, draft->payload_hash, SHA256_BYTES);
    memcpy(event->prev_hash, draft->entity.head_hash, SHA256_BYTES);
    return event_hash(event, &ledger->hash_text, event->event_hash);
}

static enum status name_topic(struct draft *draft) {
    if (draft->topic.data)
        return STATUS_OK;
    enum status status =
        topic_name_of_entity(draft->arena, draft->entity.kind, draft->entity.id, &draft->topic);
    if (status == STATUS_OK)
        status = topic_stream(draft->arena, draft->topic, &draft->stream_id);
    return status;
}

/* The new entity and its topic. */
static enum status add_entity(struct ledger *ledger, struct draft *draft) {
    struct store_topic topic = {
        .ref = ledger->state.topic_ref + 1,
        .name = draft->topic,
        .stream_id = draft->stream_id,
        .entity_ref = draft->entity.ref,
        .oldest_seq = 1,
    };
    enum status status = batch_add_topic(&ledger->batch, &topic);
    if (status == STATUS_OK)
        status = entity_cache_add(&ledger->cache, &draft->entity, &draft->entry);
    if (status != STATUS_OK)
        return status;
    assert(draft->entry);
    draft->entry->first_log_id = ledger->state.log_id + 1;
    ledger->state.topic_ref++;
    ledger->state.entity_ref++;
    return STATUS_OK;
}

static void update_entry(struct ledger *ledger, struct draft *draft) {
    struct entity_entry *entry = draft->entry;
    const struct policy *limits[LIMITS_OF_ENTITY_MAX];
    size_t count = limits_of(ledger, &draft->entity, limits);
    for (size_t i = 0; i < count; i++)
        publish_bucket_take(&entry->buckets[i], limits[i]->publish_rate_per_second,
                            ledger->now.mono_ns);
    struct slice id = entry->entity.id;
    entry->entity = draft->entity;
    entry->entity.id = id;
    entry->last_log_id = ledger->state.log_id + 1;
    entry->is_borrowing = entry->is_borrowing || draft->is_borrowing;
    if (draft->is_changed)
        batch_add_changed(&ledger->batch, entry);
    assert(!entry->is_borrowing || entry->is_changed);
}

/* Where nothing more can be refused. What fails in here for want of memory leaves the batch in
 * pieces, so that all of it must be forgotten. */
static enum status add_rows(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    struct batch *batch = &ledger->batch;
    const struct store_event *event = &batch->events[batch->event_count];
    bool is_new = !draft->entry;
    enum status status = is_new ? add_entity(ledger, draft) : STATUS_OK;
    if (status == STATUS_OK && request->idempotency_key.data)
        status = batch_add_key(
            batch, &(struct store_key){event->entity_ref, request->idempotency_key, event->log_id});
    hold_back(ledger, draft);
    if (status != STATUS_OK) {
        ledger->is_sound = false;
        return status;
    }
    draft->is_changed = draft->is_changed || is_new;
    update_entry(ledger, draft);
    recent_ids_add(&ledger->recent, &event->event_id, event->log_id);
    request->event = *event;
    batch->states[batch->event_count] = draft->entry->entity;
    batch->event_count++;
    ledger->state.log_id = event->log_id;
    ledger->state.cursor = event->cursor;
    return STATUS_OK;
}

enum status ledger_append(struct ledger *ledger, struct draft *draft) {
    assert(draft->type.data && draft->payload.data);
    bool is_new = !draft->entry;
    if (is_new)
        draft->entity.ref = ledger->state.entity_ref + 1;
    enum status status = check_limits(ledger, draft);
    if (status == STATUS_OK)
        status = fill_event(ledger, draft);
    if (status != STATUS_OK)
        return status;
    draft->entity.head_seq++;
    memcpy(draft->entity.head_hash, ledger->batch.events[ledger->batch.event_count].event_hash,
           SHA256_BYTES);
    status = answer_entity(draft, &draft->entity);
    if (status == STATUS_OK && is_new)
        status = name_topic(draft);
    if (status == STATUS_OK)
        status = add_rows(ledger, draft);
    enum append_kind kind = draft->request->kind;
    draft->request->created = status == STATUS_OK && is_new &&
                              (kind == APPEND_RUN_CREATE || kind == APPEND_WORKER_CREATE);
    return status;
}

/* ---- requests ---- */

static enum status apply_rule(struct ledger *ledger, struct draft *draft) {
    assert((unsigned)draft->request->kind < APPEND_KIND_COUNT);
    switch (draft->request->kind) {
    case APPEND_RUN_CREATE:
        return runs_create(ledger, draft);
    case APPEND_RUN_EVENT:
        return runs_append(ledger, draft);
    case APPEND_WORKER_CREATE:
        return workers_create(ledger, draft);
    case APPEND_WORKER_HEARTBEAT:
        return workers_heartbeat(ledger, draft);
    case APPEND_WORKER_STATUS:
        return workers_set_status(ledger, draft);
    case APPEND_WORKER_EVENT:
        return workers_append(ledger, draft);
    case APPEND_TOPIC_EVENT:
        return topics_append(ledger, draft);
    case APPEND_AUDIT_EVENT:
        return topics_audit(ledger, draft);
    case APPEND_NOTIFICATION:
        return topics_notify(ledger, draft);
    case APPEND_KIND_COUNT:
        break;
    }
    return STATUS_INTERNAL_ERROR;
}

/* The id of the event, too, unless the client chose one. Whoever saw the last id and chooses one
 * slightly above it may hit what is minted next: then it is minted again. What lies too far back
 * to be remembered is found by the store, which refuses the batch. */
static struct uuid mint_cursor(struct ledger *ledger, const struct append_request *request) {
    uint64_t log_id;
    struct uuid cursor = uuid7_next(&ledger->generator, ledger->now.wall_ms);
    while (!request->has_event_id &&
           recent_ids_find(&ledger->recent, &cursor, &log_id) == RECENT_KNOWN)
        cursor = uuid7_next(&ledger->generator, ledger->now.wall_ms);
    return cursor;
}

void ledger_apply(struct ledger *ledger, struct append_request *request, struct arena *arena) {
    assert(request->status == STATUS_OK);
    struct draft draft = {
        .request = request,
        .arena = arena,
        .type = request->event_type,
        .payload = request->payload,
        .cursor = mint_cursor(ledger, request),
    };
    memcpy(draft.payload_hash, request->payload_hash, SHA256_BYTES);
    draft.time_ms = uuid7_timestamp_ms(&draft.cursor);
    request->status = apply_rule(ledger, &draft);
    if (request->status == STATUS_OK)
        return;
    request->event = (struct store_event){0};
    /* A refusal is for good; one that only this batch justifies must not outlive its failure. */
    if (draft.rests_on_batch || is_under_way(ledger, &draft))
        hold_back(ledger, &draft);
}
