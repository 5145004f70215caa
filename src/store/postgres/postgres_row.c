/* From columns to structs. The order of the columns is that of the statements' texts. */
#include <endian.h>

#include "store/postgres/postgres.h"

/* These numbers are in databases: the enums may grow, never change. */
_Static_assert(ENTITY_RUN == 0 && ENTITY_WORKER == 1 && ENTITY_TOPIC == 2 && ENTITY_AUDIT == 3,
               "the kinds of the entities table");

bool postgres_is_null(struct postgres_row row, int column) {
    return PQgetisnull(row.result, row.row, column) != 0;
}

uint64_t postgres_number(struct postgres_row row, int column) {
    uint64_t ordered;
    if (PQgetlength(row.result, row.row, column) != sizeof(ordered))
        return 0;
    memcpy(&ordered, PQgetvalue(row.result, row.row, column), sizeof(ordered));
    return be64toh(ordered);
}

struct slice postgres_text(struct postgres_row row, int column) {
    if (postgres_is_null(row, column))
        return (struct slice){NULL, 0};
    return (struct slice){PQgetvalue(row.result, row.row, column),
                          (size_t)PQgetlength(row.result, row.row, column)};
}

bool postgres_bytes(struct postgres_row row, int column, void *bytes, size_t size) {
    if (postgres_is_null(row, column) || (size_t)PQgetlength(row.result, row.row, column) != size)
        return false;
    memcpy(bytes, PQgetvalue(row.result, row.row, column), size);
    return true;
}

static struct owner row_owner(struct postgres_row row, int first) {
    return (struct owner){.user_id = postgres_text(row, first),
                          .guest_scope = postgres_text(row, first + 1),
                          .org_id = postgres_text(row, first + 2)};
}

static bool row_kind(struct postgres_row row, int column, enum entity_kind *kind) {
    uint64_t number = postgres_number(row, column);
    *kind = (enum entity_kind)number;
    return !postgres_is_null(row, column) && number < ENTITY_KIND_COUNT;
}

bool postgres_row_entity(struct postgres_row row, int first, struct store_entity *entity) {
    *entity = (struct store_entity){
        .ref = postgres_number(row, first),
        .id = postgres_text(row, first + 2),
        .owner = row_owner(row, first + 3),
        .status = postgres_text(row, first + 6),
        .worker_id = postgres_text(row, first + 7),
        .thread_id = postgres_text(row, first + 8),
        .workspace_ref = postgres_text(row, first + 9),
        .codex_home_ref = postgres_text(row, first + 10),
        .adapter = postgres_text(row, first + 11),
        .metadata = postgres_text(row, first + 12),
        .created_at_ms = postgres_number(row, first + 13),
        .started_at_ms = postgres_number(row, first + 14),
        .stopped_at_ms = postgres_number(row, first + 15),
        .last_heartbeat_at_ms = postgres_number(row, first + 16),
        .head_seq = postgres_number(row, first + 17),
    };
    return row_kind(row, first + 1, &entity->kind) && entity->id.data != NULL &&
           entity->head_seq <= STORE_SEQ_MAX &&
           (entity->head_seq == 0 ||
            postgres_bytes(row, first + 18, entity->head_hash, sizeof(entity->head_hash)));
}

uint64_t postgres_row_time(struct postgres_row row, int column, const struct uuid *cursor) {
    return postgres_is_null(row, column) ? uuid7_timestamp_ms(cursor)
                                         : postgres_number(row, column);
}

static bool row_hashes(struct postgres_row row, int first, struct store_event *event) {
    return postgres_bytes(row, first, event->payload_hash, sizeof(event->payload_hash)) &&
           postgres_bytes(row, first + 1, event->prev_chain_hash, sizeof(event->prev_chain_hash)) &&
           postgres_bytes(row, first + 2, event->chain_hash, sizeof(event->chain_hash));
}

bool postgres_row_event(struct postgres_row row, int first, int entity_first,
                        struct store_event *event) {
    *event = (struct store_event){
        .log_id = postgres_number(row, first),
        .entity_ref = postgres_number(row, first + 1),
        .seq = postgres_number(row, first + 2),
        .type = postgres_text(row, first + 5),
        .owner = row_owner(row, first + 6),
        .payload = postgres_text(row, first + 12),
        .chain_version = (unsigned)postgres_number(row, first + 14),
        .entity_id = postgres_text(row, entity_first + 2),
    };
    if (!postgres_bytes(row, first + 3, event->cursor.bytes, sizeof(event->cursor.bytes)) ||
        !row_hashes(row, first + 9, event) || !row_kind(row, entity_first + 1, &event->entity_kind))
        return false;
    if (!entity_row(event->entity_kind)->has_event_owner)
        event->owner = row_owner(row, entity_first + 3);
    event->recorded_at_ms = postgres_row_time(row, first + 13, &event->cursor);
    event->event_id = event->cursor;
    if (!postgres_is_null(row, first + 4) &&
        !postgres_bytes(row, first + 4, event->event_id.bytes, sizeof(event->event_id.bytes)))
        return false;
    return event->type.data && event->payload.data && event->entity_id.data &&
           event->chain_version >= 1 && event->chain_version <= STORE_CHAIN_VERSION;
}

bool postgres_row_topic(struct postgres_row row, struct store_topic *topic) {
    *topic = (struct store_topic){
        .ref = postgres_number(row, 0),
        .name = postgres_text(row, 1),
        .stream_id = postgres_text(row, 2),
        .entity_ref = postgres_number(row, 3),
        .oldest_seq = postgres_number(row, 4),
        .head_seq = postgres_number(row, 5),
        .journal_epoch = postgres_number(row, 6),
        .damaged_seq = postgres_number(row, 7),
    };
    return topic->name.data && topic->stream_id.data;
}

