/* The queries of store_engine.h. A load asks for one row and copies it into the caller's arena.
 *
 * A walk fetches a page of rows and then calls the callback for each of them. The rows stay in the
 * result of the page, so a callback may use the session. The next page begins behind the last row.
 * A page has a maximum of rows. Statements with payloads or metadata also end it when these
 * have POSTGRES_WALK_PAGE_BYTES together.
 * A walk of more than one page has a transaction around it, in which all pages show the store as it
 * was at the first one. */
#include <assert.h>
#include <stdio.h>

#include "store/postgres/postgres.h"

/* The first pages of a long walk are small, since many callbacks stop early. A short walk is one
 * page, and needs no transaction. The walks of a side session read all rows. */
#define PAGE_ROWS_FIRST 4
#define PAGE_ROWS_ALONE 64

/* The statement of a query, the first of several where each document kind has one, and its
 * parameters by the letters of struct store_query. Without a limit one page has all rows. */
static const struct {
    enum statement_id statement;
    const char *parameters;
    /* Columns of the result after which the next page begins. */
    int number_column;
    int name_column;
} queries[STORE_QUERY_COUNT] = {
    [STORE_ENTITY_BY_ID] = {STATEMENT_ENTITY_BY_ID, "sn", 0, 0},
    [STORE_ENTITY_BY_REF] = {STATEMENT_ENTITY_BY_REF, "s", 0, 0},
    [STORE_EVENT_BY_NUMBER] = {STATEMENT_EVENT, "s", 0, 0},
    [STORE_TOPIC_BY_NAME] = {STATEMENT_TOPIC_BY_NAME, "n", 0, 0},
    [STORE_TOPIC_BY_STREAM] = {STATEMENT_TOPIC_BY_STREAM, "n", 0, 0},
    [STORE_DOCUMENT] = {STATEMENT_DOCUMENT, "s", 0, 0},
    [STORE_CHECKPOINT] = {STATEMENT_CHECKPOINT, "sp", 0, 0},
    [STORE_WALK_ENTITY_EVENTS] = {STATEMENT_WALK_ENTITY_EVENTS, "sal", 2, 0},
    [STORE_WALK_ENTITY_FRAMES] = {STATEMENT_WALK_ENTITY_EVENTS, "sal", 2, 0},
    [STORE_WALK_LOG] = {STATEMENT_WALK_LOG, "al", 0, 0},
    [STORE_WALK_ENTITIES] = {STATEMENT_WALK_ENTITIES, "sal", 0, 0},
    [STORE_LIST_ENTITIES] = {STATEMENT_LIST_ENTITIES, "stl", 0, 2},
    [STORE_WALK_TOPICS] = {STATEMENT_WALK_TOPICS, "al", 0, 0},
    [STORE_LIST_TOPICS] = {STATEMENT_LIST_TOPICS, "ntl", 0, 1},
    [STORE_WALK_CHANGED_TOPICS] = {STATEMENT_WALK_CHANGED_TOPICS, "sal", 0, 0},
    [STORE_WALK_DOCUMENTS] = {STATEMENT_WALK_DOCUMENTS, "sal", 5, 0},
    [STORE_WALK_JOURNAL] = {STATEMENT_WALK_JOURNAL, "sal", 1, 0},
    [STORE_WALK_OWNERS] = {STATEMENT_WALK_OWNERS, "sal", 0, 0},
    [STORE_WALK_DRIFTS] = {STATEMENT_WALK_DRIFTS, "al", 0, 0},
    [STORE_WALK_REVOCATIONS] = {STATEMENT_WALK_REVOCATIONS, "satl", 5, 1},
    [STORE_WALK_NEW_REVOCATIONS] = {STATEMENT_WALK_NEW_REVOCATIONS, "al", 5, 0},
    [STORE_WALK_USAGES] = {STATEMENT_WALK_USAGES, "tl", 0, 0},
    [STORE_WALK_QUOTAS] = {STATEMENT_WALK_QUOTAS, "a", 0, 0},
    [STORE_WALK_OPERATOR_KEYS] = {STATEMENT_WALK_OPERATOR_KEYS, "", 0, 0},
};

static enum status ask(struct postgres_session *session, const struct store_query *query,
                       PGresult **result) {
    bool is_of_documents = query->id == STORE_DOCUMENT || query->id == STORE_WALK_DOCUMENTS;
    const char *parameters = queries[query->id].parameters;
    assert(parameters);
    postgres_begin(session, queries[query->id].statement + (is_of_documents ? query->document : 0));
    for (; *parameters; parameters++) {
        if (*parameters == 's')
            postgres_put_bound(session, query->scope);
        else if (*parameters == 'a')
            postgres_put_bound(session, query->after);
        else if (*parameters == 'l')
            postgres_put_bound(session, query->limit);
        else if (*parameters == 'n')
            postgres_put_text(session, query->name.data ? query->name : SLICE(""));
        else if (*parameters == 't')
            postgres_put_text(session, query->after_name.data ? query->after_name : SLICE(""));
        else
            postgres_put_text(session, slice_of(document_kind_name(query->document)));
    }
    return postgres_query(session, result);
}

static enum status damaged(struct postgres_session *session, const struct store_layout *layout,
                           const void *row) {
    return postgres_damaged(session, layout->row_name, store_row_number(layout, row));
}

