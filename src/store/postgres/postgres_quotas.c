/* What owners have stored, and their quotas. */
#include "store/postgres/postgres.h"

enum status postgres_send_usages(struct postgres_session *session,
                                 const struct store_batch *batch) {
    postgres_begin(session, STATEMENT_PUT_USAGES);
    for (size_t i = 0; i < batch->usage_count; i++) {
        const struct store_usage *usage = &batch->usages[i];
        postgres_put_text(session, usage->owner);
        postgres_put_number(session, usage->events);
        postgres_put_number(session, usage->bytes);
        postgres_put_number(session, usage->metadata_bytes);
        postgres_put_number(session, usage->open_runs);
        postgres_put_number(session, usage->open_workers);
        postgres_put_number(session, usage->unowned_bytes);
    }
    return postgres_pipeline_send(session);
}

/* What a count finds too, in columns that begin at first. */
static void read_numbers(struct postgres_row row, int first, struct store_usage *usage) {
    usage->events = postgres_number(row, first);
    usage->bytes = postgres_number(row, first + 1);
    usage->metadata_bytes = postgres_number(row, first + 2);
    usage->open_runs = postgres_number(row, first + 3);
    usage->open_workers = postgres_number(row, first + 4);
}

static void read_usage(struct postgres_row row, struct store_usage *usage) {
    read_numbers(row, 1, usage);
    usage->unowned_bytes = postgres_number(row, 6);
}

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
        if (number >= 1 && number <= count)
            read_usage(row, &usages[number - 1]);
    }
    PQclear(result);
    return status;
}

enum status postgres_walk_usages(struct store_session *base, struct slice after_owner,
                                 uint64_t limit, void *user, store_usage_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_WALK_USAGES);
    postgres_put_text(session, after_owner.data ? after_owner : SLICE(""));
    postgres_put_bound(session, limit);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_usage usage = {.owner = postgres_text(row, 0)};
        read_usage(row, &usage);
        status = callback(user, &usage);
    }
    PQclear(result);
    return status;
}

enum status postgres_check_usages(struct store_session *base, uint64_t limit, void *user,
                                  store_usage_difference_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_CHECK_USAGES);
    postgres_put_bound(session, limit);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        struct store_usage stored = {.owner = postgres_text(row, 0)};
        struct store_usage counted = stored;
        read_numbers(row, 1, &stored);
        read_numbers(row, 6, &counted);
        status = callback(user, &stored, &counted);
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
    for (size_t i = 0; i < count; i++) {
        postgres_put_text(session, quotas[i].owner);
        postgres_put_text(session, quotas[i].name);
        if (quotas[i].is_set)
            postgres_put_number(session, quotas[i].value);
        else
            postgres_put_optional(session, 0);
    }
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

enum status postgres_walk_quotas(struct store_session *base, uint64_t after_serial, void *user,
                                 store_quota_cb *callback) {
    struct postgres_session *session = postgres_session_of(base);
    PGresult *result = NULL;
    postgres_begin(session, STATEMENT_WALK_QUOTAS);
    postgres_put_bound(session, after_serial);
    enum status status = postgres_query(session, &result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
        struct postgres_row row = {result, i};
        const struct store_quota quota = {
            .owner = postgres_text(row, 0),
            .name = postgres_text(row, 1),
            .is_set = !postgres_is_null(row, 2),
            .value = postgres_number(row, 2),
            .serial = postgres_number(row, 3),
        };
        status = callback(user, &quota);
    }
    PQclear(result);
    return status;
}
