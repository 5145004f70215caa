/* A walk fetches a page of rows, copies it, and then calls the callback for each row. So a callback
 * may use the session, and sees rows that no later step of a statement can change. Between pages
 * the statement stays active: all pages show the store as it was when the walk began. */
#include "store/sqlite/sqlite.h"

#include <stdio.h>

#include "base/limits.h"

/* The first pages are small, since many callbacks stop early. */
#define PAGE_ROWS_FIRST 4

struct journal_pair {
    struct store_journal_row row;
    struct store_event event;
};

union walk_row {
    struct store_event event;
    struct store_entity entity;
    struct store_topic topic;
    struct store_document document;
    struct journal_pair journal;
    struct store_drift drift;
    struct store_revocation revocation;
};

struct walk {
    struct sqlite_session *session;
    sqlite3_stmt *statement;
    struct arena page;
    enum document_kind document_kind;
    uint64_t last_seq;    /* of an entity's events */
    uint64_t covered_seq; /* up to here events must follow */
    struct sqlite_entity_name entity_name;
    void *user;
    union {
        store_event_cb *event;
        store_entity_cb *entity;
        store_topic_cb *topic;
        store_document_cb *document;
        store_journal_cb *journal;
        store_drift_cb *drift;
        store_revocation_cb *revocation;
    } callback;
};

/* Reads the statement's current row and copies its texts into the page. */
typedef enum status walk_read_cb(struct walk *walk, union walk_row *row);
typedef enum status walk_call_cb(struct walk *walk, const union walk_row *row);

static enum status kept(struct walk *walk, bool is_kept) {
    if (is_kept)
        return STATUS_OK;
    snprintf(walk->session->error, sizeof(walk->session->error),
             "a row is larger than the memory reserved for it");
    return STATUS_OUT_OF_MEMORY;
}

/* Fills rows up to count_max. STATUS_NOT_FOUND: the walk is at its end. After any answer the first
 * *count rows are good. */
static enum status fetch_page(struct walk *walk, walk_read_cb *read, union walk_row *rows,
                              size_t count_max, size_t *count) {
    enum status status = STATUS_OK;
    *count = 0;
    while (status == STATUS_OK && *count < count_max &&
           walk->page.bytes_held < SQLITE_WALK_PAGE_BYTES) {
        status = sqlite_next(walk->session, walk->statement);
        if (status == STATUS_OK)
            status = read(walk, &rows[*count]);
        if (status == STATUS_OK)
            (*count)++;
    }
    return status;
}

static enum status walk_rows(struct walk *walk, walk_read_cb *read, walk_call_cb *call) {
    union walk_row *rows = NULL;
    size_t count_max = PAGE_ROWS_FIRST;
    enum status fetched = STATUS_OK;
    enum status status = STATUS_OK;
    arena_init(&walk->page, SQLITE_WALK_ARENA_BYTES_MAX);
    while (status == STATUS_OK && fetched == STATUS_OK) {
        size_t count = 0;
        arena_reset(&walk->page);
        rows = arena_alloc(&walk->page, count_max * sizeof(*rows));
        fetched = rows ? fetch_page(walk, read, rows, count_max, &count) : STATUS_OUT_OF_MEMORY;
        for (size_t i = 0; status == STATUS_OK && i < count; i++)
            status = call(walk, &rows[i]);
        count_max =
            count_max < SQLITE_WALK_PAGE_ROWS_MAX ? count_max * 4 : SQLITE_WALK_PAGE_ROWS_MAX;
    }
    sqlite3_reset(walk->statement);
    arena_release(&walk->page);
    if (status != STATUS_OK)
        return status;
    return fetched == STATUS_NOT_FOUND ? STATUS_OK : fetched;
}

static enum status read_event(struct walk *walk, union walk_row *row) {
    struct store_event *event = &row->event;
    if (!sqlite_row_event(walk->statement, 0, NULL, event))
        return sqlite_damaged(walk->session, "event", event->log_id);
    return kept(walk, sqlite_keep(&walk->page, &event->entity_id) &&
                          sqlite_keep_event(&walk->page, event));
}

/* An entity's sequence has no gap: a gap in the rows is damage. Behind the event's columns stands
 * the last seq of its position. */
static enum status read_entity_event(struct walk *walk, union walk_row *row) {
    struct store_event *event = &row->event;
    if (!sqlite_row_event(walk->statement, 0, &walk->entity_name, event) ||
        !event->entity_id.data || event->seq != walk->last_seq + 1)
        return sqlite_damaged(walk->session, "the entity's event", walk->last_seq + 1);
    walk->last_seq = event->seq;
    walk->covered_seq = sqlite_number(walk->statement, SQLITE_STORE_EVENT_COLUMNS);
    return kept(walk, sqlite_keep_event(&walk->page, event));
}

static enum status call_event(struct walk *walk, const union walk_row *row) {
    return walk->callback.event(walk->user, &row->event);
}

