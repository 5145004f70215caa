/* Revocations, tokens and nonces that may be used once, and generated secrets. Each write removes a
 * bounded number of expired rows, so that the tables stay small and no write takes long. */
#include "store/postgres/postgres.h"

/* Sends the removal of expired rows, after the beginning of the transaction. */
static enum status begin(struct postgres_session *session, enum statement_id drop,
                         uint64_t now_ms) {
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    if (drop == STATEMENT_DROP_REVOCATIONS) {
        postgres_begin(session, STATEMENT_LOCK_REVOCATIONS);
        postgres_put_number(session, POSTGRES_REVOCATION_LOCK);
        status = postgres_pipeline_send(session);
    }
    if (status != STATUS_OK)
        return postgres_write_end(session, status);
    postgres_begin(session, drop);
    postgres_put_bound(session, now_ms);
    status = postgres_pipeline_send(session);
    return status == STATUS_OK ? STATUS_OK : postgres_write_end(session, status);
}

/* Sends the last statement, and receives the results of so many statements. */
static enum status finish(struct postgres_session *session, int count) {
    enum status status = postgres_pipeline_send(session);
    if (status == STATUS_OK)
        status = postgres_pipeline_sync(session);
    if (status == STATUS_OK)
        status = postgres_write_check(session);
    for (int i = 0; status == STATUS_OK && i < count; i++) {
        PGresult *result = NULL;
        status = postgres_pipeline_receive(session, &result);
        PQclear(result);
    }
    status = postgres_write_end(session, status);
    /* These rows may be written again, so an unknown outcome is a failure. */
    return status == STATUS_APPEND_OUTCOME_UNKNOWN && session->base.mode == STORE_SIDE
               ? STATUS_STORE_UNAVAILABLE
               : status;
}

enum status postgres_put_revocations(struct store_session *base,
                                     const struct store_revocation *revocations, size_t count,
                                     uint64_t now_ms) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = begin(session, STATEMENT_DROP_REVOCATIONS, now_ms);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_PUT_REVOCATIONS);
    for (size_t i = 0; i < count; i++) {
        postgres_put_number(session, (uint64_t)revocations[i].kind);
        postgres_put_text(session, revocations[i].id);
        postgres_put_text(session, revocations[i].reason);
        postgres_put_number(session, revocations[i].revoked_at_ms);
        postgres_put_number(session, revocations[i].expires_at_ms);
    }
    return finish(session, 3);
}

enum status postgres_use_once(struct store_session *base, enum single_use_kind kind,
                              struct slice id, uint64_t expires_at_ms, uint64_t now_ms) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = begin(session, STATEMENT_DROP_SINGLE_USES, now_ms);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_ADD_SINGLE_USE);
    postgres_put_number(session, (uint64_t)kind);
    postgres_put_text(session, id);
    postgres_put_number(session, expires_at_ms);
    return finish(session, 2);
}

enum status postgres_lock_secrets(struct store_session *base) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_LOCK_SECRETS);
    postgres_put_number(session, POSTGRES_SECRET_LOCK);
    return postgres_run(session);
}

enum status postgres_keep_secret(struct store_session *base, struct slice name, struct slice value,
                                 bool replaces) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = postgres_write_begin(session);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_KEEP_SECRET);
    postgres_put_text(session, name);
    postgres_put_text(session, value);
    postgres_put_number(session, replaces);
    return finish(session, 1);
}

enum status postgres_load_secret(struct store_session *base, struct slice name, struct arena *arena,
                                 struct slice *value) {
    struct postgres_session *session = postgres_session_of(base);
    postgres_begin(session, STATEMENT_SECRET);
    postgres_put_text(session, name);
    return postgres_query_text(session, arena, value);
}
