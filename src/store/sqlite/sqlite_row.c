/* From columns to structs. The order of the columns is that of the statements' texts. */
#include "store/sqlite/sqlite.h"

/* These numbers are in databases: the enums may grow, never change. */
_Static_assert(ENTITY_RUN == 0 && ENTITY_WORKER == 1 && ENTITY_TOPIC == 2 && ENTITY_AUDIT == 3,
               "the kinds of the entities table");

static struct owner row_owner(sqlite3_stmt *statement, int first) {
    return (struct owner){.user_id = sqlite_text(statement, first),
                          .guest_scope = sqlite_text(statement, first + 1),
                          .org_id = sqlite_text(statement, first + 2)};
}

static bool row_kind(sqlite3_stmt *statement, int column, enum entity_kind *kind) {
    if (sqlite3_column_type(statement, column) != SQLITE_INTEGER)
        return false;
    uint64_t number = sqlite_number(statement, column);
    *kind = (enum entity_kind)number;
    return number < ENTITY_KIND_COUNT;
}

bool sqlite_row_entity(sqlite3_stmt *statement, struct store_entity *entity) {
    *entity = (struct store_entity){
        .ref = sqlite_number(statement, 0),
        .id = sqlite_text(statement, 2),
        .owner = row_owner(statement, 3),
        .status = sqlite_text(statement, 6),
        .worker_id = sqlite_text(statement, 7),
        .thread_id = sqlite_text(statement, 8),
        .workspace_ref = sqlite_text(statement, 9),
        .codex_home_ref = sqlite_text(statement, 10),
        .adapter = sqlite_text(statement, 11),
        .metadata = sqlite_text(statement, 12),
        .created_at_ms = sqlite_number(statement, 13),
        .started_at_ms = sqlite_number(statement, 14),
        .stopped_at_ms = sqlite_number(statement, 15),
        .last_heartbeat_at_ms = sqlite_number(statement, 16),
        .head_seq = sqlite_number(statement, 17),
    };
    return row_kind(statement, 1, &entity->kind) && entity->id.data != NULL &&
           entity->head_seq <= STORE_SEQ_MAX &&
           (entity->head_seq == 0 ||
            sqlite_bytes(statement, 18, entity->head_hash, sizeof(entity->head_hash)));
}

bool sqlite_row_entity_name(sqlite3_stmt *statement, int first, struct sqlite_entity_name *name) {
    name->id = sqlite_text(statement, first + 1);
    name->owner = row_owner(statement, first + 2);
    return row_kind(statement, first, &name->kind) && name->id.data != NULL;
}

uint64_t sqlite_row_time(sqlite3_stmt *statement, int column, const struct uuid *cursor) {
    return sqlite3_column_type(statement, column) == SQLITE_NULL ? uuid7_timestamp_ms(cursor)
                                                                 : sqlite_number(statement, column);
}

bool sqlite_row_event(sqlite3_stmt *statement, int first, const struct sqlite_entity_name *name,
                      struct store_event *event) {
    struct sqlite_entity_name joined;
    *event = (struct store_event){
        .log_id = sqlite_number(statement, first),
        .entity_ref = sqlite_number(statement, first + 1),
        .seq = sqlite_number(statement, first + 2),
        .type = sqlite_text(statement, first + 5),
        .owner = row_owner(statement, first + 6),
        .payload = sqlite_text(statement, first + 12),
        .chain_version = (unsigned)sqlite_number(statement, first + 14),
    };
    bool intact =
        sqlite_bytes(statement, first + 3, event->cursor.bytes, sizeof(event->cursor.bytes)) &&
        sqlite_bytes(statement, first + 9, event->payload_hash, sizeof(event->payload_hash)) &&
        sqlite_bytes(statement, first + 10, event->prev_chain_hash,
                     sizeof(event->prev_chain_hash)) &&
        sqlite_bytes(statement, first + 11, event->chain_hash, sizeof(event->chain_hash)) &&
        event->type.data != NULL && event->payload.data != NULL && event->chain_version >= 1 &&
        event->chain_version <= STORE_CHAIN_VERSION;
    if (!name && intact) {
        intact = sqlite_row_entity_name(statement, first + SQLITE_STORE_EVENT_COLUMNS, &joined);
        name = &joined;
    }
    if (intact) {
        event->entity_kind = name->kind;
        event->entity_id = name->id;
        if (!entity_row(name->kind)->has_event_owner)
            event->owner = name->owner;
        event->recorded_at_ms = sqlite_row_time(statement, first + 13, &event->cursor);
    }
    event->event_id = event->cursor;
    if (intact && sqlite3_column_type(statement, first + 4) != SQLITE_NULL)
        intact = sqlite_bytes(statement, first + 4, event->event_id.bytes,
                              sizeof(event->event_id.bytes));
    return intact;
}

