#include "store/sqlite/sqlite_heal.h"

#include "base/limits.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

struct new_topic {
    sqlite3_int64 ref; /* 0: the next free one */
    struct slice name;
    struct slice stream_id;
    sqlite3_int64 entity_ref; /* 0: journal rows */
    sqlite3_int64 journal_epoch;
};

/* The ref is one that neither a topic nor a journal row has. A topic that is there already stays.
 */
static int add(struct heal *heal, struct new_topic *topic) {
    sqlite3_stmt *statement = NULL;
    int code = SQLITE_OK;
    if (topic->entity_ref == 0)
        code = sqlite_take_journal_epoch(heal, &topic->journal_epoch);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(
            heal->database,
            "INSERT OR IGNORE INTO topics (ref, topic, stream_id, entity_ref, oldest_seq, "
            "head_seq, journal_epoch) SELECT coalesce(nullif(?1, 0), max(coalesce((SELECT max(ref) "
            "FROM topics), 0), coalesce((SELECT max(topic_ref) FROM journal), 0)) + 1), ?2, ?3, "
            "nullif(?4, 0), iif(?4 = 0, coalesce((SELECT min(seq) FROM journal WHERE topic_ref = "
            "?1), 1), 1), iif(?4 = 0, coalesce((SELECT max(seq) FROM journal WHERE topic_ref = "
            "?1), 0), NULL), ?5",
            -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_int64(statement, 1, topic->ref);
    sqlite_bind_text(statement, 2, topic->name);
    sqlite_bind_text(statement, 3, topic->stream_id);
    sqlite3_bind_int64(statement, 4, topic->entity_ref);
    sqlite3_bind_int64(statement, 5, topic->journal_epoch);
    code = sqlite3_step(statement);
    sqlite3_finalize(statement);
    if (code != SQLITE_DONE)
        return code;
    if (sqlite3_changes(heal->database) == 0)
        return SQLITE_OK;
    /* The drift of the table stands for all topics of entities. */
    if (topic->entity_ref != 0 && heal->are_topics_made)
        return SQLITE_OK;
    const struct heal_note note = {.reason = REASON_TOPIC_REBUILT, .subject = topic->name};
    code = sqlite_heal_note(heal, &note);
    /* Its floor may be above rows that are missing. */
    return code == SQLITE_OK && topic->entity_ref == 0
               ? sqlite_journal_raise_floor(heal, topic->name, 0)
               : code;
}

static bool is_there(const struct heal *heal, struct slice name) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(heal->database, "SELECT 1 FROM topics WHERE topic = ?", -1,
                                  &statement, NULL);
    if (code == SQLITE_OK) {
        sqlite_bind_text(statement, 1, name);
        code = sqlite3_step(statement);
    }
    sqlite3_finalize(statement);
    return code == SQLITE_ROW;
}

/* The topics that every store has from its first migration on. */
static int add_built_in(struct heal *heal) {
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(
        heal->reference, "SELECT ref, topic, stream_id, entity_ref FROM topics", -1, &row, NULL);
    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(row);
    while (code == SQLITE_ROW) {
        struct new_topic topic = {.ref = sqlite3_column_int64(row, 0),
                                  .name = sqlite_text(row, 1),
                                  .stream_id = sqlite_text(row, 2),
                                  .entity_ref = sqlite3_column_int64(row, 3)};
        code = is_there(heal, topic.name) ? SQLITE_OK : add(heal, &topic);
        if (code == SQLITE_OK)
            code = sqlite3_step(row);
    }
    sqlite3_finalize(row);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

static int add_named(struct heal *heal, struct arena *arena, enum status status,
                     struct new_topic *topic) {
    if (status == STATUS_OK)
        status = topic_stream(arena, topic->name, &topic->stream_id);
    return status == STATUS_OK ? add(heal, topic) : SQLITE_NOMEM;
}

/* The topics of one owner's documents have journal rows. Their owner is that of the entity of a
 * row. Rows without such an entity are dropped later, as rows of an unknown topic. */
static int add_journaled(struct heal *heal, sqlite3_stmt *row) {
    struct new_topic topic = {.ref = sqlite3_column_int64(row, 0)};
    struct slice user = sqlite_text(row, 2);
    struct slice guest = sqlite_text(row, 3);
    enum topic_kind kind = TOPIC_NONE;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        const struct document_row *document = document_row((enum document_kind)i);
        if ((int)document->entity == sqlite3_column_int(row, 1))
            kind = user.data ? document->user_topic : document->guest_topic;
    }
    if (kind == TOPIC_NONE || (!user.data && !guest.data))
        return SQLITE_OK;
    struct arena arena;
    arena_init(&arena, SQLITE_HEAL_TEXT_BYTES_MAX);
    enum status status = topic_name_make(&arena, kind, user.data ? user : guest, &topic.name);
    int code = add_named(heal, &arena, status, &topic);
    arena_release(&arena);
    return code;
}

static int add_of_entity(struct heal *heal, sqlite3_stmt *row) {
    struct new_topic topic = {.entity_ref = sqlite3_column_int64(row, 0)};
    int kind = sqlite3_column_int(row, 1);
    struct arena arena;
    if (kind < 0 || kind >= ENTITY_KIND_COUNT)
        return SQLITE_OK;
    arena_init(&arena, SQLITE_HEAL_TEXT_BYTES_MAX);
    enum status status =
        topic_name_of_entity(&arena, (enum entity_kind)kind, sqlite_text(row, 2), &topic.name);
    int code = add_named(heal, &arena, status, &topic);
    arena_release(&arena);
    return code;
}

int sqlite_heal_topics(struct heal *heal) {
    int code = add_built_in(heal);
    if (code == SQLITE_OK)
        code = sqlite_heal_each(
            heal,
            SQLITE_JOURNAL_REFS
            "SELECT r, n.kind, n.owner_user_id, n.owner_guest_scope FROM refs JOIN entities n ON "
            "n.ref = (SELECT entity_ref FROM journal WHERE topic_ref = r ORDER BY seq "
            "DESC LIMIT 1) WHERE r NOT IN (SELECT ref FROM topics)",
            add_journaled);
    if (code == SQLITE_OK)
        code = sqlite_heal_each(heal,
                                "SELECT ref, kind, id FROM entities WHERE ref NOT IN (SELECT "
                                "entity_ref FROM topics WHERE entity_ref IS NOT "
                                "NULL) ORDER BY ref",
                                add_of_entity);
    return code;
}
