/* The repair of the table of topics: adds the rows that are missing. A topic of an entity follows
 * from the entity. A topic with journal rows gets its counter from them and a new epoch, because
 * frames after the last row may have been delivered. */
#include <inttypes.h>
#include <stdio.h>

#include "store/postgres/postgres_heal.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

#define PAGE_ROWS  1000
#define NUMBER_MAX 24

struct new_topic {
    const char *ref; /* "0": the next free one */
    const char *name;
    const char *stream_id;
    const char *entity_ref; /* "0": journal rows */
};

/* The ref is one that neither a topic nor a journal row has. A topic that is there already stays.
 */
static enum status add(struct postgres_repair *repair, const struct new_topic *topic) {
    bool is_of_entity = strcmp(topic->entity_ref, "0") != 0;
    uint64_t epoch = 0;
    char epoch_text[NUMBER_MAX];
    PGresult *result = NULL;
    enum status status = is_of_entity ? STATUS_OK : postgres_repair_take_epoch(repair, &epoch);
    snprintf(epoch_text, sizeof(epoch_text), "%" PRIu64, epoch);
    const char *const values[] = {topic->ref, topic->name, topic->stream_id, topic->entity_ref,
                                  epoch_text};
    if (status == STATUS_OK)
        status = postgres_repair_ask(
            repair, &result,
            "INSERT INTO topics (ref, topic, stream_id, entity_ref, oldest_seq, head_seq, "
            "journal_epoch) SELECT coalesce(nullif($1::bigint, 0), greatest((SELECT max(ref) FROM "
            "topics), (SELECT max(topic_ref) FROM journal), 0) + 1), $2, $3, nullif($4::bigint, "
            "0), CASE WHEN $4::bigint = 0 THEN coalesce((SELECT min(seq) FROM journal WHERE "
            "topic_ref = $1::bigint), 1) ELSE 1 END, CASE WHEN $4::bigint = 0 THEN "
            "coalesce((SELECT max(seq) FROM journal WHERE topic_ref = $1::bigint), 0) END, "
            "$5::bigint ON CONFLICT DO NOTHING RETURNING ref",
            values, 5);
    bool is_added = status == STATUS_OK && PQntuples(result) > 0;
    PQclear(result);
    /* The drift of the table stands for all topics of entities. */
    if (status != STATUS_OK || !is_added || (is_of_entity && repair->are_topics_made))
        return status;
    const struct postgres_note note = {.reason = REASON_TOPIC_REBUILT,
                                       .subject = slice_of(topic->name)};
    status = postgres_repair_note(repair, &note);
    /* Its floor may be above rows that are missing. */
    return status == STATUS_OK && !is_of_entity
               ? postgres_journal_raise_floor(repair, topic->name, 0)
               : status;
}

/* The text with a NUL behind it. */
static const char *ended(struct arena *arena, struct slice text) {
    char *copy = arena_alloc(arena, text.size + 1);
    if (copy) {
        memcpy(copy, text.data, text.size);
        copy[text.size] = '\0';
    }
    return copy;
}

static enum status add_named(struct postgres_repair *repair, struct arena *arena, struct slice name,
                             struct new_topic *topic) {
    struct slice stream_id;
    enum status status = topic_stream(arena, name, &stream_id);
    if (status != STATUS_OK)
        return status;
    topic->name = ended(arena, name);
    topic->stream_id = ended(arena, stream_id);
    return topic->name && topic->stream_id ? add(repair, topic) : STATUS_OUT_OF_MEMORY;
}

/* The topics of one owner's documents have journal rows. Their owner is that of the entity of a
 * row. Rows without such an entity are dropped later, as rows of an unknown topic. */
