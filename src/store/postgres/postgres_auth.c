/* Revocations, tokens and nonces that may be used once, operator keys, generated
 * secrets, usage and quotas.
 * Writes of the first two remove a bounded number of expired rows, so that the tables stay small
 * and no write takes long. */
#include "store/postgres/postgres.h"

/* Sends the removal of expired rows, after the beginning of the transaction. */
static enum status begin(struct postgres_session *session, enum statement_id drop,
                         uint64_t now_ms) {
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    if (drop == STATEMENT_DROP_REVOCATIONS) {
        postgres_begin(session, STATEMENT_LOCK_REVOCATIONS);
        status = postgres_pipeline_send(session);
    }
    if (status != STATUS_OK)
        return postgres_write_end(session, status);
    postgres_begin(session, drop);
    postgres_put_bound(session, now_ms);
    status = postgres_pipeline_send(session);
    return status == STATUS_OK ? STATUS_OK : postgres_write_end(session, status);
}

/* Receives the results of the first statements, after all were sent. */
static enum status receive(struct postgres_session *session, int count) {
    enum status status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    for (int i = 0; status == STATUS_OK && i < count; i++) {
        PGresult *result = NULL;
        status = postgres_pipeline_receive(session, &result);
        PQclear(result);
    }
    return status;
}

/* These rows may be written again, so an unknown outcome is a failure. */
static enum status end(struct postgres_session *session, enum status status) {
    status = postgres_write_end(session, status);
    return status == STATUS_APPEND_OUTCOME_UNKNOWN && session->base.mode == STORE_SIDE
               ? STATUS_STORE_UNAVAILABLE
               : status;
}

/* Sends the last statement, and receives the results of so many statements. */
static enum status finish(struct postgres_session *session, int count) {
    enum status status = postgres_pipeline_send(session);
    return end(session, status == STATUS_OK ? receive(session, count) : status);
}

enum status postgres_put_revocations(struct store_session *base,
                                     const struct store_revocation *revocations, size_t count,
                                     uint64_t now_ms) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = begin(session, STATEMENT_DROP_REVOCATIONS, now_ms);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PUT_REVOCATIONS);
    for (size_t i = 0; i < count; i++)
        postgres_put_row(session, &revocations[i]);
    return finish(session, 3);
}

/* The use that a new row is of: of two equal ones the first. */
static void note_first(struct store_single_use *uses, size_t count, struct postgres_row row) {
    enum single_use_kind kind = (enum single_use_kind)postgres_number(row, 0);
    struct slice id = postgres_text(row, 1);
    size_t i = 0;
    while (i < count && !(uses[i].was_used && uses[i].kind == kind && slice_equal(uses[i].id, id)))
        i++;
    if (i < count)
        uses[i].was_used = false;
}

enum status postgres_use_once(struct store_session *base, struct store_single_use *uses,
                              size_t count, uint64_t now_ms) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    enum status status = begin(session, STATEMENT_DROP_SINGLE_USES, now_ms);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_ADD_SINGLE_USES);
    for (size_t i = 0; i < count; i++) {
        postgres_put_row(session, &uses[i]);
        uses[i].was_used = true;
    }
    status = postgres_pipeline_send(session);
    if (status == STATUS_OK)
        status = receive(session, 1);
    if (status == STATUS_OK)
        status = postgres_pipeline_receive(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++)
        note_first(uses, count, (struct postgres_row){result, i});
    PQclear(result);
    return end(session, status);
}

/* The lock is of a transaction, in which the secrets are read and kept. */
enum status postgres_lock_secrets(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_BEGIN);
    enum status status = postgres_run(session);
    session->in_transaction = status == STATUS_OK;
    postgres_begin(session, STATEMENT_LOCK_SECRETS);
    return status == STATUS_OK ? postgres_run(session) : status;
}

enum status postgres_commit_secrets(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_ensure(session);
    session->in_transaction = false;
    return status == STATUS_OK
               ? postgres_execute(session->store, session->connection, "COMMIT", session->error)
               : status;
}

enum status postgres_keep_secret(struct store_session *base, struct slice name, struct slice value,
                                 bool replaces) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = session->in_transaction ? STATUS_OK : postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_KEEP_SECRET);
    postgres_put_text(session, name);
    postgres_put_text(session, value);
    postgres_put_number(session, replaces);
    return session->in_transaction ? postgres_run(session) : finish(session, 1);
}

enum status postgres_load_secret(struct store_session *base, struct slice name, struct arena *arena,
                                 struct slice *value) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_SECRET);
    postgres_put_text(session, name);
    return postgres_query_text(session, arena, value);
}

/* ---- operator keys ---- */

enum status postgres_put_operator_key(struct store_session *base,
                                      const struct store_operator_key *key) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PUT_OPERATOR_KEY);
    postgres_put_row(session, key);
    return finish(session, 1);
}

enum status postgres_drop_operator_key(struct store_session *base, struct slice name) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_DROP_OPERATOR_KEY);
    postgres_put_text(session, name);
    return finish(session, 1);
}

enum status postgres_leave_audit_event(struct store_session *base, struct slice type,
                                       struct slice payload) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_LEAVE_AUDIT_EVENT);
    postgres_put_text(session, type);
    postgres_put_text(session, payload);
    return finish(session, 1);
}

/* ---- what owners have stored, and their quotas ---- */

enum status postgres_load_usages(struct store_session *base, struct store_usage *usages,
                                 size_t count) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_LOAD_USAGE);
    for (size_t i = 0; i < count; i++) {
        usages[i] = (struct store_usage){.owner = usages[i].owner};
        postgres_put_text(session, usages[i].owner);
    }
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        uint64_t number = postgres_number(row, 7);
        if (number < 1 || number > count)
            continue;
        struct store_usage *usage = &usages[number - 1];
        struct slice owner = usage->owner;
        if (!postgres_read_row(row, 0, &store_usage_layout, usage))
            status = postgres_damaged(session, "the usage of an owner, bytes", usage->bytes);
        usage->owner = owner;
    }
    PQclear(result);
    return status;
}

enum status postgres_check_usages(struct store_session *base, uint64_t limit, void *user,
                                  store_usage_difference_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    const struct store_column *columns = store_usage_layout.columns;
    size_t counted_count = STORE_COUNT(STORE_USAGE_COUNTED);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_CHECK_USAGES);
    postgres_put_bound(session, limit);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_usage stored = {.owner = postgres_text(row, 0)};
        struct store_usage counted = stored;
        bool is_sound = postgres_read_columns(row, 1, columns + 1, counted_count, &stored) &&
                        postgres_read_columns(row, 1 + (int)counted_count, columns + 1,
                                              counted_count, &counted);
        status = is_sound ? callback(user, &stored, &counted) : STATUS_INTERNAL_ERROR;
    }
    PQclear(result);
    return status;
}

enum status postgres_put_quotas(struct store_session *base, const struct store_quota *quotas,
                                size_t count) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PUT_QUOTA);
    for (size_t i = 0; i < count; i++)
        postgres_put_row(session, &quotas[i]);
    status = postgres_pipeline_send(session);
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    PGresult *result = NULL;
    if (status == STATUS_OK)
        status = postgres_pipeline_receive(session, &result);
    PQclear(result);
    return postgres_write_end(session, status);
}
