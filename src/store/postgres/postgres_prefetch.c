/* The lookups of one batch: at most three statements in one pipeline, which is one round trip. */
#include <stdio.h>

#include "store/postgres/postgres.h"

/* How STATEMENT_PREFETCH_EVENTS finds an event. */
enum find { FIND_LOG_ID, FIND_ID, FIND_KEY, FIND_FIRST };
static const enum find finds[] = {
    [STORE_EVENT_BY_LOG_ID] = FIND_LOG_ID, [STORE_EVENT_BY_ID] = FIND_ID,
    [STORE_EVENT_BY_KEY] = FIND_KEY,       [STORE_EVENT_BY_SCOPED_KEY] = FIND_KEY,
    [STORE_EVENT_FIRST] = FIND_FIRST,
};

/* Columns of STATEMENT_PREFETCH_EVENTS behind those of the event and of the entity. */
enum event_column { EVENT_ORDER, EVENT_LOG_ID };

static int first_behind(const struct store_layout *layout) {
    return (int)store_layout_selected(layout);
}

/* A log id, whether an id may be minted, or an entity; NULL: the entity is named by kind and id. */
static void put_subject(struct postgres_session *session, const struct store_event_lookup *lookup) {
    if (lookup->by == STORE_EVENT_BY_LOG_ID) {
        postgres_put_bound(session, lookup->log_id);
    } else if (lookup->by == STORE_EVENT_BY_ID) {
        bool may_be_minted = id_mark_may_be_minted(&session->tail.id_mark, &lookup->event_id);
        /* The search of the log reads rows on the server. */
        if (may_be_minted)
            store_session_count_row(&session->base);
        postgres_put_number(session, may_be_minted);
    } else if (lookup->by == STORE_EVENT_BY_SCOPED_KEY) {
        postgres_put_number(session, 0);
    } else if (lookup->entity) {
        postgres_put_optional(session, 0);
    } else {
        /* No entity has the ref 0, which is that of scoped keys. */
        postgres_put_signed(session, lookup->entity_ref > 0 && lookup->entity_ref < INT64_MAX
                                         ? (int64_t)lookup->entity_ref
                                         : -1);
    }
}

static enum status send_events(struct postgres_session *session,
                               const struct store_prefetch *prefetch) {
    const struct slice absent = {0};
    postgres_begin(session, STATEMENT_PREFETCH_EVENTS);
    for (size_t i = 0; i < prefetch->event_count; i++) {
        const struct store_event_lookup *lookup = &prefetch->events[i];
        enum find find = finds[lookup->by];
        bool is_named = (find == FIND_KEY || find == FIND_FIRST) && lookup->entity;
        postgres_put_number(session, find);
        put_subject(session, lookup);
        postgres_put_uuid(session, find == FIND_ID ? &lookup->event_id : NULL);
        postgres_put_number(session, is_named ? lookup->entity->kind : 0);
        postgres_put_text(session, is_named ? lookup->entity->id : absent);
        postgres_put_text(session, find == FIND_KEY ? lookup->key : absent);
        postgres_put_number(session, lookup->holder != NULL);
    }
    return postgres_pipeline_send(session);
}

/* ---- answers ---- */

/* The lookup of a row. NULL: the row has a number that was not sent. */
static struct store_entity_lookup *entity_of(const struct store_prefetch *prefetch,
                                             struct postgres_row row, int column) {
    uint64_t order = postgres_number(row, column);
    return order >= 1 && order <= prefetch->entity_count ? &prefetch->entities[order - 1] : NULL;
}

static enum status take_entities(struct postgres_session *session,
                                 const struct store_prefetch *prefetch) {
    PGresult *result = NULL;
    enum status status = postgres_pipeline_receive(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_entity entity;
        struct store_entity_lookup *lookup =
            entity_of(prefetch, row, first_behind(&store_entity_layout));
        bool is_sound = postgres_read_row(row, 0, &store_entity_layout, &entity);
        if (!lookup)
            continue;
        lookup->ref = entity.ref;
        lookup->status = is_sound ? prefetch->on_entity(prefetch->user, lookup, &entity)
                                  : postgres_damaged(session, "entity", entity.ref);
    }
    PQclear(result);
    return status;
}

