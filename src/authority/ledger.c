/* A batch is formed in memory. ledger_begin reads the store again if memory is not sound, the
 * requests are gathered and their lookups asked for at once, and then the rules apply each request.
 * A rule fills a draft and calls ledger_append, which checks the limits of the topic, the quotas of
 * the owner and the disk, hashes the event, and adds its rows to the batch. The caches already show
 * the batch, so that the next request sees it. A commit makes that final. A failure drops the batch
 * and the caches, and every answer that rests on them changes. */
#include "authority/ledger.h"

#include <assert.h>

#include "authority/chain_hash.h"
#include "authority/entity_state.h"
#include "base/limits.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

/* ---- life ---- */

/* Above the last id of the log and above every id minted here, stored or not. */
enum status ledger_start_minting(struct ledger *ledger) {
    const struct uuid *last = &ledger->state.cursor;
    bool is_first = ledger->state.log_id == 0;
    if (uuid_compare(&ledger->minter.last, last) > 0) {
        last = &ledger->minter.last;
        is_first = false;
    }
    struct uuid above = *last;
    return id_minter_init(&ledger->minter, &ledger->state.id_mark, is_first ? NULL : &above);
}

static enum status load(struct ledger *ledger) {
    enum status status = store_read_state(ledger->session, &ledger->state);
    if (status == STATUS_OK)
        status =
            recent_ids_reset(&ledger->recent, &ledger->state.event_id_max, &ledger->state.id_mark);
    if (status == STATUS_OK)
        status = ledger_start_minting(ledger);
    if (status == STATUS_OK && ledger->usages.table)
        status = quota_table_read(ledger->usages.table, ledger->session);
    if (status != STATUS_OK)
        return status;
    entity_cache_clear(&ledger->cache);
    usages_forget(&ledger->usages);
    ledger->committed_log_id = ledger->state.log_id;
    ledger->is_sound = true;
    return STATUS_OK;
}

enum status ledger_init(struct ledger *ledger, const struct ledger_options *options) {
    *ledger = (struct ledger){.session = options->session,
                              .policies = options->policies,
                              .has_documents = options->has_documents};
    entity_cache_init(&ledger->cache, options->entity_count_max, LEDGER_CACHE_BYTES_MAX);
    publish_buckets_init(&ledger->buckets, PUBLISH_BUCKETS_MAX);
    buffer_init(&ledger->hash_text, CHAIN_HASH_SCRATCH_BYTES);
    buffer_init(&ledger->text, LEDGER_TEXT_BYTES_MAX);
    enum status status = ledger_batch_init(&ledger->batch);
    if (status == STATUS_OK)
        status = lookups_init(&ledger->lookups);
    enum status counted = usages_init(&ledger->usages, options->quotas);
    if (status == STATUS_OK)
        status = counted;
    if (status == STATUS_OK && !options->is_unread)
        status = load(ledger);
    if (status != STATUS_OK)
        ledger_release(ledger);
    return status;
}

void ledger_release(struct ledger *ledger) {
    lookups_release(&ledger->lookups);
    ledger_batch_release(&ledger->batch);
    buffer_release(&ledger->text);
    buffer_release(&ledger->hash_text);
    recent_ids_release(&ledger->recent);
    entity_cache_release(&ledger->cache);
    publish_buckets_clear(&ledger->buckets);
    usages_release(&ledger->usages);
}

/* ---- batches ---- */

enum status ledger_begin(struct ledger *ledger, struct clock_reading now) {
    enum status status = ledger->is_sound ? STATUS_OK : load(ledger);
    if (status != STATUS_OK)
        return status == STATUS_WRITER_LOST ? status : STATUS_STORE_UNAVAILABLE;
    ledger->room = store_check_room(ledger->session);
    lookups_begin(&ledger->lookups);
    ledger->now = now;
    ledger->policy_generation = policy_generation(ledger->policies);
    entity_cache_begin_batch(&ledger->cache);
    usages_begin(&ledger->usages);
    ledger_batch_begin(&ledger->batch, ledger->committed_log_id + 1);
    return STATUS_OK;
}

