/* The outbox: rows of users' own transactions. The writer reads those that are visible, and removes
 * them in the commit that sequences them. Between the two steps only the writer removes rows; a
 * commit that finds fewer is refused. So no row is lost and none is sequenced twice. */
#include <stdio.h>

#include "store/postgres/postgres.h"

enum outbox_column {
    OUTBOX_ID,
    OUTBOX_KIND,
    OUTBOX_TARGET,
    OUTBOX_EVENT_TYPE,
    OUTBOX_PAYLOAD,
    OUTBOX_EVENT_ID,
    OUTBOX_IDEMPOTENCY_KEY,
    OUTBOX_USER_ID,
    OUTBOX_GUEST_SCOPE,
    OUTBOX_ORG_ID,
    OUTBOX_FITS,
    OUTBOX_AGE_MS,
    OUTBOX_WAITING,
};

/* Another server may have written its limits meanwhile, so each term writes its own. */
static enum status put_limits(struct postgres_session *session,
                              const struct store_outbox_query *query) {
    if (session->limits_term == session->term.number &&
        session->limits_edition == query->limits_edition)
        return STATUS_OK;
    postgres_begin(session, STATEMENT_PUT_OUTBOX_LIMITS);
    for (size_t i = 0; i < query->limit_count; i++) {
        postgres_put_text(session, query->limits[i].kind);
        postgres_put_bound(session, query->limits[i].payload_bytes_max);
    }
    enum status status = postgres_run(session);
    if (status == STATUS_OK) {
        session->limits_term = session->term.number;
        session->limits_edition = query->limits_edition;
    }
    return status;
}

enum status postgres_read_outbox(struct store_session *base, const struct store_outbox_query *query,
                                 void *user, store_outbox_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    enum status status = put_limits(session, query);
    if (status != STATUS_OK)
        return status;
    postgres_begin(session, STATEMENT_READ_OUTBOX);
    postgres_put_bound(session, query->row_max);
    postgres_put_bound(session, query->row_bytes_max);
    postgres_put_bound(session, query->bytes_max);
    postgres_put_number(session, STORE_OUTBOX_COUNT_MAX);
    status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        const struct store_outbox_row read = {
            .id = (int64_t)postgres_number(row, OUTBOX_ID),
            .kind = postgres_text(row, OUTBOX_KIND),
            .target = postgres_text(row, OUTBOX_TARGET),
            .event_type = postgres_text(row, OUTBOX_EVENT_TYPE),
            .payload = postgres_text(row, OUTBOX_PAYLOAD),
            .event_id = postgres_text(row, OUTBOX_EVENT_ID),
            .idempotency_key = postgres_text(row, OUTBOX_IDEMPOTENCY_KEY),
            .owner = {.user_id = postgres_text(row, OUTBOX_USER_ID),
                      .guest_scope = postgres_text(row, OUTBOX_GUEST_SCOPE),
                      .org_id = postgres_text(row, OUTBOX_ORG_ID)},
            .is_oversized = postgres_number(row, OUTBOX_FITS) == 0,
            .age_ms = postgres_number(row, OUTBOX_AGE_MS),
            .waiting_count = postgres_number(row, OUTBOX_WAITING),
        };
        callback(user, &read);
    }
    PQclear(result);
    return status;
}

enum status postgres_send_outbox(struct postgres_session *session,
                                 const struct store_batch *batch) {
    enum status status = STATUS_OK;
    if (batch->rejection_count > 0) {
        postgres_begin(session, STATEMENT_REJECT_OUTBOX);
        for (size_t i = 0; i < batch->rejection_count; i++) {
            postgres_put_signed(session, batch->rejections[i].id);
            postgres_put_text(session, batch->rejections[i].code);
            postgres_put_text(session, batch->rejections[i].message);
        }
        status = postgres_pipeline_send(session);
        postgres_begin(session, STATEMENT_DROP_OLD_REJECTED);
        postgres_put_number(session, POSTGRES_REJECTED_MAX);
        if (status == STATUS_OK)
            status = postgres_pipeline_send(session);
    }
    postgres_begin(session, STATEMENT_DELETE_OUTBOX);
    for (size_t i = 0; i < batch->outbox_count; i++)
        postgres_put_signed(session, batch->outbox_ids[i]);
    return status == STATUS_OK ? postgres_pipeline_send(session) : status;
}

static void copy_text(struct slice text, char *to, size_t size) {
    snprintf(to, size, "%.*s", (int)text.size, text.data ? text.data : "");
}

enum status postgres_outbox_state(struct store_session *base, struct store_outbox_state *state) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_OUTBOX_STATE);
    postgres_put_number(session, STORE_OUTBOX_COUNT_MAX);
    enum status status = postgres_query(session, &result);
    if (status == STATUS_OK) {
        struct postgres_row row = {result, 0};
        *state = (struct store_outbox_state){
            .waiting_count = postgres_number(row, 0),
            .oldest_age_ms = postgres_number(row, 1),
            .rejected_count = postgres_number(row, 2),
            .has_producer_role = postgres_number(row, 5) > 0,
        };
        copy_text(postgres_text(row, 3), state->rejected_code, sizeof(state->rejected_code));
        copy_text(postgres_text(row, 4), state->rejected_message, sizeof(state->rejected_message));
    }
    PQclear(result);
    return status;
}
