#include "authority/lookups.h"

#include <assert.h>
#include <stdlib.h>

#include "authority/batch.h"
#include "base/limits.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"
#include "wire/json.h"

/* An idempotency key, an event id, and a first event or a key as it was stored before. */
#define EVENTS_OF_REQUEST_MAX 3
/* Six texts, of which each byte may need an escape. */
#define SCOPED_KEY_BYTES_MAX (6 * (6 * TOPIC_NAME_BYTES_MAX + 3) + 2)
#define KEY_HASH_PREFIX      "sha256:"

enum status lookups_init(struct lookups *lookups) {
    *lookups = (struct lookups){
        .requests = calloc(BATCH_REQUESTS_MAX, sizeof(*lookups->requests)),
        .entities = calloc(BATCH_REQUESTS_MAX, sizeof(*lookups->entities)),
        .entries = calloc(BATCH_REQUESTS_MAX, sizeof(struct entity_entry *)),
        .events = calloc(BATCH_REQUESTS_MAX, sizeof(*lookups->events) * EVENTS_OF_REQUEST_MAX),
    };
    if (lookups->requests && lookups->entities && lookups->entries && lookups->events)
        return STATUS_OK;
    lookups_release(lookups);
    return STATUS_OUT_OF_MEMORY;
}

void lookups_release(struct lookups *lookups) {
    free(lookups->requests);
    free(lookups->entities);
    free(lookups->entries);
    free(lookups->events);
    *lookups = (struct lookups){0};
}

void lookups_begin(struct lookups *lookups) {
    lookups->request_count = lookups->entity_count = lookups->event_count = 0;
    lookups->used_count = 0;
}

/* ---- gathering ---- */

/* Requests of a batch often append to one entity, which is looked up once then. */
static bool is_entity_of_last(const struct lookups *lookups, const struct request_lookup *lookup) {
    if (lookups->request_count < 2)
        return false;
    const struct request_lookup *last = lookup - 1;
    return last->status == STATUS_OK && last->request->kind == lookup->request->kind &&
           slice_equal(last->request->entity_id, lookup->request->entity_id);
}

static enum status gather_entity(struct lookups *lookups, const struct lookup_sources *sources,
                                 struct request_lookup *lookup) {
    if (is_entity_of_last(lookups, lookup)) {
        lookup->entry = (lookup - 1)->entry;
        return STATUS_OK;
    }
    enum entity_kind kind = append_entity_kind(lookup->request->kind);
    struct slice id = append_entity_id(lookup->request);
    struct slice stream_id = {NULL, 0};
    bool is_added = false;
    if (!id.data)
        return STATUS_OK;
    enum status status = entity_cache_expect(sources->cache, kind, id, &lookup->entry, &is_added);
    if (status != STATUS_OK || !is_added)
        return status;
    /* The id of an application topic is its name. */
    if (kind == ENTITY_TOPIC)
        status = topic_stream(sources->names, id, &stream_id);
    if (status != STATUS_OK) {
        lookup->entry->status = status;
        return status;
    }
    assert(lookups->entity_count < BATCH_REQUESTS_MAX);
    lookup->entry->lookup_index = lookups->entity_count;
    lookups->entries[lookups->entity_count] = lookup->entry;
    lookups->entities[lookups->entity_count++] =
        (struct store_entity_lookup){.kind = kind, .id = id, .stream_id = stream_id};
    return STATUS_OK;
}

static uint32_t add_event(struct lookups *lookups, const struct store_event_lookup *lookup) {
    assert(lookups->event_count < (size_t)BATCH_REQUESTS_MAX * EVENTS_OF_REQUEST_MAX);
    lookups->events[lookups->event_count++] = *lookup;
    return (uint32_t)lookups->event_count;
}

/* One whose entity is the request's. */
static uint32_t add_entity_event(struct lookups *lookups, const struct entity_entry *entry,
                                 struct store_event_lookup lookup) {
    if (entry->status == STATUS_OK)
        lookup.entity_ref = entry->entity.ref;
    else
        lookup.entity = &lookups->entities[entry->lookup_index];
    return add_event(lookups, &lookup);
}