void ledger_gather(struct ledger *ledger, struct append_group *group) {
    const struct lookup_sources sources = {&ledger->cache, &ledger->recent, &ledger->batch.arena};
    for (size_t i = 0; i < group->request_count; i++)
        if (group->requests[i].status == STATUS_OK)
            lookups_gather(&ledger->lookups, &sources, &group->requests[i], &group->arena);
}

enum status ledger_prefetch(struct ledger *ledger) {
    enum status status = lookups_fetch(&ledger->lookups, &ledger->cache, ledger->session);
    return status == STATUS_OK
               ? lookups_fetch_usages(&ledger->lookups, &ledger->usages, ledger->session)
               : status;
}

void ledger_committed(struct ledger *ledger) {
    struct ledger_batch *batch = &ledger->batch;
    ledger->committed_log_id = ledger->state.log_id;
    for (size_t i = 0; i < batch->changed_count; i++)
        entity_cache_settle(&ledger->cache, batch->changed[i]);
    usages_committed(&ledger->usages);
    /* They are answered and freed next. A session that is lost later must not touch them. */
    batch->pending_count = 0;
}

void ledger_forget(struct ledger *ledger, enum status answer) {
    struct ledger_batch *batch = &ledger->batch;
    for (size_t i = 0; i < batch->pending_count; i++) {
        struct append_request *request = batch->pending[i];
        request->status = answer;
        request->deduplicated = request->created = false;
        request->event = (struct store_event){0};
        request->entity = (struct store_entity){0};
        request->refusal = (struct append_refusal){0};
    }
    /* Entities borrow texts of groups, which are returned to their senders now. */
    entity_cache_clear(&ledger->cache);
    /* The refs of new topics are handed out again. */
    publish_buckets_clear(&ledger->buckets);
    usages_forget(&ledger->usages);
    ledger_batch_begin(batch, ledger->committed_log_id + 1);
    ledger->is_sound = false;
}

void ledger_refresh(struct ledger *ledger) {
    struct store_state state;
    if (store_read_state(ledger->session, &state) == STATUS_OK)
        ledger->state.topic_ref = state.topic_ref;
    else
        ledger->is_sound = false;
}

/* ---- for the rules ---- */

enum status ledger_find(struct draft *draft) {
    struct entity_entry *entry = draft->lookup->entry;
    assert(entry);
    if (entry->status != STATUS_OK)
        return entry->status;
    draft->entry = entry;
    draft->entity = entry->entity;
    return STATUS_OK;
}

