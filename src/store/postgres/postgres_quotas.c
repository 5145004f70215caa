/* What owners have stored, and their quotas. */
#include "store/postgres/postgres.h"

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
