/* The queries of store_engine.h. A load reads one row into the caller's arena.
 *
 * A walk fetches a page of rows, copies it, and then calls the callback for each row. So a callback
 * may use the session, and sees rows that no later step of a statement can change. Between pages
 * the statement stays active: all pages show the store as it was when the walk began. */
#include <assert.h>
#include <stdio.h>

#include "base/limits.h"
#include "store/sqlite/sqlite.h"

/* The first pages are small, since many callbacks stop early. */
#define PAGE_ROWS_FIRST 4

/* The statement of a query, the first of several where each document kind has one, and its
 * parameters by the letters of struct store_query. */
static const struct {
    enum statement_id statement;
    const char *parameters;
} queries[STORE_QUERY_COUNT] = {
    [STORE_ENTITY_BY_ID] = {STATEMENT_ENTITY_BY_ID, "sn"},
    [STORE_ENTITY_BY_REF] = {STATEMENT_ENTITY_BY_REF, "s"},
    [STORE_EVENT_BY_NUMBER] = {STATEMENT_EVENT, "s"},
    [STORE_TOPIC_BY_NAME] = {STATEMENT_TOPIC_BY_NAME, "n"},
    [STORE_TOPIC_BY_STREAM] = {STATEMENT_TOPIC_BY_STREAM, "n"},
    [STORE_DOCUMENT] = {STATEMENT_DOCUMENT, "s"},
    [STORE_CHECKPOINT] = {STATEMENT_CHECKPOINT, "sp"},
    [STORE_WALK_ENTITY_EVENTS] = {STATEMENT_WALK_ENTITY_EVENTS, "sal"},
    [STORE_WALK_LOG] = {STATEMENT_WALK_LOG, "al"},
    [STORE_WALK_ENTITIES] = {STATEMENT_WALK_ENTITIES, "sal"},
    [STORE_LIST_ENTITIES] = {STATEMENT_LIST_ENTITIES, "stl"},
    [STORE_WALK_TOPICS] = {STATEMENT_WALK_TOPICS, "al"},
    [STORE_LIST_TOPICS] = {STATEMENT_LIST_TOPICS, "ntl"},
    [STORE_WALK_DOCUMENTS] = {STATEMENT_WALK_DOCUMENTS, "sal"},
    [STORE_WALK_JOURNAL] = {STATEMENT_WALK_JOURNAL, "sal"},
    [STORE_WALK_OWNERS] = {STATEMENT_WALK_OWNERS, "sal"},
    [STORE_WALK_DRIFTS] = {STATEMENT_WALK_DRIFTS, "l"},
    [STORE_WALK_REVOCATIONS] = {STATEMENT_WALK_REVOCATIONS, "s"},
    [STORE_WALK_USAGES] = {STATEMENT_WALK_USAGES, "tl"},
    [STORE_WALK_QUOTAS] = {STATEMENT_WALK_QUOTAS, "a"},
    [STORE_WALK_OPERATOR_KEYS] = {STATEMENT_WALK_OPERATOR_KEYS, ""},
};

static enum status begin(struct sqlite_session *session, const struct store_query *query,
                         sqlite3_stmt **statement) {
    bool is_of_documents = query->id == STORE_DOCUMENT || query->id == STORE_WALK_DOCUMENTS;
    enum statement_id id = queries[query->id].statement + (is_of_documents ? query->document : 0);
    const char *parameters = queries[query->id].parameters;
    assert(parameters);
    enum status status = sqlite_statement(session, id, statement);
    for (int i = 0; status == STATUS_OK && parameters[i]; i++) {
        if (parameters[i] == 's')
            sqlite_bind_bound(*statement, i + 1, query->scope);
        else if (parameters[i] == 'a')
            sqlite_bind_bound(*statement, i + 1, query->after);
        else if (parameters[i] == 'l')
            sqlite_bind_bound(*statement, i + 1, query->limit);
        else if (parameters[i] == 'n')
            sqlite_bind_text(*statement, i + 1, query->name);
        else if (parameters[i] == 't')
            sqlite_bind_text(*statement, i + 1,
                             query->after_name.data ? query->after_name : SLICE(""));
        else
            sqlite_bind_text(*statement, i + 1, slice_of(document_kind_name(query->document)));
    }
    return status;
}

