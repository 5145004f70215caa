/* A walk fetches a page of rows and then calls the callback for each of them. The rows stay in the
 * result of the page, so a callback may use the session. The next page begins behind the last row.
 * A page has a maximum of rows. Statements with payloads or metadata also end it when these
 * have POSTGRES_WALK_PAGE_BYTES together.
 * A walk of more than one page has a transaction around it, in which all pages show the store as it
 * was at the first one. */
#include "store/postgres/postgres.h"

/* The first pages of a long walk are small, since many callbacks stop early. A short walk is one
 * page, and needs no transaction. The walks of a side session read all rows. */
#define PAGE_ROWS_FIRST 4
#define PAGE_ROWS_ALONE 64

union walk_row {
    struct store_event event;
    struct store_entity entity;
    struct store_topic topic;
    struct store_document document;
    struct store_drift drift;
    struct store_revocation revocation;
    struct {
        struct store_journal_row row;
        struct store_event event;
    } journal;
};

/* The rows after this position come next. */
struct position {
    uint64_t number;
    struct slice text; /* in the result of the page before, or the caller's */
};

struct walk {
    struct postgres_session *session;
    enum statement_id statement;
    uint64_t scope;     /* an entity, a topic, a kind or a time */
    struct slice floor; /* of names */
    struct position after;
    uint64_t limit;
    enum document_kind document_kind;
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
    /* Of the kind of walk. */
    void (*put)(struct walk *walk, uint64_t row_count);
    enum status (*read)(struct walk *walk, struct postgres_row row, union walk_row *read);
    enum status (*call)(struct walk *walk, const union walk_row *row);
};

static size_t bytes_of(struct postgres_row row) {
    size_t bytes = 0;
    for (int i = 0; i < PQnfields(row.result); i++)
        bytes += (size_t)PQgetlength(row.result, row.row, i);
    return bytes;
}

/* *bytes: the size of the rows. */
static enum status call_page(struct walk *walk, const PGresult *result, size_t *bytes) {
    enum status status = STATUS_OK;
    *bytes = 0;
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        union walk_row read;
        *bytes += bytes_of(row);
        status = walk->read(walk, row, &read);
        if (status == STATUS_OK)
            status = walk->call(walk, &read);
    }
    return status;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static enum status walk_pages(struct walk *walk, uint64_t row_count) {
    PGresult *before = NULL;
    enum status status = STATUS_OK;
    bool is_last = false;
    while (status == STATUS_OK && !is_last && walk->limit > 0) {
        PGresult *result = NULL;
        size_t bytes = 0;
        if (store_session_is_cancelled(&walk->session->base)) {
            status = STATUS_STORE_UNAVAILABLE;
            break;
        }
        uint64_t asked = smaller(row_count, walk->limit);
        postgres_begin(walk->session, walk->statement);
        walk->put(walk, asked);
        status = postgres_query(walk->session, &result);
        if (status != STATUS_OK)
            break;
        walk->limit -= smaller(walk->limit, (uint64_t)PQntuples(result));
        status = call_page(walk, result, &bytes);
        is_last = (uint64_t)PQntuples(result) < asked && bytes < POSTGRES_WALK_PAGE_BYTES;
        /* The position is a text of the page before. */
        PQclear(before);
        before = result;
        row_count = smaller(row_count * 4, POSTGRES_WALK_PAGE_ROWS_MAX);
    }
    PQclear(before);
    return status;
}

static enum status walk_begin(struct walk *walk, struct store_session *session, void *user) {
    bool is_side = session->mode == STORE_SIDE;
    uint64_t alone = is_side ? POSTGRES_WALK_PAGE_ROWS_MAX : PAGE_ROWS_ALONE;
    uint64_t first = is_side ? POSTGRES_WALK_PAGE_ROWS_MAX : PAGE_ROWS_FIRST;
    walk->session = postgres_session_of(session);
    walk->user = user;
    if (walk->limit <= alone)
        return walk_pages(walk, alone);
    if (walk->session->in_transaction)
        return walk_pages(walk, first);
    postgres_begin(walk->session, STATEMENT_READ_BEGIN);
    enum status status = postgres_run(walk->session);
    if (status != STATUS_OK)
        return status;
    walk->session->in_transaction = true;
    status = walk_pages(walk, first);
    postgres_read_end(session);
    return status;
}

/* ---- parameters of a page ---- */

static void put_after(struct walk *walk, uint64_t row_count) {
    postgres_put_bound(walk->session, walk->after.number);
    postgres_put_number(walk->session, row_count);
}

static void put_scope_after(struct walk *walk, uint64_t row_count) {
    postgres_put_bound(walk->session, walk->scope);
    put_after(walk, row_count);
}

static void put_kind_id(struct walk *walk, uint64_t row_count) {
    postgres_put_number(walk->session, walk->scope);
    postgres_put_text(walk->session, walk->after.text);
    postgres_put_number(walk->session, row_count);
}

