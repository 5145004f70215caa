/* The owners of journal rows, by the page. Without the payload column the database does not fetch
 * payloads that it stores apart. */
#include "base/limits.h"
#include "store/postgres/postgres.h"

static enum status call_row(struct postgres_session *session, struct postgres_row row, void *user,
                            store_owner_cb *callback) {
    uint64_t seq = postgres_number(row, 0);
    if (postgres_is_null(row, 1))
        return postgres_damaged(session, "the entity of journal row", seq);
    const struct owner owner = {.user_id = postgres_text(row, 2),
                                .guest_scope = postgres_text(row, 3),
                                .org_id = postgres_text(row, 4)};
    return callback(user, seq, &owner);
}

enum status postgres_walk_owners(struct store_session *base, uint64_t topic_ref, uint64_t after_seq,
                                 uint64_t limit, void *user, store_owner_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    enum status status = STATUS_OK;
    while (status == STATUS_OK && limit > 0) {
        if (store_session_is_cancelled(base))
            return STATUS_STORE_UNAVAILABLE;
        uint64_t row_count =
            limit < POSTGRES_OWNERS_PAGE_ROWS_MAX ? limit : POSTGRES_OWNERS_PAGE_ROWS_MAX;
        PGresult *result = NULL;
        postgres_begin(session, STATEMENT_WALK_OWNERS);
        postgres_put_bound(session, topic_ref);
        postgres_put_bound(session, after_seq);
        postgres_put_number(session, row_count);
        status = postgres_query(session, &result);
        if (status != STATUS_OK)
            return status;
        int count = PQntuples(result);
        for (int i = 0; status == STATUS_OK && i < count; i++)
            status = call_row(session, (struct postgres_row){result, i}, user, callback);
        if (count > 0)
            after_seq = postgres_number((struct postgres_row){result, count - 1}, 0);
        PQclear(result);
        limit = (uint64_t)count < row_count ? 0 : limit - row_count;
    }
    return status;
}