bool postgres_row_document(struct postgres_row row, enum document_kind kind,
                           struct store_document *document) {
    *document = (struct store_document){
        .kind = kind,
        .entity_ref = postgres_number(row, 0),
        .key = postgres_text(row, 1),
        .version = postgres_number(row, 2),
        .payload = postgres_text(row, 4),
    };
    if (PQnfields(row.result) > 5)
        document->owner = row_owner(row, 5);
    return document->version <= STORE_SEQ_MAX &&
           postgres_bytes(row, 3, document->payload_hash, sizeof(document->payload_hash)) &&
           document->key.data && document->payload.data;
}

bool postgres_row_checkpoint(struct postgres_row row, enum document_kind kind,
                             struct store_checkpoint *checkpoint) {
    *checkpoint = (struct store_checkpoint){
        .kind = kind,
        .entity_ref = postgres_number(row, 0),
        .document_id = postgres_text(row, 1),
        .last_runtime_seq = postgres_number(row, 2),
        .projection_version = postgres_text(row, 3),
        .last_projected_at_ms = postgres_number(row, 5),
    };
    return checkpoint->last_runtime_seq <= STORE_SEQ_MAX &&
           postgres_bytes(row, 4, checkpoint->summary_hash, sizeof(checkpoint->summary_hash)) &&
           checkpoint->document_id.data && checkpoint->projection_version.data;
}

/* Behind the columns of its event and of that event's entity. */
#define JOURNAL_FIRST (POSTGRES_EVENT_COLUMNS + 6)

bool postgres_row_journal(struct postgres_row row, struct store_journal_row *journal) {
    *journal = (struct store_journal_row){
        .topic_ref = postgres_number(row, JOURNAL_FIRST),
        .seq = postgres_number(row, JOURNAL_FIRST + 1),
        .log_id = postgres_number(row, JOURNAL_FIRST + 2),
        .entity_ref = postgres_number(row, JOURNAL_FIRST + 3),
        .document_version = postgres_number(row, JOURNAL_FIRST + 4),
        .published_at_ms = postgres_number(row, JOURNAL_FIRST + 5),
        .payload = postgres_text(row, JOURNAL_FIRST + 7),
        .first_seq = postgres_number(row, JOURNAL_FIRST + 8), /* NULL is read as 0 */
    };
    return postgres_bytes(row, JOURNAL_FIRST + 6, journal->payload_hash,
                          sizeof(journal->payload_hash));
}

static bool row_projection(struct postgres_row row, int column, enum document_kind *kind) {
    struct slice name = postgres_text(row, column);
    *kind = name.data ? document_kind_of(name) : DOCUMENT_NONE;
    return *kind != DOCUMENT_NONE;
}

static bool row_reason(struct postgres_row row, int column, enum reason *reason) {
    struct slice code = postgres_text(row, column);
    for (int i = 0; i < REASON_COUNT; i++)
        if (code.data && slice_equal(code, slice_of(reason_code((enum reason)i)))) {
            *reason = (enum reason)i;
            return true;
        }
    return false;
}

bool postgres_row_drift(struct postgres_row row, struct store_drift *drift) {
    *drift = (struct store_drift){
        .entity_ref = postgres_number(row, 1),
        .entity_id = postgres_text(row, 2),
        .expected_seq = postgres_number(row, 4),
        .actual_seq = postgres_number(row, 5),
        .seen_at_ms = postgres_number(row, 6),
        .subject = postgres_text(row, 7),
        .kind = DOCUMENT_NONE,
    };
    return (drift->subject.data || row_projection(row, 0, &drift->kind)) &&
           row_reason(row, 3, &drift->reason);
}

bool postgres_row_revocation(struct postgres_row row, struct store_revocation *revocation) {
    *revocation = (struct store_revocation){
        .kind = (enum revocation_kind)postgres_number(row, 0),
        .id = postgres_text(row, 1),
        .reason = postgres_text(row, 2),
        .revoked_at_ms = postgres_number(row, 3),
        .expires_at_ms = postgres_number(row, 4),
    };
    return revocation->id.data && postgres_number(row, 0) < REVOCATION_KIND_COUNT;
}

/* ---- copies ---- */

bool postgres_keep(struct arena *arena, struct slice *text) {
    if (text->data == NULL)
        return true;
    *text = arena_copy(arena, *text);
    return text->data != NULL;
}

static bool keep_owner(struct arena *arena, struct owner *owner) {
    return postgres_keep(arena, &owner->user_id) && postgres_keep(arena, &owner->guest_scope) &&
           postgres_keep(arena, &owner->org_id);
}

bool postgres_keep_entity(struct arena *arena, struct store_entity *entity) {
    return postgres_keep(arena, &entity->id) && keep_owner(arena, &entity->owner) &&
           postgres_keep(arena, &entity->status) && postgres_keep(arena, &entity->worker_id) &&
           postgres_keep(arena, &entity->thread_id) &&
           postgres_keep(arena, &entity->workspace_ref) &&
           postgres_keep(arena, &entity->codex_home_ref) &&
           postgres_keep(arena, &entity->adapter) && postgres_keep(arena, &entity->metadata);
}

bool postgres_keep_event(struct arena *arena, struct store_event *event) {
    return postgres_keep(arena, &event->entity_id) && postgres_keep(arena, &event->type) &&
           postgres_keep(arena, &event->payload) && keep_owner(arena, &event->owner);
}

enum status postgres_query_text(struct postgres_session *session, struct arena *arena,
                                struct slice *value) {
    PGresult *result = NULL;
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK && PQntuples(result) == 0)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK) {
        *value = postgres_text((struct postgres_row){result, 0}, 0);
        status = postgres_keep(arena, value) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    }
    PQclear(result);
    return status;
}