void sqlite_row_topic(sqlite3_stmt *statement, struct store_topic *topic) {
    *topic = (struct store_topic){
        .ref = sqlite_number(statement, 0),
        .name = sqlite_text(statement, 1),
        .stream_id = sqlite_text(statement, 2),
        .entity_ref = sqlite_number(statement, 3),
        .oldest_seq = sqlite_number(statement, 4),
        .head_seq = sqlite_number(statement, 5),
        .journal_epoch = sqlite_number(statement, 6),
        .damaged_seq = sqlite_number(statement, 7),
    };
}

bool sqlite_row_document(sqlite3_stmt *statement, enum document_kind kind,
                         struct store_document *document) {
    *document = (struct store_document){
        .kind = kind,
        .entity_ref = sqlite_number(statement, 0),
        .key = sqlite_text(statement, 1),
        .version = sqlite_number(statement, 2),
        .payload = sqlite_text(statement, 4),
    };
    return document->version <= STORE_SEQ_MAX &&
           sqlite_bytes(statement, 3, document->payload_hash, sizeof(document->payload_hash)) &&
           document->key.data != NULL && document->payload.data != NULL;
}

bool sqlite_row_checkpoint(sqlite3_stmt *statement, enum document_kind kind,
                           struct store_checkpoint *checkpoint) {
    *checkpoint = (struct store_checkpoint){
        .kind = kind,
        .entity_ref = sqlite_number(statement, 0),
        .document_id = sqlite_text(statement, 1),
        .last_runtime_seq = sqlite_number(statement, 2),
        .projection_version = sqlite_text(statement, 3),
        .last_projected_at_ms = sqlite_number(statement, 5),
    };
    return checkpoint->last_runtime_seq <= STORE_SEQ_MAX &&
           sqlite_bytes(statement, 4, checkpoint->summary_hash, sizeof(checkpoint->summary_hash)) &&
           checkpoint->document_id.data != NULL && checkpoint->projection_version.data != NULL;
}

bool sqlite_row_journal(sqlite3_stmt *statement, struct store_journal_row *row) {
    *row = (struct store_journal_row){
        .topic_ref = sqlite_number(statement, 0),
        .seq = sqlite_number(statement, 1),
        .log_id = sqlite_number(statement, 2),
        .entity_ref = sqlite_number(statement, 3),
        .document_version = sqlite_number(statement, 4),
        .published_at_ms = sqlite_number(statement, 5),
        .payload = sqlite_text(statement, 7),
        .first_seq = sqlite_number(statement, 8), /* NULL is read as 0 */
    };
    return sqlite_bytes(statement, 6, row->payload_hash, sizeof(row->payload_hash));
}

static bool row_projection(sqlite3_stmt *statement, int column, enum document_kind *kind) {
    struct slice name = sqlite_text(statement, column);
    *kind = name.data ? document_kind_of(name) : DOCUMENT_NONE;
    return *kind != DOCUMENT_NONE;
}

static bool row_reason(sqlite3_stmt *statement, int column, enum reason *reason) {
    struct slice code = sqlite_text(statement, column);
    for (int i = 0; i < REASON_COUNT; i++)
        if (code.data && slice_equal(code, slice_of(reason_code((enum reason)i)))) {
            *reason = (enum reason)i;
            return true;
        }
    return false;
}

bool sqlite_row_drift(sqlite3_stmt *statement, struct store_drift *drift) {
    *drift = (struct store_drift){
        .entity_ref = sqlite_number(statement, 1),
        .entity_id = sqlite_text(statement, 2),
        .expected_seq = sqlite_number(statement, 4),
        .actual_seq = sqlite_number(statement, 5),
        .seen_at_ms = sqlite_number(statement, 6),
        .subject = sqlite_text(statement, 7),
        .kind = DOCUMENT_NONE,
    };
    return (drift->subject.data || row_projection(statement, 0, &drift->kind)) &&
           row_reason(statement, 3, &drift->reason);
}

/* ---- copies ---- */

bool sqlite_keep(struct arena *arena, struct slice *text) {
    if (text->data == NULL)
        return true;
    *text = arena_copy(arena, *text);
    return text->data != NULL;
}

bool sqlite_keep_owner(struct arena *arena, struct owner *owner) {
    return sqlite_keep(arena, &owner->user_id) && sqlite_keep(arena, &owner->guest_scope) &&
           sqlite_keep(arena, &owner->org_id);
}

bool sqlite_keep_entity(struct arena *arena, struct store_entity *entity) {
    return sqlite_keep(arena, &entity->id) && sqlite_keep_owner(arena, &entity->owner) &&
           sqlite_keep(arena, &entity->status) && sqlite_keep(arena, &entity->worker_id) &&
           sqlite_keep(arena, &entity->thread_id) && sqlite_keep(arena, &entity->workspace_ref) &&
           sqlite_keep(arena, &entity->codex_home_ref) && sqlite_keep(arena, &entity->adapter) &&
           sqlite_keep(arena, &entity->metadata);
}

bool sqlite_keep_event(struct arena *arena, struct store_event *event) {
    return sqlite_keep(arena, &event->type) && sqlite_keep(arena, &event->payload) &&
           sqlite_keep_owner(arena, &event->owner);
}
