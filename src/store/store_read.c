/* Loads and walks of store.h: each is a query, which the engine answers with rows of one layout. */
#include <assert.h>

#include "store/store_engine.h"

/* ---- one row ---- */

enum status store_load_entity(struct store_session *session, enum entity_kind kind, struct slice id,
                              struct arena *arena, struct store_entity *entity) {
    const struct store_query query = {.id = STORE_ENTITY_BY_ID, .scope = kind, .name = id};
    return session->engine->load(session, &query, arena, entity);
}

enum status store_load_entity_ref(struct store_session *session, uint64_t ref, struct arena *arena,
                                  struct store_entity *entity) {
    const struct store_query query = {.id = STORE_ENTITY_BY_REF, .scope = ref};
    return session->engine->load(session, &query, arena, entity);
}

enum status store_load_event(struct store_session *session, uint64_t log_id, struct arena *arena,
                             struct store_event *event) {
    const struct store_query query = {.id = STORE_EVENT_BY_NUMBER, .scope = log_id};
    return session->engine->load(session, &query, arena, event);
}

enum status store_load_topic(struct store_session *session, struct slice name, struct arena *arena,
                             struct store_topic *topic) {
    const struct store_query query = {.id = STORE_TOPIC_BY_NAME, .name = name};
    return session->engine->load(session, &query, arena, topic);
}

enum status store_load_stream(struct store_session *session, struct slice stream_id,
                              struct arena *arena, struct store_topic *topic) {
    const struct store_query query = {.id = STORE_TOPIC_BY_STREAM, .name = stream_id};
    return session->engine->load(session, &query, arena, topic);
}

enum status store_load_document(struct store_session *session, enum document_kind kind,
                                uint64_t entity_ref, struct arena *arena,
                                struct store_document *document) {
    const struct store_query query = {.id = STORE_DOCUMENT, .document = kind, .scope = entity_ref};
    enum status status = session->engine->load(session, &query, arena, document);
    if (status == STATUS_OK)
        document->kind = kind;
    return status;
}

enum status store_load_checkpoint(struct store_session *session, enum document_kind kind,
                                  uint64_t entity_ref, struct arena *arena,
                                  struct store_checkpoint *checkpoint) {
    const struct store_query query = {
        .id = STORE_CHECKPOINT, .document = kind, .scope = entity_ref};
    return session->engine->load(session, &query, arena, checkpoint);
}

const struct store_layout *store_query_layout(const struct store_query *query) {
    static const struct store_layout *const layouts[STORE_QUERY_COUNT] = {
        [STORE_ENTITY_BY_ID] = &store_entity_layout,
        [STORE_ENTITY_BY_REF] = &store_entity_layout,
        [STORE_EVENT_BY_NUMBER] = &store_event_layout,
        [STORE_TOPIC_BY_NAME] = &store_topic_layout,
        [STORE_TOPIC_BY_STREAM] = &store_topic_layout,
        [STORE_DOCUMENT] = &store_document_layout,
        [STORE_CHECKPOINT] = &store_checkpoint_layout,
        [STORE_WALK_ENTITY_EVENTS] = &store_event_layout,
        [STORE_WALK_ENTITY_FRAMES] = &store_event_layout,
        [STORE_WALK_LOG] = &store_event_layout,
        [STORE_WALK_ENTITIES] = &store_entity_layout,
        [STORE_LIST_ENTITIES] = &store_entity_layout,
        [STORE_WALK_TOPICS] = &store_topic_layout,
        [STORE_LIST_TOPICS] = &store_topic_layout,
        [STORE_WALK_CHANGED_TOPICS] = &store_topic_layout,
        [STORE_WALK_DOCUMENTS] = &store_walked_document_layout,
        [STORE_WALK_JOURNAL] = &store_journal_layout,
        [STORE_WALK_OWNERS] = &store_owner_layout,
        [STORE_WALK_DRIFTS] = &store_drift_layout,
        [STORE_WALK_REVOCATIONS] = &store_revocation_layout,
        [STORE_WALK_NEW_REVOCATIONS] = &store_revocation_layout,
        [STORE_WALK_USAGES] = &store_usage_layout,
        [STORE_WALK_QUOTAS] = &store_quota_layout,
        [STORE_WALK_OPERATOR_KEYS] = &store_operator_key_layout,
    };
    return layouts[query->id];
}

/* ---- walks ---- */