static enum status add_journaled(struct postgres_repair *repair, const PGresult *rows, int row) {
    bool is_user = !PQgetisnull(rows, row, 2);
    bool is_guest = !PQgetisnull(rows, row, 3);
    enum topic_kind kind = TOPIC_NONE;
    struct slice name;
    struct arena arena;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        const struct document_row *document = document_row((enum document_kind)i);
        if ((uint64_t)document->entity == postgres_repair_number(rows, row, 1))
            kind = is_user ? document->user_topic : document->guest_topic;
        if (kind != TOPIC_NONE)
            break;
    }
    if (kind == TOPIC_NONE || (!is_user && !is_guest))
        return STATUS_OK;
    struct new_topic topic = {.ref = PQgetvalue(rows, row, 0), .entity_ref = "0"};
    arena_init(&arena, POSTGRES_HEAL_TEXT_BYTES_MAX);
    enum status status =
        topic_name_make(&arena, kind, slice_of(PQgetvalue(rows, row, is_user ? 2 : 3)), &name);
    if (status == STATUS_OK)
        status = add_named(repair, &arena, name, &topic);
    arena_release(&arena);
    return status;
}

static enum status add_of_entity(struct postgres_repair *repair, const PGresult *rows, int row) {
    uint64_t kind = postgres_repair_number(rows, row, 1);
    struct new_topic topic = {.ref = "0", .entity_ref = PQgetvalue(rows, row, 0)};
    struct slice name;
    struct arena arena;
    if (kind >= ENTITY_KIND_COUNT)
        return STATUS_OK;
    arena_init(&arena, POSTGRES_HEAL_TEXT_BYTES_MAX);
    enum status status = topic_name_of_entity(&arena, (enum entity_kind)kind,
                                              slice_of(PQgetvalue(rows, row, 2)), &name);
    if (status == STATUS_OK)
        status = add_named(repair, &arena, name, &topic);
    arena_release(&arena);
    return status;
}

static enum status add_all_of_entities(struct postgres_repair *repair) {
    uint64_t after = 0;
    int count = PAGE_ROWS;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && count == PAGE_ROWS) {
        PGresult *rows = NULL;
        status = postgres_repair_run(repair, &rows,
                                     "SELECT n.ref, n.kind, n.id FROM entities n WHERE n.ref > "
                                     "%" PRIu64 " AND NOT EXISTS (SELECT 1 FROM topics t WHERE "
                                     "t.entity_ref = n.ref) ORDER BY n.ref LIMIT %d",
                                     after, PAGE_ROWS);
        count = status == STATUS_OK ? PQntuples(rows) : 0;
        for (int i = 0; status == STATUS_OK && i < count; i++)
            status = add_of_entity(repair, rows, i);
        if (count > 0)
            after = postgres_repair_number(rows, count - 1, 0);
        PQclear(rows);
    }
    return status;
}

enum status postgres_heal_topics(struct postgres_repair *repair) {
    PGresult *rows = NULL;
    /* The topics that every store has from its first migration on. */
    enum status status = postgres_repair_run(
        repair, &rows,
        "SELECT b.ref, b.topic, b.stream_id, coalesce(b.entity_ref, 0) FROM built_in_topics b "
        "WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.topic = b.topic) ORDER BY b.ref");
    for (int i = 0; status == STATUS_OK && i < PQntuples(rows); i++) {
        struct new_topic topic = {PQgetvalue(rows, i, 0), PQgetvalue(rows, i, 1),
                                  PQgetvalue(rows, i, 2), PQgetvalue(rows, i, 3)};
        status = add(repair, &topic);
    }
    PQclear(rows);
    rows = NULL;
    if (status == STATUS_OK)
        status = postgres_repair_run(
            repair, &rows,
            "WITH RECURSIVE refs(r) AS (SELECT min(topic_ref) FROM journal UNION ALL SELECT "
            "(SELECT min(topic_ref) FROM journal WHERE topic_ref > r) FROM refs WHERE r IS NOT "
            "NULL) SELECT r, n.kind, n.owner_user_id, n.owner_guest_scope FROM refs JOIN entities "
            "n ON n.ref = (SELECT entity_ref FROM journal WHERE topic_ref = r ORDER BY seq DESC "
            "LIMIT 1) WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.ref = r)");
    for (int i = 0; status == STATUS_OK && i < PQntuples(rows); i++)
        status = add_journaled(repair, rows, i);
    PQclear(rows);
    return status == STATUS_OK ? add_all_of_entities(repair) : status;
}
