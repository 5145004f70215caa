/* Gathering walks the requests of a batch in order. Each adds at most one lookup of its entity, one
 * of the run that it names as its parent, and three of events: the one with its idempotency key,
 * the one with its event id, and the first event of an entity that it would create. What the entity
 * cache and the recent ids answer is not asked for. One store_prefetch fetches the rest. Then the
 * owners are known, and their usages are fetched in the same way. The rules read the answers in the
 * order of gathering. */
#include "authority/lookups.h"

#include <assert.h>
#include <stdlib.h>

#include "authority/ledger_batch.h"
#include "base/limits.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"
#include "wire/json.h"

/* Its own entity, and a parent. */
#define ENTITIES_OF_REQUEST_MAX 2
/* An idempotency key, an event id, and a first event or a key as it was stored before. */
#define EVENTS_OF_REQUEST_MAX 3
/* Six texts, of which each byte may need an escape. */
#define SCOPED_KEY_BYTES_MAX (6 * (6 * TOPIC_NAME_BYTES_MAX + 3) + 2)
#define KEY_HASH_PREFIX      "sha256:"

enum status lookups_init(struct lookups *lookups) {
    *lookups = (struct lookups){
        .requests = calloc(BATCH_REQUESTS_MAX, sizeof(*lookups->requests)),
        .entities =
            calloc(BATCH_REQUESTS_MAX, sizeof(*lookups->entities) * ENTITIES_OF_REQUEST_MAX),
        .entries =
            calloc(BATCH_REQUESTS_MAX, sizeof(struct entity_entry *) * ENTITIES_OF_REQUEST_MAX),
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

/* The entry of an entity. The store is asked for it unless it is in memory. */
static enum status expect_entity(struct lookups *lookups, const struct lookup_sources *sources,
                                 enum entity_kind kind, struct slice id,
                                 struct entity_entry **entry) {
    struct slice stream_id = {NULL, 0};
    bool is_added = false;
    enum status status = entity_cache_expect(sources->cache, kind, id, entry, &is_added);
    if (status != STATUS_OK || !is_added)
        return status;
    /* The id of an application topic is its name. */
    if (kind == ENTITY_TOPIC)
        status = topic_stream(sources->names, id, &stream_id);
    if (status != STATUS_OK) {
        (*entry)->status = status;
        return status;
    }
    assert(lookups->entity_count < (size_t)BATCH_REQUESTS_MAX * ENTITIES_OF_REQUEST_MAX);
    (*entry)->lookup_index = lookups->entity_count;
    lookups->entries[lookups->entity_count] = *entry;
    lookups->entities[lookups->entity_count++] =
        (struct store_entity_lookup){.kind = kind, .id = id, .stream_id = stream_id};
    return STATUS_OK;
}

/* Requests of a batch often append to one entity, which is then looked up once. */
static enum status gather_entity(struct lookups *lookups, const struct lookup_sources *sources,
                                 struct request_lookup *lookup) {
    const struct append_request *request = lookup->request;
    const struct request_lookup *last = lookups->request_count > 1 ? lookup - 1 : NULL;
    struct slice id = append_entity_id(request);
    enum status status = STATUS_OK;
    if (last && last->status == STATUS_OK && last->request->kind == request->kind &&
        slice_equal(last->request->entity_id, request->entity_id))
        lookup->entry = last->entry;
    else if (id.data)
        status =
            expect_entity(lookups, sources, append_entity_kind(request->kind), id, &lookup->entry);
    if (status == STATUS_OK && request->parent_run_id.data && !request->import)
        status =
            expect_entity(lookups, sources, ENTITY_RUN, request->parent_run_id, &lookup->parent);
    return status;
}

static uint32_t add_event(struct lookups *lookups, const struct store_event_lookup *lookup) {
    assert(lookups->event_count < (size_t)BATCH_REQUESTS_MAX * EVENTS_OF_REQUEST_MAX);
    lookups->events[lookups->event_count++] = *lookup;
    return (uint32_t)lookups->event_count;
}

/* An event of the request's entity, which the same prefetch may look up. */
static uint32_t add_entity_event(struct lookups *lookups, const struct entity_entry *entry,
                                 struct store_event_lookup lookup) {
    if (entry->status == STATUS_OK)
        lookup.entity_ref = entry->entity.ref;
    else
        lookup.entity = &lookups->entities[entry->lookup_index];
    return add_event(lookups, &lookup);
}

/* The key as it is stored. A scoped key is [kind, user, guest, organisation, key] for a creation,
 * whose entity may not exist yet, and [kind, topic, user, guest, organisation, key] for an event of
 * a topic. The owner is the one that produces the event: another tenant's key never answers or
 * refuses a request. A text longer than a plain key may be becomes its hash, because an index of
 * the store has a longest key. */
static enum status gather_key(struct request_lookup *lookup, struct arena *arena) {
    const struct append_request *request = lookup->request;
    const struct owner *owner = request->producer ? &request->producer->identity : &request->owner;
    lookup->key = request->idempotency_key;
    if (!lookup->key.data || !append_key_is_scoped(request->kind))
        return STATUS_OK;
    const struct slice parts[] = {slice_of(entity_kind_name(append_entity_kind(request->kind))),
                                  append_entity_id(request),
                                  owner->user_id,
                                  owner->guest_scope,
                                  owner->org_id,
                                  request->idempotency_key};
    struct buffer text;
    buffer_init(&text, SCOPED_KEY_BYTES_MAX);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (i == 1 && append_is_creation(request->kind))
            continue;
        buffer_append_byte(&text, i == 0 ? '[' : ',');
        if (parts[i].data)
            json_write_string(&text, parts[i]);
        else
            buffer_append_slice(&text, SLICE("null"));
    }
    enum status status = buffer_append_byte(&text, ']');
    if (status == STATUS_OK && text.size > APPEND_IDEMPOTENCY_BYTES_MAX) {
        uint8_t hash[SHA256_BYTES];
        sha256(text.data, text.size, hash);
        buffer_clear(&text);
        buffer_append_slice(&text, SLICE(KEY_HASH_PREFIX));
        status = buffer_append_hex(&text, hash, sizeof(hash));
    }
    if (status == STATUS_OK) {
        lookup->key = arena_copy(arena, buffer_slice(&text));
        status = lookup->key.data ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    buffer_release(&text);
    return status;
}

static enum status gather_events(struct lookups *lookups, const struct lookup_sources *sources,
                                 struct request_lookup *lookup, struct arena *arena) {
    const struct append_request *request = lookup->request;
    const struct entity_entry *entry = lookup->entry;
    const struct store_event_lookup plain = {.arena = arena};
    struct store_entity *holders = NULL;
    /* Another request of the batch could not ask for the entity. */
    if (entry && entry->status != STATUS_OK && entry->status != STATUS_NOT_FOUND)
        return STATUS_OK;
    /* An imported event is new, or the commit refuses it. */
    if (request->import)
        return STATUS_OK;
    enum status status = gather_key(lookup, arena);
    if (status != STATUS_OK)
        return status;
    bool is_creation = append_is_creation(request->kind);
    if (is_creation && entry) {
        struct store_event_lookup first = plain;
        first.by = STORE_EVENT_FIRST;
        lookup->first_event = add_entity_event(lookups, entry, first);
    }
    if (is_creation && (lookup->key.data || request->has_event_id)) {
        holders = arena_alloc(arena, 2 * sizeof(*holders));
        if (!holders)
            return STATUS_OUT_OF_MEMORY;
    }
    if (lookup->key.data && append_key_is_scoped(request->kind) && (is_creation || entry)) {
        struct store_event_lookup by_key = plain;
        by_key.by = STORE_EVENT_BY_SCOPED_KEY;
        by_key.key = lookup->key;
        by_key.holder = holders;
        lookup->key_event = add_event(lookups, &by_key);
    }
    if (lookup->key.data && !is_creation && entry) {
        /* A topic's key may have been stored as it was given, before keys had an owner. */
        struct store_event_lookup by_key = plain;
        by_key.by = STORE_EVENT_BY_KEY;
        by_key.key = request->idempotency_key;
        uint32_t number = add_entity_event(lookups, entry, by_key);
        if (append_key_is_scoped(request->kind))
            lookup->old_key_event = number;
        else
            lookup->key_event = number;
    }
    if (!request->has_event_id)
        return STATUS_OK;
    struct store_event_lookup by_id = plain;
    enum recent_answer answer = recent_ids_find(sources->recent, &request->event_id, &by_id.log_id);
    by_id.by = answer == RECENT_KNOWN ? STORE_EVENT_BY_LOG_ID : STORE_EVENT_BY_ID;
    by_id.event_id = request->event_id;
    by_id.holder = holders ? &holders[1] : NULL;
    if (answer != RECENT_NEW)
        lookup->id_event = add_event(lookups, &by_id);
    return STATUS_OK;
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

const struct owner *append_owner(const struct append_request *request,
                                 const struct entity_cache *cache) {
    enum entity_kind kind = append_entity_kind(request->kind);
    if (entity_row(kind)->has_event_owner || append_is_creation(request->kind))
        return &request->owner;
    struct slice id = append_entity_id(request);
    const struct entity_entry *entry = id.data ? entity_cache_find(cache, kind, id) : NULL;
    return entry ? &entry->entity.owner : NULL;
}

enum status lookups_fetch_usages(struct lookups *lookups, struct usages *usages,
                                 struct store_session *session) {
    const struct request_lookup *last = NULL;
    const struct owner *last_owner = NULL;
    for (size_t i = 0; i < lookups->request_count; i++) {
        struct request_lookup *lookup = &lookups->requests[i];
        const struct append_request *request = lookup->request;
        struct entity_entry *entry = lookup->entry;
        const struct owner *owner = NULL;
        char text[QUOTA_OWNER_BYTES_MAX];
        if (lookup->status != STATUS_OK)
            continue;
        bool has_event_owner = entity_row(append_entity_kind(request->kind))->has_event_owner;
        if (!has_event_owner && entry && entry->status == STATUS_OK)
            owner = &entry->entity.owner;
        else if (has_event_owner || append_is_creation(request->kind))
            owner = &request->owner;
        /* An earlier request of the batch makes the entity. Its owner is that request's. */
        if (!owner)
            continue;
        bool is_kept = entry && owner == &entry->entity.owner;
        if (is_kept && entry->usage_batch == usages->batch) {
            lookup->usage = entry->usage;
            continue;
        }
        /* Requests of one owner often follow each other. */
        if (last && last->request->producer == request->producer &&
            (last_owner == owner || (slice_equal(last_owner->user_id, owner->user_id) &&
                                     slice_equal(last_owner->guest_scope, owner->guest_scope) &&
                                     slice_equal(last_owner->org_id, owner->org_id)))) {
            lookup->usage = last->usage;
            continue;
        }
        struct slice payer = append_payer(request, owner, text);
        if (payer.size > 0)
            lookup->usage = usages_expect(usages, payer);
        if (payer.size > 0 && !lookup->usage)
            return STATUS_OUT_OF_MEMORY;
        /* The owner of an entity that has one pays, whichever principal produced the event. */
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