/* The callback of the caller, by the row that it takes. */
struct walk {
    struct store_query query;
    void *user;
    union {
        store_event_cb *event;
        store_entity_cb *entity;
        store_topic_cb *topic;
        store_document_cb *document;
        store_journal_cb *journal;
        store_owner_cb *owner;
        store_drift_cb *drift;
        store_revocation_cb *revocation;
        store_usage_cb *usage;
        store_quota_cb *quota;
        store_operator_key_cb *operator_key;
    } callback;
};

static enum status call(void *user, const union store_row *row) {
    const struct walk *walk = user;
    const struct store_layout *layout = store_query_layout(&walk->query);
    if (layout == &store_event_layout)
        return walk->callback.event(walk->user, &row->event);
    if (layout == &store_entity_layout)
        return walk->callback.entity(walk->user, &row->entity);
    if (layout == &store_topic_layout)
        return walk->callback.topic(walk->user, &row->topic);
    if (layout == &store_walked_document_layout)
        return walk->callback.document(walk->user, &row->document);
    if (layout == &store_journal_layout)
        return walk->callback.journal(walk->user, &row->journal.row, &row->journal.event);
    if (layout == &store_owner_layout)
        return walk->callback.owner(walk->user, row->owner.seq, &row->owner.owner);
    if (layout == &store_drift_layout)
        return walk->callback.drift(walk->user, &row->drift);
    if (layout == &store_revocation_layout)
        return walk->callback.revocation(walk->user, &row->revocation);
    if (layout == &store_usage_layout)
        return walk->callback.usage(walk->user, &row->usage);
    if (layout == &store_quota_layout)
        return walk->callback.quota(walk->user, &row->quota);
    assert(layout == &store_operator_key_layout);
    return walk->callback.operator_key(walk->user, &row->operator_key);
}

static enum status run(struct store_session *session, const struct walk *walk) {
    return session->engine->walk(session, &walk->query, (void *)walk, call);
}

enum status store_walk_entity_events(struct store_session *session, uint64_t entity_ref,
                                     uint64_t after_seq, uint64_t limit, void *user,
                                     store_event_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_ENTITY_EVENTS,
                                                 .scope = entity_ref,
                                                 .after = after_seq,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.event = callback});
}

enum status store_walk_entity_frames(struct store_session *session, uint64_t entity_ref,
                                     uint64_t after_seq, uint64_t limit, void *user,
                                     store_event_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_ENTITY_FRAMES,
                                                 .scope = entity_ref,
                                                 .after = after_seq,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.event = callback});
}

enum status store_walk_log(struct store_session *session, uint64_t after_log_id, uint64_t limit,
                           void *user, store_event_cb *callback) {
    return run(session, &(struct walk){
                            .query = {.id = STORE_WALK_LOG, .after = after_log_id, .limit = limit},
                            .user = user,
                            .callback.event = callback});
}

enum status store_walk_entities(struct store_session *session, enum entity_kind kind,
                                uint64_t after_ref, uint64_t limit, void *user,
                                store_entity_cb *callback) {
    return run(
        session,
        &(struct walk){
            .query = {.id = STORE_WALK_ENTITIES, .scope = kind, .after = after_ref, .limit = limit},
            .user = user,
            .callback.entity = callback});
}

enum status store_walk_topics(struct store_session *session, uint64_t after_ref, uint64_t limit,
                              void *user, store_topic_cb *callback) {
    return run(session, &(struct walk){
                            .query = {.id = STORE_WALK_TOPICS, .after = after_ref, .limit = limit},
                            .user = user,
                            .callback.topic = callback});
}

enum status store_list_entities(struct store_session *session, enum entity_kind kind,
                                struct slice after_id, uint64_t limit, void *user,
                                store_entity_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_LIST_ENTITIES,
                                                 .scope = kind,
                                                 .after_name = after_id,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.entity = callback});
}

enum status store_list_topics(struct store_session *session, struct slice prefix,
                              struct slice after_name, uint64_t limit, void *user,
                              store_topic_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_LIST_TOPICS,
                                                 .name = prefix,
                                                 .after_name = after_name,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.topic = callback});
}

enum status store_walk_documents(struct store_session *session, enum document_kind kind,
                                 uint64_t after_ref, uint64_t limit, void *user,
                                 store_document_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_DOCUMENTS,
                                                 .document = kind,
                                                 .scope = document_row(kind)->entity,
                                                 .after = after_ref,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.document = callback});
}

enum status store_walk_journal(struct store_session *session, uint64_t topic_ref,
                               uint64_t after_seq, uint64_t limit, void *user,
                               store_journal_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_JOURNAL,
                                                 .scope = topic_ref,
                                                 .after = after_seq,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.journal = callback});
}