static enum status take_event(struct postgres_session *session, struct postgres_row row,
                              struct store_event_lookup *lookup) {
    int holder = first_behind(&store_event_layout);
    uint64_t log_id =
        postgres_number(row, holder + first_behind(&store_entity_layout) + EVENT_LOG_ID);
    if (postgres_is_null(row, 0)) /* An index that names the event makes its absence damage. */
        return lookup->by == STORE_EVENT_BY_LOG_ID ? STATUS_NOT_FOUND
                                                   : postgres_damaged(session, "event", log_id);
    if (!postgres_read_row(row, 0, &store_event_layout, &lookup->event))
        return postgres_damaged(session, "event", log_id);
    if (!store_keep(lookup->arena, &store_event_layout, &lookup->event))
        return STATUS_OUT_OF_MEMORY;
    if (!lookup->holder)
        return STATUS_OK;
    if (!postgres_read_row(row, holder, &store_entity_layout, lookup->holder))
        return postgres_damaged(session, "entity", lookup->event.entity_ref);
    return store_keep(lookup->arena, &store_entity_layout, lookup->holder) ? STATUS_OK
                                                                           : STATUS_OUT_OF_MEMORY;
}

static enum status take_events(struct postgres_session *session,
                               const struct store_prefetch *prefetch) {
    PGresult *result = NULL;
    enum status status = postgres_pipeline_receive(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        uint64_t order = postgres_number(row, first_behind(&store_event_layout) +
                                                  first_behind(&store_entity_layout) + EVENT_ORDER);
        if (order < 1 || order > prefetch->event_count)
            continue;
        struct store_event_lookup *lookup = &prefetch->events[order - 1];
        lookup->status = take_event(session, row, lookup);
    }
    PQclear(result);
    return status;
}

/* A damaged table of topics is no reason to refuse the event. The commit repairs it. */
static enum status take_streams(struct postgres_session *session,
                                const struct store_prefetch *prefetch) {
    PGresult *result = NULL;
    enum status status = postgres_pipeline_receive(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_entity_lookup *lookup = entity_of(prefetch, row, 0);
        if (lookup)
            lookup->is_stream_taken = lookup->status == STATUS_NOT_FOUND;
    }
    PQclear(result);
    return status == STATUS_INTERNAL_ERROR ? STATUS_OK : status;
}

enum status postgres_prefetch(struct store_session *base, struct store_prefetch *prefetch) {
    struct postgres_session *session = postgres_session_of(base);
    bool has_streams = false;
    for (size_t i = 0; i < prefetch->entity_count; i++) {
        prefetch->entities[i].ref = 0;
        prefetch->entities[i].is_stream_taken = false;
        prefetch->entities[i].status = STATUS_NOT_FOUND;
        has_streams = has_streams || prefetch->entities[i].stream_id.data;
    }
    for (size_t i = 0; i < prefetch->event_count; i++)
        prefetch->events[i].status = STATUS_NOT_FOUND;
    enum status status = session->tail.known ? STATUS_OK : postgres_load_tail(session);
    if (status != STATUS_OK || prefetch->entity_count + prefetch->event_count == 0)
        return status;
    status = postgres_pipeline_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PREFETCH_ENTITIES);
    for (size_t i = 0; i < prefetch->entity_count; i++) {
        postgres_put_number(session, prefetch->entities[i].kind);
        postgres_put_text(session, prefetch->entities[i].id);
    }
    if (prefetch->entity_count > 0)
        status = postgres_pipeline_send(session);
    if (status == STATUS_OK && prefetch->event_count > 0)
        status = send_events(session, prefetch);
    /* The streams come last: after a statement that fails, the rest of the pipeline does not run.
     */
    postgres_begin(session, STATEMENT_PREFETCH_STREAMS);
    for (size_t i = 0; i < prefetch->entity_count; i++)
        postgres_put_text(session, prefetch->entities[i].stream_id);
    if (status == STATUS_OK && has_streams)
        status = postgres_pipeline_send(session);
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK && prefetch->entity_count > 0)
        status = take_entities(session, prefetch);
    if (status == STATUS_OK && prefetch->event_count > 0)
        status = take_events(session, prefetch);
    if (status == STATUS_OK && has_streams)
        status = take_streams(session, prefetch);
    postgres_pipeline_end(session);
    return status;
}
