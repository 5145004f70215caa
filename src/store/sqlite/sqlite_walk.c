#include "store/sqlite/sqlite.h"

/* One walk: the rows of a statement, each read and handed to the caller by its kind's function. */
struct walk {
    struct sqlite_session *session;
    sqlite3_stmt *statement;
    enum document_kind document_kind;
    uint64_t last_seq; /* of an entity's events */
    struct sqlite_entity_name entity_name;
    void *user;
    union {
        store_event_cb *event;
        store_entity_cb *entity;
        store_topic_cb *topic;
        store_document_cb *document;
        store_journal_cb *journal;
        store_drift_cb *drift;
    } callback;
};

typedef enum status walk_row_cb(struct walk *walk);

static enum status walk_rows(struct walk *walk, walk_row_cb *each) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        status = sqlite_next(walk->session, walk->statement);
        if (status == STATUS_NOT_FOUND) {
            sqlite3_reset(walk->statement);
            return STATUS_OK;
        }
        if (status == STATUS_OK)
            status = each(walk);
    }
    sqlite3_reset(walk->statement);
    return status;
}

static enum status each_event(struct walk *walk) {
    struct store_event event;
    if (!sqlite_row_event(walk->statement, 0, NULL, &event))
        return sqlite_damaged(walk->session, "event", event.log_id);
    return walk->callback.event(walk->user, &event);
}

/* An entity's sequence has no gap: one in the rows is damage. */
static enum status each_entity_event(struct walk *walk) {
    struct store_event event;
    if (!sqlite_row_event(walk->statement, 0, &walk->entity_name, &event) ||
        !event.entity_id.data || event.seq != walk->last_seq + 1)
        return sqlite_damaged(walk->session, "the entity's event", walk->last_seq + 1);
    walk->last_seq = event.seq;
    return walk->callback.event(walk->user, &event);
}

static enum status each_entity(struct walk *walk) {
    struct store_entity entity;
    if (!sqlite_row_entity(walk->statement, &entity))
        return sqlite_damaged(walk->session, "entity", entity.ref);
    return walk->callback.entity(walk->user, &entity);
}

static enum status each_topic(struct walk *walk) {
    struct store_topic topic;
    sqlite_row_topic(walk->statement, &topic);
    return walk->callback.topic(walk->user, &topic);
}

static enum status each_document(struct walk *walk) {
    struct store_document document;
    if (!sqlite_row_document(walk->statement, walk->document_kind, &document))
        return sqlite_damaged(walk->session, "the document of entity", document.entity_ref);
    document.owner = (struct owner){.user_id = sqlite_text(walk->statement, 5),
                                    .guest_scope = sqlite_text(walk->statement, 6),
                                    .org_id = sqlite_text(walk->statement, 7)};
    return walk->callback.document(walk->user, &document);
}

static enum status each_journal(struct walk *walk) {
    struct store_journal_row row;
    struct store_event event;
    if (!sqlite_row_journal(walk->statement, &row))
        return sqlite_damaged(walk->session, "journal row", row.seq);
    if (!sqlite_row_event(walk->statement, SQLITE_STORE_JOURNAL_COLUMNS, NULL, &event))
        return sqlite_damaged(walk->session, "event", row.log_id);
    return walk->callback.journal(walk->user, &row, &event);
}

static enum status each_drift(struct walk *walk) {
    struct store_drift drift;
    if (!sqlite_row_drift(walk->statement, &drift))
        return sqlite_damaged(walk->session, "the drift of entity", drift.entity_ref);
    return walk->callback.drift(walk->user, &drift);
}

static enum status walk_begin(struct walk *walk, struct store_session *session,
                              enum statement_id id, void *user) {
    walk->session = sqlite_session_of(session);
    walk->user = user;
    return sqlite_statement(walk->session, id, &walk->statement);
}

enum status sqlite_walk_entity_events(struct store_session *session, uint64_t entity_ref,
                                      uint64_t after_seq, uint64_t limit, void *user,
                                      store_event_cb *callback) {
    struct walk walk = {.callback.event = callback, .last_seq = after_seq};
    sqlite3_stmt *name = NULL;
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_ENTITY_EVENTS, user);
    if (status == STATUS_OK)
        status = sqlite_statement(walk.session, STATEMENT_ENTITY_NAME, &name);
    if (status != STATUS_OK)
        return status;
    /* The same for all rows: joined to each it would be a fifth of the walk. Its row is there, and
     * the store as it was then, until the statement is reset. */
    sqlite_bind_bound(name, 1, entity_ref);
    status = sqlite_next(walk.session, name);
    if (status == STATUS_OK && !sqlite_row_entity_name(name, 0, &walk.entity_name))
        status = sqlite_damaged(walk.session, "entity", entity_ref);
    /* Events of an entity that is not there are damage; without any, it is only not there. */
    if (status == STATUS_OK || status == STATUS_NOT_FOUND) {
        sqlite_bind_bound(walk.statement, 1, entity_ref);
        sqlite_bind_bound(walk.statement, 2, after_seq);
        sqlite_bind_bound(walk.statement, 3, limit);
        status = walk_rows(&walk, each_entity_event);
    }
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
    return walk_rows(&walk, each_event);
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
    return walk_rows(&walk, each_entity);
}

enum status sqlite_walk_topics(struct store_session *session, uint64_t after_ref, uint64_t limit,
                               void *user, store_topic_cb *callback) {
    struct walk walk = {.callback.topic = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_TOPICS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, after_ref);
    sqlite_bind_bound(walk.statement, 2, limit);
    return walk_rows(&walk, each_topic);
}

enum status sqlite_walk_documents(struct store_session *session, enum document_kind kind,
                                  uint64_t after_ref, uint64_t limit, void *user,
                                  store_document_cb *callback) {
    struct walk walk = {.callback.document = callback, .document_kind = kind};
    enum statement_id id = STATEMENT_WALK_DOCUMENTS + kind;
    enum status status = walk_begin(&walk, session, id, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, after_ref);
    sqlite_bind_bound(walk.statement, 2, limit);
    return walk_rows(&walk, each_document);
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
    return walk_rows(&walk, each_journal);
}

enum status sqlite_walk_drifts(struct store_session *session, uint64_t limit, void *user,
                               store_drift_cb *callback) {
    struct walk walk = {.callback.drift = callback};
    enum status status = walk_begin(&walk, session, STATEMENT_WALK_DRIFTS, user);
    if (status != STATUS_OK)
        return status;
    sqlite_bind_bound(walk.statement, 1, limit);
    return walk_rows(&walk, each_drift);
}