enum status ledger_make_id(struct ledger *ledger, struct draft *draft, struct slice prefix,
                           struct slice *id) {
    char *text = arena_alloc(draft->arena, prefix.size + UUID_TEXT_SIZE);
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    struct uuid uuid = id_minter_next(&ledger->minter, ledger->now.wall_ms);
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

enum status ledger_answer_entity(struct draft *draft, const struct store_entity *entity) {
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
    if (!entity->status.data)
        return STATUS_OK;
    answer->status = arena_copy(draft->arena, entity->status);
    return answer->status.data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void ledger_add_pending(struct ledger *ledger, struct draft *draft) {
    if (!draft->is_pending)
        ledger_batch_add_pending(&ledger->batch, draft->request);
    draft->is_pending = true;
}

bool ledger_is_under_way(const struct ledger *ledger, const struct draft *draft) {
    return draft->entry && draft->entry->last_log_id > ledger->committed_log_id;
}

/* ---- limits ---- */

/* The policies for the events of an entity. With rules a lookup walks patterns, so the entry keeps
 * them. The check and the taking of tokens use the same ones, so the generation is
 * that of the batch. */
static size_t limits_of(const struct ledger *ledger, struct draft *draft) {
    const struct entity_row *row = entity_row(draft->entity.kind);
    struct entity_entry *entry = draft->entry;
    size_t count = row->shared_topic == TOPIC_NONE ? 1 : 2;
    if (entry && entry->limits[0] && entry->limits_generation == ledger->policy_generation) {
        memcpy(draft->limits, entry->limits, sizeof(draft->limits));
        return count;
    }
    draft->limits[0] = policy_of_entity(ledger->policies, draft->entity.kind, draft->entity.id);
    if (count == 2)
        draft->limits[1] = policy_of(ledger->policies, topic_name(row->shared_topic));
    if (entry) {
        memcpy(entry->limits, draft->limits, sizeof(entry->limits));
        entry->limits_generation = ledger->policy_generation;
    }
    return count;
}

/* Events of a run or worker share the buckets of their entity. A topic has a bucket for each
 * producing principal. */
static enum status check_limits(struct ledger *ledger, struct draft *draft) {
    const struct append_request *request = draft->request;
    struct append_refusal *refusal = &draft->request->refusal;
    const struct entity_row *row = entity_row(draft->entity.kind);
    size_t count = limits_of(ledger, draft);
    for (size_t i = 0; !request->import && i < count; i++) {
        struct publish_bucket bucket = {0};
        if (draft->entry && !request->is_rate_free)
            bucket = row->has_event_owner
                         ? publish_buckets_get(&ledger->buckets, &draft->publish_key)
                         : draft->entry->buckets[i];
        enum status status = publish_limit_check(draft->limits[i], &bucket, draft->payload.size,
                                                 ledger->now.mono_ns, refusal);
        if (status == STATUS_OK)
            continue;
        enum status named = STATUS_OK;
        if (i > 0)
            refusal->topic = topic_name(row->shared_topic);
        else
            named = topic_name_of_entity(draft->arena, draft->entity.kind, request->entity_id,
                                         &refusal->topic);
        return named == STATUS_OK ? status : named;
    }
    return STATUS_OK;
}

/* The event is certain: takes its tokens from the buckets, and its use from the quotas. */
static void take_limits(struct ledger *ledger, struct draft *draft) {
    bool is_shared = entity_row(draft->entity.kind)->shared_topic != TOPIC_NONE;
    size_t count = is_shared ? 2 : 1;
    uint64_t now_ns = ledger->now.mono_ns;
    if (draft->request->import || draft->request->is_rate_free)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t rate_per_second = draft->limits[i]->publish_rate_per_second;
        if (entity_row(draft->entity.kind)->has_event_owner)
            publish_buckets_take(&ledger->buckets, &draft->publish_key, rate_per_second, now_ns);
        else
            publish_bucket_take(&draft->entry->buckets[i], rate_per_second, now_ns);
    }
    if (draft->usage)
        usage_take(&ledger->usages, draft->usage, &draft->use, now_ns);
}

/* ---- quotas ---- */

/* Whether the event ends something for the first time. A repetition would be a way around the
 * quota. */
static bool is_ending(const struct draft *draft) {
    const struct slice erased = SLICE(".erased");
    struct slice type = draft->type;
    if (draft->payload.size > QUOTA_ENDING_BYTES_MAX)
        return false;
    if (type.size > erased.size &&
        memcmp(type.data + type.size - erased.size, erased.data, erased.size) == 0)
        return true;
    if (!draft->entry || slice_equal(draft->entry->entity.status, draft->entity.status))
        return false;
    if (draft->entity.kind == ENTITY_RUN)
        return slice_equal(type, SLICE(RUN_EVENT_FINISHED)) ||
               slice_equal(type, SLICE(RUN_EVENT_CANCEL_REQUESTED));
    return draft->entity.kind == ENTITY_WORKER &&
           (!usage_is_open(&draft->entity) ||
            slice_equal(draft->entity.status, slice_of(worker_state_name(WORKER_STOPPING))));
}

/* What the event would use, and the owner that pays for it. The row of a run or worker and its
 * metadata in derived rows count too: a commit writes one document for each entity, with the
 * entity's first event in the commit. */
static enum status check_quotas(struct ledger *ledger, struct draft *draft) {
    const struct append_request *request = draft->request;
    const struct store_entity *entity = &draft->entity;
    const struct store_entity *before = draft->entry ? &draft->entry->entity : NULL;
    bool has_event_owner = entity_row(entity->kind)->has_event_owner;
    const struct owner *owner = has_event_owner ? &request->owner : &entity->owner;
    uint64_t bytes = STORE_USAGE_ROW_BYTES + draft->type.size + draft->payload.size;
    struct quota_use *use = &draft->use;
    *use = (struct quota_use){
        .written_bytes = bytes,
        .entities = before == NULL,
        .is_ending = is_ending(draft),
        .is_unrefused = request->import || request->is_rate_free,
        .is_unpaced = request->import != NULL,
    };
    if (!has_event_owner && (!before || draft->is_changed)) {
        uint64_t bytes_before = before ? usage_entity_bytes(before) : 0;
        uint64_t metadata_before = before ? before->metadata.size : 0;
        bool was_open = before && usage_is_open(before);
        int64_t opened = (int64_t)usage_is_open(entity) - (int64_t)was_open;
        draft->writes_metadata = !before || before->metadata.data != entity->metadata.data;
        use->bytes = (int64_t)usage_entity_bytes(entity) - (int64_t)bytes_before;
        use->metadata_bytes = (int64_t)entity->metadata.size - (int64_t)metadata_before;
        use->open_runs = entity->kind == ENTITY_RUN ? opened : 0;
        use->open_workers = entity->kind == ENTITY_WORKER ? opened : 0;
        if (draft->writes_metadata)
            use->written_bytes += entity->metadata.size;
    }
    if (!has_event_owner && ledger->has_documents)
        use->written_bytes += usage_metadata_copied(entity, draft->writes_metadata,
                                                    !ledger_is_under_way(ledger, draft));
    if (owner->user_id.data || owner->guest_scope.data || owner->org_id.data) {
        use->events = 1;
        use->bytes += (int64_t)bytes;
    } else {
        /* The producer stores the event, and does not own the entity. */
        use->unowned_bytes = bytes;
        use->bytes = use->metadata_bytes = 0;
        use->open_runs = use->open_workers = 0;
    }
    draft->usage = draft->lookup->usage;
    if (!draft->usage) {
        char text[QUOTA_OWNER_BYTES_MAX];
        struct slice payer = append_payer(request, owner, text);
        if (payer.size == 0)
            return STATUS_OK;
        draft->usage = usages_find(&ledger->usages, payer);
        if (!draft->usage)
            return STATUS_INTERNAL_ERROR;
    }
    return usage_check(&ledger->usages, draft->usage, use, ledger->now.mono_ns,
                       &draft->request->refusal);
}

/* ---- appending ---- */

/* Fills in the next event of the batch, which does not count yet. */
static enum status fill_event(struct ledger *ledger, const struct draft *draft) {
    const struct append_request *request = draft->request;
    const struct append_import *import = request->import;
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
        .recorded_at_ms = draft->time_ms,
        .chain_version = import ? import->chain_version : STORE_CHAIN_VERSION,
    };
    if (entity_row(draft->entity.kind)->has_event_owner)
        event->owner = request->owner;
    /* The entity's texts are the writer's, and the event is answered to the group's maker. */
    else if (!owner_copy(draft->arena, &draft->entity.owner, &event->owner))
        return STATUS_OUT_OF_MEMORY;
    memcpy(event->payload_hash, draft->payload_hash, SHA256_BYTES);
    memcpy(event->prev_chain_hash, draft->entity.head_hash, SHA256_BYTES);
    enum status status = chain_hash(event, &ledger->hash_text, event->chain_hash);
    if (status == STATUS_OK && import &&
        (event->seq != import->seq ||
         memcmp(event->chain_hash, import->chain_hash, SHA256_BYTES) != 0))
        return STATUS_IMPORT_REFUSED;
    return status;
}

