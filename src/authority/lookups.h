/* The questions of one batch to the store, gathered from its requests and asked at once.
 * A request asks for its entity and for the parent of a new run unless the cache holds them, for
 * the events that have its idempotency
 * key and its event id unless memory rules them out, and for the first event of an entity that it
 * would create. A creation asks for the entities of those events too.
 * Thread: the writer's.
 * Memory: for BATCH_REQUESTS_MAX requests, allocated once and reused. An event that is found lives
 * in the arena of the request's group.
 * Errors: STATUS_OUT_OF_MEMORY; the store's statuses, for one request or for the whole batch.
 * Invariant: answers describe the store before the batch. */
#ifndef AUTHORITY_LOOKUPS_H
#define AUTHORITY_LOOKUPS_H

#include "authority/append.h"
#include "authority/entity_cache.h"
#include "authority/event_ids.h"
#include "authority/quota.h"

/* The answers for one request. Events are numbers in struct lookups, from 1; 0: not asked for. */
struct request_lookup {
    const struct append_request *request;
    enum status status; /* the result of gathering */
    /* NULL: the request names no entity. Otherwise its status says whether the entity exists. */
    struct entity_entry *entry;
    struct entity_entry *parent; /* the run that a creation names as its parent; NULL: none */
    struct usage *usage; /* its owner's; NULL: none, or the owner is not known before the rules */
    struct slice key;    /* the idempotency key as it is stored; data NULL: none was given */
    uint32_t first_event;
    uint32_t key_event;
    uint32_t old_key_event; /* the event of the key as stored before keys of topics had an owner */
    uint32_t id_event;
};

struct lookups {
    struct request_lookup *requests;
    size_t request_count;
    struct store_entity_lookup *entities;
    struct entity_entry **entries; /* the entry of the lookup at the same index */
    size_t entity_count;
    struct store_event_lookup *events;
    size_t event_count;
    size_t used_count; /* requests that lookups_take returned */
};

MUST_CHECK enum status lookups_init(struct lookups *lookups);
void lookups_release(struct lookups *lookups);
void lookups_begin(struct lookups *lookups);

/* The writer's memory, which answers some lookups without the store. */
struct lookup_sources {
    struct entity_cache *cache;
    const struct recent_ids *recent;
    struct arena *names; /* lives until the batch ends */
};

/* Adds the lookups of a request. arena is its group's. A failure is kept for lookups_take. */
void lookups_gather(struct lookups *lookups, const struct lookup_sources *sources,
                    const struct append_request *request, struct arena *arena);
/* Adds the lookup of a request's entity alone. The rules do not read these lookups. */
void lookups_gather_owner(struct lookups *lookups, const struct lookup_sources *sources,
                          const struct append_request *request);
/* Asks for everything that was gathered, and fills the cache. Does not call the store when nothing
 * is asked for. */
MUST_CHECK enum status lookups_fetch(struct lookups *lookups, struct entity_cache *cache,
                                     struct store_session *session);
/* After lookups_fetch: finds the owners of the requests, and asks for what they have stored. */
MUST_CHECK enum status lookups_fetch_usages(struct lookups *lookups, struct usages *usages,
                                            struct store_session *session);
/* The owner that pays for an event of the request. Empty: there is none. The rates of an event
 * without an owner are its producer's. */
struct slice append_payer(const struct append_request *request, const struct owner *owner,
                          char text[QUOTA_OWNER_BYTES_MAX]);
/* The owner of what a request writes to, as far as memory knows it; NULL: its entity is not in
 * memory. */
const struct owner *append_owner(const struct append_request *request,
                                 const struct entity_cache *cache);
/* The answers for the next request, in the order of gathering. */
const struct request_lookup *lookups_take(struct lookups *lookups,
                                          const struct append_request *request);
/* An event that was asked for; its log_id is 0 if there is none. */
MUST_CHECK enum status lookups_event(const struct lookups *lookups, uint32_t number,
                                     struct store_event *event);

/* The entity of that event, for a request that creates; NULL if there is none. */
const struct store_entity *lookups_holder(const struct lookups *lookups, uint32_t number);

#endif