static void put_names(struct walk *walk, uint64_t row_count) {
    postgres_put_text(walk->session, walk->floor);
    postgres_put_text(walk->session, walk->after.text);
    postgres_put_number(walk->session, row_count);
}

static void put_revocation(struct walk *walk, uint64_t row_count) {
    postgres_put_bound(walk->session, walk->scope);
    postgres_put_signed(walk->session, (int64_t)walk->after.number - 1);
    postgres_put_text(walk->session, walk->after.text);
    postgres_put_number(walk->session, row_count);
}

/* ---- rows ---- */

static enum status read_event(struct walk *walk, struct postgres_row row, union walk_row *read) {
    struct store_event *event = &read->event;
    if (!postgres_row_event(row, 0, POSTGRES_EVENT_COLUMNS, event))
        return postgres_damaged(walk->session, "event", event->log_id);
    walk->after.number = event->log_id;
    postgres_note_read(walk->session->store, event->log_id, &event->cursor);
    return STATUS_OK;
}

/* An entity's sequence has no gap: a gap in the rows is damage. */
static enum status read_entity_event(struct walk *walk, struct postgres_row row,
                                     union walk_row *read) {
    struct store_event *event = &read->event;
    if (!postgres_row_event(row, 0, POSTGRES_EVENT_COLUMNS, event) ||
        event->seq != walk->after.number + 1)
        return postgres_damaged(walk->session, "the entity's event", walk->after.number + 1);
    walk->after.number = event->seq;
    postgres_note_read(walk->session->store, event->log_id, &event->cursor);
    return STATUS_OK;
}

static enum status call_event(struct walk *walk, const union walk_row *row) {
    return walk->callback.event(walk->user, &row->event);
}

static enum status read_entity(struct walk *walk, struct postgres_row row, union walk_row *read) {
    if (!postgres_row_entity(row, 0, &read->entity))
        return postgres_damaged(walk->session, "entity", read->entity.ref);
    walk->after = (struct position){read->entity.ref, read->entity.id};
    return STATUS_OK;
}

static enum status call_entity(struct walk *walk, const union walk_row *row) {
    return walk->callback.entity(walk->user, &row->entity);
}

static enum status read_topic(struct walk *walk, struct postgres_row row, union walk_row *read) {
    if (!postgres_row_topic(row, &read->topic))
        return postgres_damaged(walk->session, "topic", read->topic.ref);
    walk->after = (struct position){read->topic.ref, read->topic.name};
    return STATUS_OK;
}

static enum status call_topic(struct walk *walk, const union walk_row *row) {
    return walk->callback.topic(walk->user, &row->topic);
}

static enum status read_document(struct walk *walk, struct postgres_row row, union walk_row *read) {
    struct store_document *document = &read->document;
    if (!postgres_row_document(row, walk->document_kind, document))
        document->key = document->payload = (struct slice){0};
    walk->after.number = document->entity_ref;
    return STATUS_OK;
}

static enum status call_document(struct walk *walk, const union walk_row *row) {
    return walk->callback.document(walk->user, &row->document);
}

static enum status read_journal(struct walk *walk, struct postgres_row row, union walk_row *read) {
    if (!postgres_row_journal(row, &read->journal.row))
        return postgres_damaged(walk->session, "journal row", read->journal.row.seq);
    if (!postgres_row_event(row, 0, POSTGRES_EVENT_COLUMNS, &read->journal.event))
        return postgres_damaged(walk->session, "event", read->journal.row.log_id);
    walk->after.number = read->journal.row.seq;
    postgres_note_read(walk->session->store, read->journal.event.log_id,
                       &read->journal.event.cursor);
    return STATUS_OK;
}

static enum status call_journal(struct walk *walk, const union walk_row *row) {
    return walk->callback.journal(walk->user, &row->journal.row, &row->journal.event);
}

static enum status read_drift(struct walk *walk, struct postgres_row row, union walk_row *read) {
    if (!postgres_row_drift(row, &read->drift))
        return postgres_damaged(walk->session, "the drift of entity", read->drift.entity_ref);
    walk->after.number = postgres_number(row, 8);
    return STATUS_OK;
}

static enum status call_drift(struct walk *walk, const union walk_row *row) {
    return walk->callback.drift(walk->user, &row->drift);
}

static enum status read_revocation(struct walk *walk, struct postgres_row row,
                                   union walk_row *read) {
    if (!postgres_row_revocation(row, &read->revocation))
        return postgres_damaged(walk->session, "a revocation of kind", postgres_number(row, 0));
    /* The position 0 is before the first kind. */
    walk->after = (struct position){(uint64_t)read->revocation.kind + 1, read->revocation.id};
    return STATUS_OK;
}

static enum status call_revocation(struct walk *walk, const union walk_row *row) {
    return walk->callback.revocation(walk->user, &row->revocation);
}

/* ---- the walks ---- */