/* Nothing can be refused from here on. Without memory the batch is incomplete and is discarded. */
static enum status add_rows(struct ledger *ledger, struct draft *draft) {
    struct append_request *request = draft->request;
    struct ledger_batch *batch = &ledger->batch;
    const struct store_event *event = &batch->events[batch->event_count];
    bool is_new = !draft->entry;
    enum status status = STATUS_OK;
    if (is_new) {
        const struct store_topic topic = {
            .ref = ledger->state.topic_ref + 1,
            .name = draft->topic,
            .stream_id = draft->stream_id,
            .entity_ref = draft->entity.ref,
            .oldest_seq = 1,
        };
        status = ledger_batch_add_topic(batch, &topic);
        if (status == STATUS_OK)
            status = entity_cache_add(&ledger->cache, &draft->entity, &draft->entry);
    }
    uint64_t key_ref = append_key_is_scoped(request->kind) ? 0 : event->entity_ref;
    if (status == STATUS_OK && draft->lookup->key.data)
        status = ledger_batch_add_key(
            batch, &(struct store_key){key_ref, draft->lookup->key, event->log_id});
    ledger_add_pending(ledger, draft);
    if (status != STATUS_OK) {
        ledger->is_sound = false;
        return status;
    }
    struct entity_entry *entry = draft->entry;
    if (is_new) {
        entry->first_log_id = event->log_id;
        ledger->state.topic_ref++;
        ledger->state.entity_ref++;
    }
    take_limits(ledger, draft);
    struct slice id = entry->entity.id;
    entry->entity = draft->entity;
    entry->entity.id = id;
    entry->last_log_id = event->log_id;
    entry->writes_metadata = entry->writes_metadata || draft->writes_metadata;
    entry->is_borrowing = entry->is_borrowing || draft->is_borrowing;
    if (draft->is_changed || is_new)
        ledger_batch_add_changed(batch, entry);
    assert(!entry->is_borrowing || entry->is_changed);
    /* An imported id that another store minted counts as supplied, even if it is the cursor's. */
    if (request->has_event_id || request->import)
        recent_ids_add(&ledger->recent, &event->event_id, event->log_id);
    request->event = *event;
    batch->states[batch->event_count] = entry->entity;
    batch->event_count++;
    if (batch->room_least < request->room_least)
        batch->room_least = request->room_least;
    if (request->import)
        batch->imported_log_id = event->log_id;
    ledger->state.log_id = event->log_id;
    ledger->state.cursor = event->cursor;
    return STATUS_OK;
}