enum status postgres_load(struct store_session *base, const struct store_query *query,
                          struct arena *arena, void *row) {
    struct postgres_session *session = postgres_session_of(base);
    const struct store_layout *layout = store_query_layout(query);
    PGresult *result = NULL;
    enum status status = ask(session, query, &result);
    if (status == STATUS_OK && PQntuples(result) == 0)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK && !postgres_read_row((struct postgres_row){result, 0}, 0, layout, row))
        status = damaged(session, layout, row);
    if (status == STATUS_OK && layout == &store_event_layout)
        postgres_note_read(session->store, ((struct store_event *)row)->log_id,
                           &((struct store_event *)row)->cursor);
    if (status == STATUS_OK && !store_keep(arena, layout, row)) {
        snprintf(session->error, sizeof(session->error),
                 "a row is larger than the memory reserved for it");
        status = STATUS_OUT_OF_MEMORY;
    }
    PQclear(result);
    return status;
}

/* ---- walks ---- */

struct walk {
    struct postgres_session *session;
    struct store_query query; /* of the next page */
    uint64_t left;            /* rows to walk */
    void *user;
    store_row_cb *callback;
};

static enum status read_row(const struct walk *walk, struct postgres_row row,
                            union store_row *read) {
    const struct store_layout *layout = store_query_layout(&walk->query);
    enum store_query_id id = walk->query.id;
    bool is_sound = postgres_read_row(row, 0, layout, read);
    const struct store_event *event = layout == &store_event_layout ? &read->event : NULL;
    /* An entity's sequence has no gap: a gap in the rows is damage. */
    if (id == STORE_WALK_ENTITY_EVENTS || id == STORE_WALK_ENTITY_FRAMES) {
        if (!is_sound || read->event.seq != walk->query.after + 1)
            return postgres_damaged(walk->session, "the entity's event", walk->query.after + 1);
    } else if (id == STORE_WALK_DOCUMENTS) {
        read->document.kind = walk->query.document;
        if (!is_sound)
            read->document.key = read->document.payload = (struct slice){0};
        is_sound = true;
    }
    if (!is_sound)
        return damaged(walk->session, layout, read);
    if (id == STORE_WALK_JOURNAL) {
        event = &read->journal.event;
        if (!postgres_read_row(row, (int)store_layout_selected(layout), &store_event_layout,
                               &read->journal.event))
            return postgres_damaged(walk->session, "event", read->journal.row.log_id);
    }
    if (event)
        postgres_note_read(walk->session->store, event->log_id, &event->cursor);
    return STATUS_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static enum status walk_pages(struct walk *walk, uint64_t row_count) {
    bool has_limit = strchr(queries[walk->query.id].parameters, 'l') != NULL;
    PGresult *before = NULL;
    enum status status = STATUS_OK;
    bool is_last = false;
    while (status == STATUS_OK && !is_last && walk->left > 0) {
        PGresult *result = NULL;
        size_t bytes = 0;
        if (store_session_is_cancelled(&walk->session->base)) {
            status = STATUS_STORE_UNAVAILABLE;
            break;
        }
        walk->query.limit = smaller(row_count, walk->left);
        status = ask(walk->session, &walk->query, &result);
        if (status != STATUS_OK)
            break;
        uint64_t count = (uint64_t)PQntuples(result);
        walk->left -= smaller(walk->left, count);
        for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
            struct postgres_row row = {result, i};
            union store_row read;
            for (int column = 0; column < PQnfields(result); column++)
                bytes += (size_t)PQgetlength(result, i, column);
            status = read_row(walk, row, &read);
            walk->query.after = postgres_number(row, queries[walk->query.id].number_column);
            walk->query.after_name = postgres_text(row, queries[walk->query.id].name_column);
            if (status == STATUS_OK)
                status = walk->callback(walk->user, &read);
        }
        is_last = !has_limit || (count < walk->query.limit && bytes < POSTGRES_WALK_PAGE_BYTES);
        /* The position is a text of the page before. */
        PQclear(before);
        before = result;
        if (row_count < POSTGRES_WALK_PAGE_ROWS_MAX)
            row_count = smaller(row_count * 4, POSTGRES_WALK_PAGE_ROWS_MAX);
    }
    PQclear(before);
    return status;
}

enum status postgres_walk(struct store_session *base, const struct store_query *query, void *user,
                          store_row_cb *callback) {
    struct walk walk = {.session = postgres_session_of(base),
                        .query = *query,
                        .left = query->limit,
                        .user = user,
                        .callback = callback};
    bool is_side = base->mode == STORE_SIDE;
    uint64_t alone = is_side ? POSTGRES_WALK_PAGE_ROWS_MAX : PAGE_ROWS_ALONE;
    uint64_t first = is_side ? POSTGRES_WALK_PAGE_ROWS_MAX : PAGE_ROWS_FIRST;
    /* The owner of a frame never changes, and the rows are small. */
    if (query->id == STORE_WALK_OWNERS)
        return walk_pages(&walk, POSTGRES_OWNERS_PAGE_ROWS_MAX);
    if (query->limit <= alone || !strchr(queries[query->id].parameters, 'l'))
        return walk_pages(&walk, alone);
    if (walk.session->in_transaction)
        return walk_pages(&walk, first);
    postgres_begin(walk.session, STATEMENT_READ_BEGIN);
    enum status status = postgres_run(walk.session);
    if (status != STATUS_OK)
        return status;
    walk.session->in_transaction = true;
    status = walk_pages(&walk, first);
    postgres_read_end(base);
    return status;
}