/* Copies the texts of a row that was read, unless it is damaged. */
static enum status keep(struct sqlite_session *session, struct arena *arena, bool is_sound,
                        const struct store_layout *layout, void *row) {
    if (!is_sound)
        return sqlite_damaged(session, layout->row_name, store_row_number(layout, row));
    if (store_keep(arena, layout, row))
        return STATUS_OK;
    snprintf(session->error, sizeof(session->error),
             "a row is larger than the memory reserved for it");
    return STATUS_OUT_OF_MEMORY;
}

enum status sqlite_load(struct store_session *base, const struct store_query *query,
                        struct arena *arena, void *row) {
    struct sqlite_session *session = sqlite_session_of(base);
    const struct store_layout *layout = store_query_layout(query);
    sqlite3_stmt *statement = NULL;
    enum status status = begin(session, query, &statement);
    if (status != STATUS_OK)
        return status;
    status = sqlite_next(session, statement);
    if (status == STATUS_OK)
        status = keep(session, arena, sqlite_read_row(statement, 0, layout, row), layout, row);
    sqlite3_reset(statement);
    return status;
}

/* ---- walks ---- */

struct walk {
    struct sqlite_session *session;
    const struct store_query *query;
    sqlite3_stmt *statement;
    struct arena page;
    struct store_event name; /* of the entity whose events are walked */
    uint64_t last_seq;       /* of them */
    uint64_t covered_seq;    /* up to here events must follow */
    void *user;
    store_row_cb *callback;
};

/* Reads the statement's current row and copies its texts into the page. */
static enum status read_row(struct walk *walk, union store_row *row) {
    const struct store_layout *layout = store_query_layout(walk->query);
    struct store_event *event = &row->event;
    if (walk->query->id == STORE_WALK_ENTITY_EVENTS) {
        *event = walk->name;
        /* An entity's sequence has no gap: a gap in the rows is damage. Behind the event's columns
         * stands the last seq of its position. */
        if (!sqlite_read_columns(walk->statement, 0, layout->columns, layout->column_count,
                                 event) ||
            !event->entity_id.data || event->seq != walk->last_seq + 1)
            return sqlite_damaged(walk->session, "the entity's event", walk->last_seq + 1);
        if (!entity_row(event->entity_kind)->has_event_owner)
            event->owner = walk->name.owner;
        walk->last_seq = event->seq;
        walk->covered_seq = sqlite_number(walk->statement, (int)layout->column_count);
        return keep(walk->session, &walk->page, true, layout, event);
    }
    bool is_sound = sqlite_read_row(walk->statement, 0, layout, row);
    if (walk->query->id == STORE_WALK_DOCUMENTS) {
        row->document.kind = walk->query->document;
        if (!is_sound)
            row->document.key = row->document.payload = (struct slice){0};
        is_sound = true;
    }
    enum status status = keep(walk->session, &walk->page, is_sound, layout, row);
    if (status != STATUS_OK || walk->query->id != STORE_WALK_JOURNAL)
        return status;
    int first = (int)store_layout_selected(layout);
    layout = &store_event_layout;
    event = &row->journal.event;
    is_sound = sqlite_read_row(walk->statement, first, layout, event);
    event->log_id = row->journal.row.log_id;
    return keep(walk->session, &walk->page, is_sound, layout, event);
}

/* Without copies, because a long walk over owners would spend most of its time on them. */
static enum status walk_directly(struct walk *walk) {
    const struct store_layout *layout = store_query_layout(walk->query);
    union store_row row;
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        status = sqlite_next(walk->session, walk->statement);
        if (status == STATUS_NOT_FOUND)
            return STATUS_OK;
        if (status == STATUS_OK)
            status = sqlite_read_row(walk->statement, 0, layout, &row)
                         ? walk->callback(walk->user, &row)
                         : sqlite_damaged(walk->session, layout->row_name,
                                          store_row_number(layout, &row));
    }
    return status;
}