static enum status read_entity(struct walk *walk, union walk_row *row) {
    if (!sqlite_row_entity(walk->statement, &row->entity))
        return sqlite_damaged(walk->session, "entity", row->entity.ref);
    return kept(walk, sqlite_keep_entity(&walk->page, &row->entity));
}

static enum status call_entity(struct walk *walk, const union walk_row *row) {
    return walk->callback.entity(walk->user, &row->entity);
}

static enum status read_topic(struct walk *walk, union walk_row *row) {
    sqlite_row_topic(walk->statement, &row->topic);
    return kept(walk, sqlite_keep(&walk->page, &row->topic.name) &&
                          sqlite_keep(&walk->page, &row->topic.stream_id));
}

static enum status call_topic(struct walk *walk, const union walk_row *row) {
    return walk->callback.topic(walk->user, &row->topic);
}

static enum status read_document(struct walk *walk, union walk_row *row) {
    struct store_document *document = &row->document;
    if (!sqlite_row_document(walk->statement, walk->document_kind, document))
        document->key = document->payload = (struct slice){0};
    document->owner = (struct owner){.user_id = sqlite_text(walk->statement, 5),
                                     .guest_scope = sqlite_text(walk->statement, 6),
                                     .org_id = sqlite_text(walk->statement, 7)};
    return kept(walk, sqlite_keep(&walk->page, &document->key) &&
                          sqlite_keep(&walk->page, &document->payload) &&
                          sqlite_keep_owner(&walk->page, &document->owner));
}

static enum status call_document(struct walk *walk, const union walk_row *row) {
    return walk->callback.document(walk->user, &row->document);
}

static enum status read_journal(struct walk *walk, union walk_row *row) {
    struct journal_pair *pair = &row->journal;
    if (!sqlite_row_journal(walk->statement, &pair->row))
        return sqlite_damaged(walk->session, "journal row", pair->row.seq);
    if (!sqlite_row_event(walk->statement, SQLITE_STORE_JOURNAL_COLUMNS, NULL, &pair->event))
        return sqlite_damaged(walk->session, "event", pair->row.log_id);
    return kept(walk, sqlite_keep(&walk->page, &pair->row.payload) &&
                          sqlite_keep(&walk->page, &pair->event.entity_id) &&
                          sqlite_keep_event(&walk->page, &pair->event));
}

static enum status call_journal(struct walk *walk, const union walk_row *row) {
    return walk->callback.journal(walk->user, &row->journal.row, &row->journal.event);
}

static enum status read_drift(struct walk *walk, union walk_row *row) {
    if (!sqlite_row_drift(walk->statement, &row->drift))
        return sqlite_damaged(walk->session, "the drift of entity", row->drift.entity_ref);
    return kept(walk, sqlite_keep(&walk->page, &row->drift.entity_id) &&
                          sqlite_keep(&walk->page, &row->drift.subject));
}

static enum status call_drift(struct walk *walk, const union walk_row *row) {
    return walk->callback.drift(walk->user, &row->drift);
}

static enum status read_revocation(struct walk *walk, union walk_row *row) {
    row->revocation = (struct store_revocation){
        .kind = (enum revocation_kind)sqlite_number(walk->statement, 0),
        .id = sqlite_text(walk->statement, 1),
        .reason = sqlite_text(walk->statement, 2),
        .revoked_at_ms = sqlite_number(walk->statement, 3),
        .expires_at_ms = sqlite_number(walk->statement, 4),
    };
    return kept(walk, sqlite_keep(&walk->page, &row->revocation.id) &&
                          sqlite_keep(&walk->page, &row->revocation.reason));
}

static enum status call_revocation(struct walk *walk, const union walk_row *row) {
    return walk->callback.revocation(walk->user, &row->revocation);
}

static enum status walk_begin(struct walk *walk, struct store_session *session,
                              enum statement_id id, void *user) {
    walk->session = sqlite_session_of(session);
    walk->user = user;
    return sqlite_statement(walk->session, id, &walk->statement);
}

