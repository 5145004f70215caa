#include "store/sqlite/sqlite.h"

#include <stdio.h>

/* One row: read, copied into the caller's arena, and the statement reset. */
struct load {
    struct sqlite_session *session;
    sqlite3_stmt *statement;
    struct arena *arena;
};

static enum status load_begin(struct load *load, struct store_session *session,
                              enum statement_id id, struct arena *arena) {
    load->session = sqlite_session_of(session);
    load->arena = arena;
    return sqlite_statement(load->session, id, &load->statement);
}

static enum status load_end(struct load *load, enum status status) {
    sqlite3_reset(load->statement);
    if (status == STATUS_OUT_OF_MEMORY)
        snprintf(load->session->error, sizeof(load->session->error),
                 "a row is larger than the memory reserved for it");
    return status;
}

static enum status load_entity(struct load *load, struct store_entity *entity) {
    enum status status = sqlite_next(load->session, load->statement);
    if (status != STATUS_OK)
        return load_end(load, status);
    if (!sqlite_row_entity(load->statement, entity))
        return load_end(load, sqlite_damaged(load->session, "entity", entity->ref));
    bool kept = sqlite_keep_entity(load->arena, entity);
    return load_end(load, kept ? STATUS_OK : STATUS_OUT_OF_MEMORY);
}

enum status sqlite_load_entity(struct store_session *session, enum entity_kind kind,
                               struct slice id, struct arena *arena, struct store_entity *entity) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_ENTITY_BY_ID, arena);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(load.statement, 1, kind);
    sqlite_bind_text(load.statement, 2, id);
    return load_entity(&load, entity);
}

enum status sqlite_load_entity_ref(struct store_session *session, uint64_t ref, struct arena *arena,
                                   struct store_entity *entity) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_ENTITY_BY_REF, arena);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(load.statement, 1, ref);
    return load_entity(&load, entity);
}

enum status sqlite_load_event(struct store_session *session, uint64_t log_id, struct arena *arena,
                              struct store_event *event) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_EVENT, arena);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(load.statement, 1, log_id);
    status = sqlite_next(load.session, load.statement);
    if (status != STATUS_OK)
        return load_end(&load, status);
    if (!sqlite_row_event(load.statement, 0, NULL, event))
        return load_end(&load, sqlite_damaged(load.session, "event", log_id));
    bool kept = sqlite_keep(arena, &event->entity_id) && sqlite_keep_event(arena, event);
    return load_end(&load, kept ? STATUS_OK : STATUS_OUT_OF_MEMORY);
}

static enum status load_topic(struct load *load, struct slice text, struct store_topic *topic) {
    sqlite_bind_text(load->statement, 1, text);
    enum status status = sqlite_next(load->session, load->statement);
    if (status != STATUS_OK)
        return load_end(load, status);
    sqlite_row_topic(load->statement, topic);
    bool kept =
        sqlite_keep(load->arena, &topic->name) && sqlite_keep(load->arena, &topic->stream_id);
    return load_end(load, kept ? STATUS_OK : STATUS_OUT_OF_MEMORY);
}

enum status sqlite_load_topic(struct store_session *session, struct slice name, struct arena *arena,
                              struct store_topic *topic) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_TOPIC_BY_NAME, arena);
    return status == STATUS_OK ? load_topic(&load, name, topic) : status;
}

enum status sqlite_load_stream(struct store_session *session, struct slice stream_id,
                               struct arena *arena, struct store_topic *topic) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_TOPIC_BY_STREAM, arena);
    return status == STATUS_OK ? load_topic(&load, stream_id, topic) : status;
}

enum status sqlite_load_document(struct store_session *session, enum document_kind kind,
                                 uint64_t entity_ref, struct arena *arena,
                                 struct store_document *document) {
    struct load load;
    enum statement_id id = STATEMENT_DOCUMENT + kind;
    enum status status = load_begin(&load, session, id, arena);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(load.statement, 1, entity_ref);
    status = sqlite_next(load.session, load.statement);
    if (status != STATUS_OK)
        return load_end(&load, status);
    if (!sqlite_row_document(load.statement, kind, document))
        return load_end(&load, sqlite_damaged(load.session, "the document of entity", entity_ref));
    bool kept = sqlite_keep(arena, &document->key) && sqlite_keep(arena, &document->payload);
    return load_end(&load, kept ? STATUS_OK : STATUS_OUT_OF_MEMORY);
}

enum status sqlite_load_checkpoint(struct store_session *session, enum document_kind kind,
                                   uint64_t entity_ref, struct arena *arena,
                                   struct store_checkpoint *checkpoint) {
    struct load load;
    enum status status = load_begin(&load, session, STATEMENT_CHECKPOINT, arena);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(load.statement, 1, entity_ref);
    sqlite_bind_text(load.statement, 2, slice_of(document_kind_name(kind)));
    status = sqlite_next(load.session, load.statement);
    if (status != STATUS_OK)
        return load_end(&load, status);
    if (!sqlite_row_checkpoint(load.statement, kind, checkpoint))
        return load_end(&load,
                        sqlite_damaged(load.session, "the checkpoint of entity", entity_ref));
    bool kept = sqlite_keep(arena, &checkpoint->document_id) &&
                sqlite_keep(arena, &checkpoint->projection_version);
    return load_end(&load, kept ? STATUS_OK : STATUS_OUT_OF_MEMORY);
}
