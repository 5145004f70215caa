/* The lookups of one batch. SQLite answers each with statements of its own; one read transaction
 * around all of them saves most of their cost. */
#include "store/sqlite/sqlite.h"

static enum status find_number(struct sqlite_session *session, sqlite3_stmt *statement,
                               uint64_t *number) {
    enum status status = sqlite_next(session, statement);
    if (status == STATUS_OK && sqlite3_column_type(statement, 0) == SQLITE_NULL)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK)
        *number = sqlite_number(statement, 0);
    sqlite3_reset(statement);
    return status;
}

enum status sqlite_find_client_id(struct sqlite_session *session, const struct uuid *event_id,
                                  uint64_t *log_id) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_EVENT_ID, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bytes(statement, 1, event_id->bytes, sizeof(event_id->bytes));
    return find_number(session, statement, log_id);
}

static enum status find_key(struct sqlite_session *session, uint64_t entity_ref, struct slice key,
                            uint64_t *log_id) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_KEY, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(statement, 1, entity_ref);
    sqlite_bind_text(statement, 2, key);
    return find_number(session, statement, log_id);
}

/* The log id of the event that a lookup names. */
static enum status find_event(struct sqlite_session *session,
                              const struct store_event_lookup *lookup, uint64_t *log_id) {
    uint64_t entity_ref = lookup->entity ? lookup->entity->ref : lookup->entity_ref;
    sqlite3_stmt *statement = NULL;
    enum status status;
    switch (lookup->by) {
    case STORE_EVENT_BY_LOG_ID:
        *log_id = lookup->log_id;
        return STATUS_OK;
    case STORE_EVENT_BY_ID:
        status = sqlite_find_client_id(session, &lookup->event_id, log_id);
        return status == STATUS_NOT_FOUND &&
                       id_mark_may_be_minted(&session->tail.id_mark, &lookup->event_id)
                   ? sqlite_find_server_id(session, &lookup->event_id, log_id)
                   : status;
    case STORE_EVENT_BY_KEY:
        return entity_ref > 0 ? find_key(session, entity_ref, lookup->key, log_id)
                              : STATUS_NOT_FOUND;
    case STORE_EVENT_BY_SCOPED_KEY:
        return find_key(session, 0, lookup->key, log_id);
    case STORE_EVENT_FIRST:
        if (entity_ref == 0)
            return STATUS_NOT_FOUND;
        status = sqlite_statement(session, STATEMENT_FIRST_EVENT, &statement);
        if (status != STATUS_OK)
            return status;
        sqlite_bind_bound(statement, 1, entity_ref);
        return find_number(session, statement, log_id);
    }
    return STATUS_NOT_FOUND;
}

static enum status look_up_event(struct sqlite_session *session,
                                 struct store_event_lookup *lookup) {
    uint64_t log_id = 0;
    struct store_query query = {.id = STORE_EVENT_BY_NUMBER};
    enum status status = find_event(session, lookup, &log_id);
    if (status != STATUS_OK)
        return status;
    query.scope = log_id;
    status = sqlite_load(&session->base, &query, lookup->arena, &lookup->event);
    query = (struct store_query){.id = STORE_ENTITY_BY_REF, .scope = lookup->event.entity_ref};
    if (status == STATUS_OK && lookup->holder)
        status = sqlite_load(&session->base, &query, lookup->arena, lookup->holder);
    /* An index names the event, so that its absence is damage. */
    return status == STATUS_NOT_FOUND && lookup->by != STORE_EVENT_BY_LOG_ID
               ? sqlite_damaged(session, "event", log_id)
               : status;
}

static enum status is_stream_taken(struct sqlite_session *session, struct slice stream_id,
                                   bool *is_taken) {
    sqlite3_stmt *statement = NULL;
    enum status status = sqlite_statement(session, STATEMENT_STREAM_TAKEN, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(statement, 1, stream_id);
    status = sqlite_next(session, statement);
    *is_taken = status == STATUS_OK;
    sqlite3_reset(statement);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status look_up_entity(struct sqlite_session *session,
                                  const struct store_prefetch *prefetch,
                                  struct store_entity_lookup *lookup) {
    sqlite3_stmt *statement = NULL;
    struct store_entity entity;
    enum status status = sqlite_statement(session, STATEMENT_ENTITY_BY_ID, &statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(statement, 1, lookup->kind);
    sqlite_bind_text(statement, 2, lookup->id);
    status = sqlite_next(session, statement);
    if (status == STATUS_OK && !sqlite_read_row(statement, 0, &store_entity_layout, &entity))
        status = sqlite_damaged(session, "entity", entity.ref);
    if (status == STATUS_OK) {
        lookup->ref = entity.ref;
        status = prefetch->on_entity(prefetch->user, lookup, &entity);
    }
    sqlite3_reset(statement);
    if (status != STATUS_NOT_FOUND || !lookup->stream_id.data)
        return status;
    status = is_stream_taken(session, lookup->stream_id, &lookup->is_stream_taken);
    /* A damaged table of topics is no reason to refuse the event. The commit repairs it. */
    return status == STATUS_OK || status == STATUS_INTERNAL_ERROR ? STATUS_NOT_FOUND : status;
}

enum status sqlite_prefetch(struct store_session *base, struct store_prefetch *prefetch) {
    struct sqlite_session *session = sqlite_session_of(base);
    enum status status = session->tail.known ? STATUS_OK : sqlite_load_tail(session);
    if (status == STATUS_OK)
        status = sqlite_read_begin(base);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; status == STATUS_OK && i < prefetch->entity_count; i++) {
        struct store_entity_lookup *lookup = &prefetch->entities[i];
        lookup->ref = 0;
        lookup->is_stream_taken = false;
        lookup->status = look_up_entity(session, prefetch, lookup);
        if (lookup->status == STATUS_STORE_UNAVAILABLE)
            status = STATUS_STORE_UNAVAILABLE;
    }
    for (size_t i = 0; status == STATUS_OK && i < prefetch->event_count; i++) {
        struct store_event_lookup *lookup = &prefetch->events[i];
        lookup->status = look_up_event(session, lookup);
        if (lookup->status == STATUS_STORE_UNAVAILABLE)
            status = STATUS_STORE_UNAVAILABLE;
    }
    sqlite_read_end(base);
    return status;
}