enum status postgres_walk_entity_events(struct store_session *session, uint64_t entity_ref,
                                        uint64_t after_seq, uint64_t limit, void *user,
                                        store_event_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_ENTITY_EVENTS,
                        .scope = entity_ref,
                        .after.number = after_seq,
                        .limit = limit,
                        .callback.event = callback,
                        .put = put_scope_after,
                        .read = read_entity_event,
                        .call = call_event};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_log(struct store_session *session, uint64_t after_log_id, uint64_t limit,
                              void *user, store_event_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_LOG,
                        .after.number = after_log_id,
                        .limit = limit,
                        .callback.event = callback,
                        .put = put_after,
                        .read = read_event,
                        .call = call_event};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_entities(struct store_session *session, enum entity_kind kind,
                                   uint64_t after_ref, uint64_t limit, void *user,
                                   store_entity_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_ENTITIES,
                        .scope = kind,
                        .after.number = after_ref,
                        .limit = limit,
                        .callback.entity = callback,
                        .put = put_scope_after,
                        .read = read_entity,
                        .call = call_entity};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_topics(struct store_session *session, uint64_t after_ref, uint64_t limit,
                                 void *user, store_topic_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_TOPICS,
                        .after.number = after_ref,
                        .limit = limit,
                        .callback.topic = callback,
                        .put = put_after,
                        .read = read_topic,
                        .call = call_topic};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_changed_topics(struct store_session *session, uint64_t after_commit_id,
                                         void *user, store_topic_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_CHANGED_TOPICS,
                        .scope = after_commit_id,
                        .limit = UINT64_MAX,
                        .callback.topic = callback,
                        .put = put_scope_after,
                        .read = read_topic,
                        .call = call_topic};
    return walk_begin(&walk, session, user);
}

enum status postgres_list_entities(struct store_session *session, enum entity_kind kind,
                                   struct slice after_id, uint64_t limit, void *user,
                                   store_entity_cb *callback) {
    struct walk walk = {.statement = STATEMENT_LIST_ENTITIES,
                        .scope = kind,
                        .after.text = after_id.data ? after_id : SLICE(""),
                        .limit = limit,
                        .callback.entity = callback,
                        .put = put_kind_id,
                        .read = read_entity,
                        .call = call_entity};
    return walk_begin(&walk, session, user);
}

enum status postgres_list_topics(struct store_session *session, struct slice prefix,
                                 struct slice after_name, uint64_t limit, void *user,
                                 store_topic_cb *callback) {
    struct walk walk = {.statement = STATEMENT_LIST_TOPICS,
                        .floor = prefix.data ? prefix : SLICE(""),
                        .after.text = after_name.data ? after_name : SLICE(""),
                        .limit = limit,
                        .callback.topic = callback,
                        .put = put_names,
                        .read = read_topic,
                        .call = call_topic};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_documents(struct store_session *session, enum document_kind kind,
                                    uint64_t after_ref, uint64_t limit, void *user,
                                    store_document_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_DOCUMENTS + kind,
                        .after.number = after_ref,
                        .limit = limit,
                        .scope = document_row(kind)->entity,
                        .document_kind = kind,
                        .callback.document = callback,
                        .put = put_scope_after,
                        .read = read_document,
                        .call = call_document};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_journal(struct store_session *session, uint64_t topic_ref,
                                  uint64_t after_seq, uint64_t limit, void *user,
                                  store_journal_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_JOURNAL,
                        .scope = topic_ref,
                        .after.number = after_seq,
                        .limit = limit,
                        .callback.journal = callback,
                        .put = put_scope_after,
                        .read = read_journal,
                        .call = call_journal};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_drifts(struct store_session *session, uint64_t limit, void *user,
                                 store_drift_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_DRIFTS,
                        .after.number = INT64_MAX,
                        .limit = limit,
                        .callback.drift = callback,
                        .put = put_after,
                        .read = read_drift,
                        .call = call_drift};
    return walk_begin(&walk, session, user);
}

enum status postgres_walk_revocations(struct store_session *session, uint64_t now_ms, void *user,
                                      store_revocation_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_REVOCATIONS,
                        .scope = now_ms,
                        .after.text = SLICE(""),
                        .limit = UINT64_MAX,
                        .callback.revocation = callback,
                        .put = put_revocation,
                        .read = read_revocation,
                        .call = call_revocation};
    return walk_begin(&walk, session, user);
}

static enum status read_new_revocation(struct walk *walk, struct postgres_row row,
                                       union walk_row *read) {
    enum status status = read_revocation(walk, row, read);
    walk->after.number = postgres_number(row, 5);
    return status;
}

enum status postgres_walk_new_revocations(struct store_session *session, uint64_t after_serial,
                                          void *user, store_revocation_cb *callback) {
    struct walk walk = {.statement = STATEMENT_WALK_NEW_REVOCATIONS,
                        .after.number = after_serial,
                        .limit = UINT64_MAX,
                        .callback.revocation = callback,
                        .put = put_after,
                        .read = read_new_revocation,
                        .call = call_revocation};
    return walk_begin(&walk, session, user);
}