/* [kind, user, guest, organisation, key] for a creation, whose entity may not exist yet, and
 * [kind, topic, user, guest, organisation, key] for an event of a topic. The owner is the one that
 * produces the event: another tenant's key never answers or refuses a request. */
static enum status write_scoped_key(struct buffer *out, const struct append_request *request) {
    const struct owner *owner = request->producer ? &request->producer->identity : &request->owner;
    const struct slice parts[] = {slice_of(entity_kind_name(append_entity_kind(request->kind))),
                                  append_entity_id(request),
                                  owner->user_id,
                                  owner->guest_scope,
                                  owner->org_id,
                                  request->idempotency_key};
    enum status status = buffer_append_byte(out, '[');
    for (size_t i = 0; status == STATUS_OK && i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (i == 1 && append_is_creation(request->kind))
            continue;
        if (i > 0)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = parts[i].data ? json_write_string(out, parts[i])
                                   : buffer_append_slice(out, SLICE("null"));
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

/* The key as it is stored. A longer text than a plain key may have becomes its hash, because an
 * index of the store has a longest key. */
static enum status gather_key(struct request_lookup *lookup, struct arena *arena) {
    const struct append_request *request = lookup->request;
    lookup->key = request->idempotency_key;
    if (!lookup->key.data || !append_key_is_scoped(request->kind))
        return STATUS_OK;
    struct buffer text;
    buffer_init(&text, SCOPED_KEY_BYTES_MAX);
    enum status status = write_scoped_key(&text, request);
    if (status == STATUS_OK && text.size > APPEND_IDEMPOTENCY_BYTES_MAX) {
        uint8_t hash[SHA256_BYTES];
        sha256(text.data, text.size, hash);
        buffer_clear(&text);
        status = buffer_append_slice(&text, SLICE(KEY_HASH_PREFIX));
        if (status == STATUS_OK)
            status = buffer_append_hex(&text, hash, sizeof(hash));
    }
    if (status == STATUS_OK) {
        lookup->key = arena_copy(arena, buffer_slice(&text));
        status = lookup->key.data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    buffer_release(&text);
    return status;
}

static void gather_id(struct lookups *lookups, const struct lookup_sources *sources,
                      struct request_lookup *lookup, const struct store_event_lookup *common) {
    uint64_t log_id = 0;
    struct store_event_lookup by_id = *common;
    enum recent_answer answer =
        recent_ids_find(sources->recent, &lookup->request->event_id, &log_id);
    by_id.by = answer == RECENT_KNOWN ? STORE_EVENT_BY_LOG_ID : STORE_EVENT_BY_ID;
    by_id.log_id = log_id;
    by_id.event_id = lookup->request->event_id;
    if (answer == RECENT_KNOWN || answer == RECENT_UNKNOWN)
        lookup->id_event = add_event(lookups, &by_id);
}

static enum status add_creation_events(struct lookups *lookups, struct request_lookup *lookup,
                                       struct store_event_lookup *common) {
    const struct entity_entry *entry = lookup->entry;
    const struct append_request *request = lookup->request;
    if (entry)
        lookup->first_event = add_entity_event(
            lookups, entry,
            (struct store_event_lookup){.by = STORE_EVENT_FIRST, .arena = common->arena});
    if (!lookup->key.data && !request->has_event_id)
        return STATUS_OK;
    struct store_entity *holders = arena_alloc(common->arena, 2 * sizeof(*holders));
    if (!holders)
        return STATUS_OUT_OF_MEMORY;
    struct store_event_lookup by_key = *common;
    by_key.by = STORE_EVENT_BY_SCOPED_KEY;
    by_key.key = lookup->key;
    by_key.holder = &holders[0];
    common->holder = &holders[1];
    if (lookup->key.data)
        lookup->key_event = add_event(lookups, &by_key);
    return STATUS_OK;
}

/* A topic's key may have been stored before keys had an owner, as it was given. */
static void add_key_events(struct lookups *lookups, struct request_lookup *lookup,
                           struct arena *arena) {
    bool is_scoped = append_key_is_scoped(lookup->request->kind);
    uint32_t plain = add_entity_event(
        lookups, lookup->entry,
        (struct store_event_lookup){
            .by = STORE_EVENT_BY_KEY, .key = lookup->request->idempotency_key, .arena = arena});
    lookup->key_event = plain;
    if (!is_scoped)
        return;
    lookup->old_key_event = plain;
    lookup->key_event = add_event(
        lookups, &(struct store_event_lookup){
                     .by = STORE_EVENT_BY_SCOPED_KEY, .key = lookup->key, .arena = arena});
}

static enum status gather_events(struct lookups *lookups, const struct lookup_sources *sources,
                                 struct request_lookup *lookup, struct arena *arena) {
    const struct append_request *request = lookup->request;
    const struct entity_entry *entry = lookup->entry;
    struct store_event_lookup common = {.arena = arena};
    /* Another request of the batch could not ask for the entity. */
    if (entry && entry->status != STATUS_OK && entry->status != STATUS_NOT_FOUND)
        return STATUS_OK;
    /* An imported event is new, or the commit refuses it. */
    if (request->import)
        return STATUS_OK;
    enum status status = gather_key(lookup, arena);
    if (status == STATUS_OK && append_is_creation(request->kind))
        status = add_creation_events(lookups, lookup, &common);
    else if (status == STATUS_OK && entry && lookup->key.data)
        add_key_events(lookups, lookup, arena);
    if (status == STATUS_OK && request->has_event_id)
        gather_id(lookups, sources, lookup, &common);
    return status;
}

void lookups_gather(struct lookups *lookups, const struct lookup_sources *sources,
                    const struct append_request *request, struct arena *arena) {
    assert(lookups->request_count < BATCH_REQUESTS_MAX);
    struct request_lookup *lookup = &lookups->requests[lookups->request_count++];
    *lookup = (struct request_lookup){.request = request};
    lookup->status = gather_entity(lookups, sources, lookup);
    if (lookup->status == STATUS_OK)
        lookup->status = gather_events(lookups, sources, lookup, arena);
}

void lookups_gather_owner(struct lookups *lookups, const struct lookup_sources *sources,
                          const struct append_request *request) {
    assert(lookups->request_count < BATCH_REQUESTS_MAX);
    struct request_lookup *lookup = &lookups->requests[lookups->request_count++];
    *lookup = (struct request_lookup){.request = request};
    lookup->status = gather_entity(lookups, sources, lookup);
}

/* ---- asking ---- */

struct filling {
    struct lookups *lookups;
    struct entity_cache *cache;
};

static enum status fill_entry(void *user, struct store_entity_lookup *lookup,
                              const struct store_entity *entity) {
    struct filling *filling = user;
    struct lookups *lookups = filling->lookups;
    return entity_cache_fill(filling->cache, lookups->entries[lookup - lookups->entities], entity);
}

enum status lookups_fetch(struct lookups *lookups, struct entity_cache *cache,
                          struct store_session *session) {
    struct filling filling = {lookups, cache};
    struct store_prefetch prefetch = {
        .entities = lookups->entities,
        .entity_count = lookups->entity_count,
        .events = lookups->events,
        .event_count = lookups->event_count,
        .on_entity = fill_entry,
        .user = &filling,
    };
    if (lookups->entity_count == 0 && lookups->event_count == 0)
        return STATUS_OK;
    enum status status = store_prefetch(session, &prefetch);
    for (size_t i = 0; status == STATUS_OK && i < lookups->entity_count; i++) {
        lookups->entries[i]->status = lookups->entities[i].status;
        lookups->entries[i]->is_stream_taken = lookups->entities[i].is_stream_taken;
    }
    return status;
}

/* ---- owners ---- */

struct slice append_payer(const struct append_request *request, const struct owner *owner,
                          char text[QUOTA_OWNER_BYTES_MAX]) {
    struct slice payer = quota_owner(owner, text);
    return payer.size == 0 && request->producer ? quota_owner(&request->producer->identity, text)
                                                : payer;
}

static bool is_same_owner(const struct owner *a, const struct owner *b) {
    return slice_equal(a->user_id, b->user_id) && slice_equal(a->guest_scope, b->guest_scope) &&
           slice_equal(a->org_id, b->org_id);
}

const struct owner *append_owner(const struct append_request *request,
                                 const struct entity_cache *cache) {
    enum entity_kind kind = append_entity_kind(request->kind);
    if (entity_row(kind)->has_event_owner || append_is_creation(request->kind))
        return &request->owner;
    struct slice id = append_entity_id(request);
    const struct entity_entry *entry = id.data ? entity_cache_find(cache, kind, id) : NULL;
    return entry ? &entry->entity.owner : NULL;
}

/* The owner of the event that the request asks for. NULL: an earlier request of the batch makes the
 * entity, and its owner is that request's. */
static const struct owner *owner_of(const struct request_lookup *lookup) {
    const struct append_request *request = lookup->request;
    if (entity_row(append_entity_kind(request->kind))->has_event_owner)
        return &request->owner;
    if (lookup->entry && lookup->entry->status == STATUS_OK)
        return &lookup->entry->entity.owner;
    return append_is_creation(request->kind) ? &request->owner : NULL;
}

enum status lookups_fetch_usages(struct lookups *lookups, struct usages *usages,
                                 struct store_session *session) {
    const struct request_lookup *last = NULL;
    const struct owner *last_owner = NULL;
    for (size_t i = 0; i < lookups->request_count; i++) {
        struct request_lookup *lookup = &lookups->requests[i];
        const struct owner *owner = lookup->status == STATUS_OK ? owner_of(lookup) : NULL;
        char text[QUOTA_OWNER_BYTES_MAX];
        if (!owner)
            continue;
        struct entity_entry *entry = lookup->entry;
        bool is_kept = entry && owner == &entry->entity.owner;
        if (is_kept && entry->usage_batch == usages->batch) {
            lookup->usage = entry->usage;
            continue;
        }
        /* Requests of one owner often follow each other. */
        if (last && last->request->producer == lookup->request->producer &&
            (last_owner == owner || is_same_owner(last_owner, owner))) {
            lookup->usage = last->usage;
            continue;
        }
        struct slice payer = append_payer(lookup->request, owner, text);
        if (payer.size > 0)
            lookup->usage = usages_expect(usages, payer);
        if (payer.size > 0 && !lookup->usage)
            return STATUS_OUT_OF_MEMORY;
        /* The owner of an entity that has one pays, whoever produced the event. */
        if (is_kept && quota_owner(owner, text).size > 0) {
            entry->usage = lookup->usage;
            entry->usage_batch = usages->batch;
        }
        last = lookup;
        last_owner = owner;
    }
    return usages_fetch(usages, session);
}

/* ---- answers ---- */

const struct request_lookup *lookups_take(struct lookups *lookups,
                                          const struct append_request *request) {
    assert(lookups->used_count < lookups->request_count);
    const struct request_lookup *lookup = &lookups->requests[lookups->used_count++];
    assert(lookup->request == request);
    return lookup;
}

enum status lookups_event(const struct lookups *lookups, uint32_t number,
                          struct store_event *event) {
    *event = (struct store_event){0};
    if (number == 0)
        return STATUS_OK;
    assert(number <= lookups->event_count);
    const struct store_event_lookup *lookup = &lookups->events[number - 1];
    if (lookup->status == STATUS_OK)
        *event = lookup->event;
    if (lookup->status != STATUS_NOT_FOUND)
        return lookup->status;
    /* Memory names the event, so that its absence is damage. */
    return lookup->by == STORE_EVENT_BY_LOG_ID ? STATUS_INTERNAL_ERROR : STATUS_OK;
}

const struct store_entity *lookups_holder(const struct lookups *lookups, uint32_t number) {
    assert(number <= lookups->event_count);
    return number > 0 ? lookups->events[number - 1].holder : NULL;
}
