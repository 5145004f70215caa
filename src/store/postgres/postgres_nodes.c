/* The rows of the nodes, and how far the log is for nodes that follow. */
#include <stdio.h>

#include "store/postgres/postgres.h"
#include "store/postgres/postgres_migrations.h"

#define NODE_ROWS_MAX   1000
#define DAMAGE_ROWS_MAX 500

enum status postgres_send_commit_row(struct postgres_session *session,
                                     const struct store_batch *batch) {
    size_t count = 0;
    postgres_begin(session, STATEMENT_ADD_COMMIT);
    for (size_t i = 0; i < batch->topic_count; i++) {
        /* The events of the log announce the topics of entities. */
        if (batch->topics[i].entity_ref > 0)
            continue;
        postgres_put_number(session, batch->topics[i].ref);
        count++;
    }
    return count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

enum status postgres_put_node(struct store_session *base, const struct store_node *node) {
    struct postgres_session *session = postgres_session_of(base);
    struct uuid cursor;
    /* A client may have read events that were not announced yet. */
    uint64_t log_id = postgres_last_read(session->store, &cursor);
    if (log_id < node->log_id) {
        log_id = node->log_id;
        cursor = node->cursor;
    }
    struct postgres_store *store = session->store;
    pthread_mutex_lock(&store->read_lock);
    snprintf(store->node_id.text, sizeof(store->node_id.text), "%.*s", (int)node->id.size,
             node->id.data);
    pthread_mutex_unlock(&store->read_lock);
    postgres_begin(session, STATEMENT_PUT_NODE);
    postgres_put_text(session, node->id);
    postgres_put_text(session, node->address);
    postgres_put_text(session, node->operator_address);
    postgres_put_text(session, node->version);
    postgres_put_number(session, POSTGRES_SCHEMA_VERSION);
    postgres_put_text(session, node->is_writer ? SLICE("writer") : SLICE("follower"));
    postgres_put_number(session, node->term);
    postgres_put_number(session, log_id);
    postgres_put_uuid(session, log_id > 0 ? &cursor : NULL);
    postgres_put_number(session, node->revocations_seen);
    postgres_put_text(session, node->topics_hash);
    return postgres_run(session);
}

enum status postgres_tidy_nodes(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_DROP_OLD_NODES);
    enum status status = postgres_run(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_DROP_OLD_COMMITS);
    postgres_put_number(session, POSTGRES_COMMITS_KEPT);
    return postgres_run(session);
}

enum status postgres_drop_node(struct store_session *base, struct slice id) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_DROP_NODE);
    postgres_put_text(session, id);
    return postgres_run(session);
}

enum status postgres_report_damage(struct store_session *base, const struct store_damage *damage) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_REPORT_DAMAGE);
    postgres_put_number(session, damage->kind);
    postgres_put_number(session, damage->entity_ref);
    postgres_put_number(session, damage->seq);
    postgres_put_text(session, damage->topic.data ? damage->topic : SLICE(""));
    postgres_put_number(session, DAMAGE_ROWS_MAX);
    return postgres_run(session);
}

enum status postgres_take_damages(struct store_session *base, void *user,
                                  void (*callback)(void *user, const struct store_damage *damage)) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_TAKE_DAMAGES);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        const struct store_damage damage = {
            .kind = (enum document_kind)postgres_number(row, 0),
            .entity_ref = postgres_number(row, 1),
            .seq = postgres_number(row, 2),
            .topic = postgres_text(row, 3),
        };
        if (damage.kind <= DOCUMENT_NONE)
            callback(user, &damage);
    }
    PQclear(result);
    return status;
}

static bool row_node(struct postgres_row row, struct store_node *node) {
    *node = (struct store_node){
        .id = postgres_text(row, 0),
        .address = postgres_text(row, 1),
        .operator_address = postgres_text(row, 2),
        .version = postgres_text(row, 3),
        .schema_version = postgres_number(row, 4),
        .is_writer = postgres_number(row, 5) == 1,
        .term = postgres_number(row, 6),
        .log_id = postgres_number(row, 7),
        .revocations_seen = postgres_number(row, 9),
        .started_at_ms = postgres_number(row, 10),
        .age_ms = postgres_number(row, 11),
        .topics_hash = postgres_text(row, 12),
    };
    return node->id.data && node->address.data && node->version.data &&
           (node->log_id == 0 ||
            postgres_bytes(row, 8, node->cursor.bytes, sizeof(node->cursor.bytes)));
}

enum status postgres_walk_nodes(struct store_session *base, void *user, store_node_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_WALK_NODES);
    postgres_put_number(session, NODE_ROWS_MAX);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct store_node node;
        status = row_node((struct postgres_row){result, i}, &node)
                     ? callback(user, &node)
                     : postgres_damaged(session, "the row of a node, of", (uint64_t)i);
    }
    PQclear(result);
    return status;
}

enum status postgres_read_progress(struct store_session *base, uint64_t after_commit_id,
                                   struct store_progress *progress) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    /* Taken before the query, so that it must find these events. */
    const struct postgres_memory memory = postgres_remember(session->store);
    postgres_begin(session, STATEMENT_PROGRESS);
    postgres_put_number(session, after_commit_id);
    postgres_put_number(session, memory.read.log_id);
    postgres_put_uuid(session, &memory.read.cursor);
    postgres_put_number(session, memory.followed.log_id);
    postgres_put_uuid(session, &memory.followed.cursor);
    enum status status = postgres_query(session, &result);
    if (status != STATUS_OK)
        return status;
    struct postgres_row row = {result, 0};
    struct slice epoch = postgres_text(row, 0);
    *progress = (struct store_progress){
        .log_id = postgres_number(row, 1),
        .commit_id = postgres_number(row, 3),
        .commit_id_min = postgres_number(row, 4),
        .has_unlisted = postgres_number(row, 5) == 1,
        .revocation_serial = postgres_number(row, 6),
        .term = postgres_number(row, 7),
        .schema_version = postgres_number(row, 8),
        .reader_version = postgres_number(row, 9),
    };
    bool is_sound = epoch.size == STORE_EPOCH_SIZE &&
                    (progress->log_id == 0 || postgres_bytes(row, 2, progress->cursor.bytes,
                                                             sizeof(progress->cursor.bytes)));
    bool is_lost = postgres_number(row, 10) > 0;
    if (is_sound)
        memcpy(progress->epoch, epoch.data, epoch.size);
    else
        status = postgres_damaged(session, "the state after event", progress->log_id);
    PQclear(result);
    if (status != STATUS_OK)
        return status;
    if (is_lost && strcmp(progress->epoch, memory.epoch) == 0)
        return postgres_report_loss(session, progress->epoch);
    postgres_note_followed(session->store, progress);
    return STATUS_OK;
}