static enum status walk_pages(struct walk *walk) {
    size_t row_max = PAGE_ROWS_FIRST;
    enum status fetched = STATUS_OK;
    enum status status = STATUS_OK;
    arena_init(&walk->page, SQLITE_WALK_ARENA_BYTES_MAX);
    while (status == STATUS_OK && fetched == STATUS_OK) {
        size_t count = 0;
        arena_reset(&walk->page);
        union store_row *rows = arena_alloc(&walk->page, row_max * sizeof(*rows));
        fetched = rows ? STATUS_OK : STATUS_OUT_OF_MEMORY;
        while (fetched == STATUS_OK && count < row_max &&
               walk->page.bytes_held < SQLITE_WALK_PAGE_BYTES) {
            fetched = sqlite_next(walk->session, walk->statement);
            if (fetched == STATUS_OK)
                fetched = read_row(walk, &rows[count]);
            if (fetched == STATUS_OK)
                count++;
        }
        /* Rows before one that is damaged are good. */
        for (size_t i = 0; status == STATUS_OK && i < count; i++)
            status = walk->callback(walk->user, &rows[i]);
        row_max = row_max < SQLITE_WALK_PAGE_ROWS_MAX ? row_max * 4 : SQLITE_WALK_PAGE_ROWS_MAX;
    }
    arena_release(&walk->page);
    if (status != STATUS_OK)
        return status;
    return fetched == STATUS_NOT_FOUND ? STATUS_OK : fetched;
}

/* The name is the same for all rows: a join with each row would be a fifth of the walk's cost. */
enum status sqlite_entity_name(struct sqlite_session *session, uint64_t entity_ref,
                               sqlite3_stmt **statement, struct store_event *name) {
    const struct store_layout *layout = &store_event_layout;
    *name = (struct store_event){.entity_ref = entity_ref};
    enum status status = sqlite_statement(session, STATEMENT_ENTITY_NAME, statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(*statement, 1, entity_ref);
    status = sqlite_next(session, *statement);
    if (status == STATUS_OK &&
        !sqlite_read_columns(*statement, 0, layout->columns + layout->column_count,
                             layout->joined_count, name))
        status = sqlite_damaged(session, "entity", entity_ref);
    /* Events of an entity that does not exist are damage. Without events it just does not exist. */
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status sqlite_check_covered(struct sqlite_session *session, uint64_t last_seq,
                                 uint64_t covered_seq) {
    return last_seq >= covered_seq ? STATUS_OK
                                   : sqlite_damaged(session, "the entity's event", last_seq + 1);
}

enum status sqlite_walk(struct store_session *base, const struct store_query *query, void *user,
                        store_row_cb *callback) {
    struct walk walk = {.session = sqlite_session_of(base),
                        .query = query,
                        .last_seq = query->after,
                        .covered_seq = query->after,
                        .user = user,
                        .callback = callback};
    bool is_of_entity = query->id == STORE_WALK_ENTITY_EVENTS;
    sqlite3_stmt *name = NULL;
    if (query->id == STORE_WALK_ENTITY_FRAMES)
        return sqlite_walk_frames(walk.session, query, user, callback);
    enum status status = begin(walk.session, query, &walk.statement);
    if (status == STATUS_OK && is_of_entity)
        status = sqlite_entity_name(walk.session, query->scope, &name, &walk.name);
    if (status == STATUS_OK)
        status = query->id == STORE_WALK_OWNERS ? walk_directly(&walk) : walk_pages(&walk);
    sqlite3_reset(walk.statement);
    if (status == STATUS_OK && is_of_entity && walk.last_seq - query->after < query->limit)
        status = sqlite_check_covered(walk.session, walk.last_seq, walk.covered_seq);
    sqlite3_reset(name);
    return status;
}

/* ---- a snapshot over several reads ----
 *
 * In the write-ahead log a reader sees what its first statement saw, so one that reads a single row
 * fixes the moment. */

enum status sqlite_read_begin(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *rollback = NULL, *first = NULL;
    /* Made now, so that the end needs no memory. */
    enum status status = sqlite_statement(session, STATEMENT_ROLLBACK, &rollback);
    if (status == STATUS_OK)
        status = sqlite_execute(session, STATEMENT_READ_BEGIN);
    if (status != STATUS_OK)
        return status;
    status = sqlite_statement(session, STATEMENT_READ_TOUCH, &first);
    if (status == STATUS_OK) {
        status = sqlite_next(session, first);
        sqlite3_reset(first);
    }
    /* Every store has an epoch there. */
    if (status == STATUS_NOT_FOUND)
        status = sqlite_damaged(session, "table meta, row", 1);
    if (status != STATUS_OK)
        sqlite_read_end(base);
    return status;
}

void sqlite_read_end(struct store_session *base) {
    struct sqlite_session *session = sqlite_session_of(base);
    /* Some faults end the transaction by themselves. */
    if (sqlite3_get_autocommit(session->database))
        return;
    /* Nothing was written: there is nothing that could fail to be undone. */
    enum status status = sqlite_execute(session, STATEMENT_ROLLBACK);
    assert(status == STATUS_OK);
    (void)status;
}