enum status store_walk_owners(struct store_session *session, uint64_t topic_ref, uint64_t after_seq,
                              uint64_t limit, void *user, store_owner_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_OWNERS,
                                                 .scope = topic_ref,
                                                 .after = after_seq,
                                                 .limit = limit},
                                       .user = user,
                                       .callback.owner = callback});
}

enum status store_walk_drifts(struct store_session *session, uint64_t limit, void *user,
                              store_drift_cb *callback) {
    return run(session, &(struct walk){
                            .query = {.id = STORE_WALK_DRIFTS, .after = INT64_MAX, .limit = limit},
                            .user = user,
                            .callback.drift = callback});
}

enum status store_walk_revocations(struct store_session *session, uint64_t now_ms, void *user,
                                   store_revocation_cb *callback) {
    return run(session,
               &(struct walk){
                   .query = {.id = STORE_WALK_REVOCATIONS, .scope = now_ms, .limit = UINT64_MAX},
                   .user = user,
                   .callback.revocation = callback});
}

enum status store_walk_usages(struct store_session *session, struct slice after_owner,
                              uint64_t limit, void *user, store_usage_cb *callback) {
    return run(session,
               &(struct walk){
                   .query = {.id = STORE_WALK_USAGES, .after_name = after_owner, .limit = limit},
                   .user = user,
                   .callback.usage = callback});
}

enum status store_walk_quotas(struct store_session *session, uint64_t after_serial, void *user,
                              store_quota_cb *callback) {
    return run(session,
               &(struct walk){
                   .query = {.id = STORE_WALK_QUOTAS, .after = after_serial, .limit = UINT64_MAX},
                   .user = user,
                   .callback.quota = callback});
}

enum status store_walk_operator_keys(struct store_session *session, void *user,
                                     store_operator_key_cb *callback) {
    return run(session,
               &(struct walk){.query = {.id = STORE_WALK_OPERATOR_KEYS, .limit = UINT64_MAX},
                              .user = user,
                              .callback.operator_key = callback});
}

enum status store_walk_changed_topics(struct store_session *session, uint64_t after_commit_id,
                                      void *user, store_topic_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_CHANGED_TOPICS,
                                                 .scope = after_commit_id,
                                                 .limit = UINT64_MAX},
                                       .user = user,
                                       .callback.topic = callback});
}

enum status store_walk_new_revocations(struct store_session *session, uint64_t after_serial,
                                       void *user, store_revocation_cb *callback) {
    return run(session, &(struct walk){.query = {.id = STORE_WALK_NEW_REVOCATIONS,
                                                 .after = after_serial,
                                                 .limit = UINT64_MAX},
                                       .user = user,
                                       .callback.revocation = callback});
}

/* ---- expiry ---- */

/* The first event whose cursor is young enough; one after the head when there is none. */
static enum status search_cursors(const struct store_topic *topic, uint64_t before_ms,
                                  void *session, expiry_cursor_cb *cursor_time,
                                  uint64_t *first_seq) {
    uint64_t low = topic->oldest_seq;
    uint64_t high = topic->head_seq + 1;
    uint64_t probe = low;
    while (low < high) {
        uint64_t at_ms = 0;
        enum status status = cursor_time(session, topic->entity_ref, probe, &at_ms);
        if (status != STATUS_OK)
            return status;
        if (at_ms < before_ms)
            low = probe + 1;
        else
            high = probe;
        probe = low + (high - low) / 2;
    }
    *first_seq = low;
    return STATUS_OK;
}

enum status expiry_begin(struct expiry_walk *walk, const struct store_topic *topic,
                         const struct store_expiry_query *query, struct store_expiry *expiry,
                         void *session, expiry_cursor_cb *cursor_time) {
    enum status status = STATUS_OK;
    *expiry = (struct store_expiry){.first_seq = topic->oldest_seq};
    *walk = (struct expiry_walk){.query = *query, .expiry = expiry};
    if (topic->entity_ref > 0 && topic->oldest_seq <= topic->head_seq) {
        /* Pruning events costs the same for any number of them. */
        walk->query.limit = UINT64_MAX;
        status = search_cursors(topic, query->before_ms, session, cursor_time, &expiry->first_seq);
    }
    walk->is_ended = expiry->first_seq > topic->head_seq;
    return status;
}

void expiry_take(struct expiry_walk *walk, uint64_t seq, uint64_t at_ms) {
    if (at_ms < walk->query.before_ms) {
        walk->expiry->first_seq = seq + 1;
        walk->is_ended = ++walk->counted >= walk->query.limit;
    } else if (at_ms <= walk->query.now_ms) {
        walk->expiry->first_at_ms = at_ms;
        walk->is_ended = true;
    }
}