/* The name is the same for all rows: a join with each row would be a fifth of the walk's cost. */
enum status sqlite_entity_name(struct sqlite_session *session, uint64_t entity_ref,
                               sqlite3_stmt **statement, struct sqlite_entity_name *name) {
    enum status status = sqlite_statement(session, STATEMENT_ENTITY_NAME, statement);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(*statement, 1, entity_ref);
    status = sqlite_next(session, *statement);
    if (status == STATUS_OK && !sqlite_row_entity_name(*statement, 0, name))
        status = sqlite_damaged(session, "entity", entity_ref);
    /* Events of an entity that does not exist are damage. Without events it just does not exist. */
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status entity_walk_begin(struct walk *walk, uint64_t entity_ref, uint64_t limit,
                                     sqlite3_stmt **name) {
    sqlite_bind_bound(walk->statement, 1, entity_ref);
    sqlite_bind_bound(walk->statement, 2, walk->last_seq);
    sqlite_bind_bound(walk->statement, 3, limit);
    return sqlite_entity_name(walk->session, entity_ref, name, &walk->entity_name);
}

enum status sqlite_check_covered(struct sqlite_session *session, uint64_t last_seq,
                                 uint64_t covered_seq) {
    return last_seq >= covered_seq ? STATUS_OK
                                   : sqlite_damaged(session, "the entity's event", last_seq + 1);
}

enum status sqlite_walk_entity_events(struct store_session *session, uint64_t entity_ref,
                                      uint64_t after_seq, uint64_t limit, void *user,
                                      store_event_cb *callback) {
    struct walk walk = {
        .callback.event = callback, .last_seq = after_seq, .covered_seq = after_seq};
    sqlite3_stmt *name = NULL;
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_ENTITY_EVENTS, user);
    if (status == STATUS_OK)
        status = entity_walk_begin(&walk, entity_ref, limit, &name);
    if (status == STATUS_OK)
        status = walk_rows(&walk, read_entity_event, call_event);
    if (status == STATUS_OK && walk.last_seq - after_seq < limit)
        status = sqlite_check_covered(walk.session, walk.last_seq, walk.covered_seq);
    sqlite3_reset(name);
    return status;
}

enum status sqlite_walk_log(struct store_session *session, uint64_t after_log_id, uint64_t limit,
                            void *user, store_event_cb *callback) {
    struct walk walk = {.callback.event = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_LOG, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, after_log_id);
    sqlite_bind_bound(walk.statement, 2, limit);
    return walk_rows(&walk, read_event, call_event);
}

enum status sqlite_walk_entities(struct store_session *session, enum entity_kind kind,
                                 uint64_t after_ref, uint64_t limit, void *user,
                                 store_entity_cb *callback) {
    struct walk walk = {.callback.entity = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_ENTITIES, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(walk.statement, 1, kind);
    sqlite_bind_bound(walk.statement, 2, after_ref);
    sqlite_bind_bound(walk.statement, 3, limit);
    return walk_rows(&walk, read_entity, call_entity);
}

enum status sqlite_walk_topics(struct store_session *session, uint64_t after_ref, uint64_t limit,
                               void *user, store_topic_cb *callback) {
    struct walk walk = {.callback.topic = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_TOPICS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, after_ref);
    sqlite_bind_bound(walk.statement, 2, limit);
    return walk_rows(&walk, read_topic, call_topic);
}

enum status sqlite_list_entities(struct store_session *session, enum entity_kind kind,
                                 struct slice after_id, uint64_t limit, void *user,
                                 store_entity_cb *callback) {
    struct walk walk = {.callback.entity = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_LIST_ENTITIES, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(walk.statement, 1, kind);
    sqlite_bind_text(walk.statement, 2, after_id);
    sqlite_bind_bound(walk.statement, 3, limit);
    return walk_rows(&walk, read_entity, call_entity);
}

enum status sqlite_list_topics(struct store_session *session, struct slice prefix,
                               struct slice after_name, uint64_t limit, void *user,
                               store_topic_cb *callback) {
    struct walk walk = {.callback.topic = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_LIST_TOPICS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_text(walk.statement, 1, prefix);
    sqlite_bind_text(walk.statement, 2, after_name);
    sqlite_bind_bound(walk.statement, 3, limit);
    return walk_rows(&walk, read_topic, call_topic);
}

enum status sqlite_walk_documents(struct store_session *session, enum document_kind kind,
                                  uint64_t after_ref, uint64_t limit, void *user,
                                  store_document_cb *callback) {
    struct walk walk = {.callback.document = callback, .document_kind = kind};
    enum statement_id id = STATEMENT_WALK_DOCUMENTS + kind;
    enum status status = walk_begin(&walk, session, id, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_number(walk.statement, 1, document_row(kind)->entity);
    sqlite_bind_bound(walk.statement, 2, after_ref);
    sqlite_bind_bound(walk.statement, 3, limit);
    return walk_rows(&walk, read_document, call_document);
}

enum status sqlite_walk_journal(struct store_session *session, uint64_t topic_ref,
                                uint64_t after_seq, uint64_t limit, void *user,
                                store_journal_cb *callback) {
    struct walk walk = {.callback.journal = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_JOURNAL, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, topic_ref);
    sqlite_bind_bound(walk.statement, 2, after_seq);
    sqlite_bind_bound(walk.statement, 3, limit);
    return walk_rows(&walk, read_journal, call_journal);
}

enum status sqlite_walk_drifts(struct store_session *session, uint64_t limit, void *user,
                               store_drift_cb *callback) {
    struct walk walk = {.callback.drift = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_DRIFTS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, limit);
    return walk_rows(&walk, read_drift, call_drift);
}

enum status sqlite_walk_revocations(struct store_session *session, uint64_t now_ms, void *user,
                                    store_revocation_cb *callback) {
    struct walk walk = {.callback.revocation = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_REVOCATIONS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, now_ms);
    return walk_rows(&walk, read_revocation, call_revocation);
}