enum status ledger_append(struct ledger *ledger, struct draft *draft) {
    assert(draft->type.data && draft->payload.data);
    bool is_new = !draft->entry;
    if (is_new)
        draft->entity.ref = ledger->state.entity_ref + 1;
    if (entity_row(draft->entity.kind)->has_event_owner)
        draft->publish_key =
            (struct publish_key){draft->entity.ref, publish_principal(draft->request)};
    enum status status = check_limits(ledger, draft);
    if (status == STATUS_OK)
        status = check_quotas(ledger, draft);
    if (status == STATUS_OK && ledger->room > draft->request->room_least)
        status = STATUS_DISK_RESERVE;
    if (status == STATUS_OK)
        status = fill_event(ledger, draft);
    if (status != STATUS_OK)
        return status;
    draft->entity.head_seq++;
    memcpy(draft->entity.head_hash, ledger->batch.events[ledger->batch.event_count].chain_hash,
           SHA256_BYTES);
    status = ledger_answer_entity(draft, &draft->entity);
    if (status == STATUS_OK && is_new && !draft->topic.data) {
        status =
            topic_name_of_entity(draft->arena, draft->entity.kind, draft->entity.id, &draft->topic);
        if (status == STATUS_OK)
            status = topic_stream(draft->arena, draft->topic, &draft->stream_id);
    }
    if (status == STATUS_OK)
        status = add_rows(ledger, draft);
    enum append_kind kind = draft->request->kind;
    draft->request->created = status == STATUS_OK && is_new &&
                              (kind == APPEND_RUN_CREATE || kind == APPEND_WORKER_CREATE);
    return status;
}
