/* The outbox: the rows that are visible, in order, within the limits of a query; their removal by
 * the commit that answers them; and the limits that the writer stores for the SQL functions. */
#include "backend_postgres.h"
#include "rows.h"

#define ROWS_MAX 8

struct read {
    size_t count;
    int64_t ids[ROWS_MAX];
    bool are_oversized[ROWS_MAX];
    char payloads[ROWS_MAX][32];
    uint64_t waiting_count;
};

static void see(void *user, const struct store_outbox_row *row) {
    struct read *read = user;
    assert_true(read->count < ROWS_MAX);
    read->ids[read->count] = row->id;
    read->are_oversized[read->count] = row->is_oversized;
    struct slice payload = row->payload.data ? row->payload : SLICE("absent");
    snprintf(read->payloads[read->count], sizeof(read->payloads[0]), "%.*s", (int)payload.size,
             payload.data);
    if (read->count++ == 0)
        read->waiting_count = row->waiting_count;
}

static struct read read_outbox(struct fixture *fixture, uint64_t row_max, uint64_t row_bytes_max,
                               uint64_t bytes_max) {
    struct read read = {0};
    struct store_outbox_query query = {
        .row_max = row_max, .row_bytes_max = row_bytes_max, .bytes_max = bytes_max};
    assert_true(store_has_outbox(fixture->writer));
    assert_ok(store_read_outbox(fixture->writer, &query, &read, see));
    return read;
}

/* Rows 1 to 4; the texts of each have 20 bytes, those of row 3 have 1 014. */
static void fill(struct fixture *fixture) {
    pg_run(fixture->place,
           "INSERT INTO runtime.outbox (kind, target, event_type, payload) OVERRIDING SYSTEM VALUE "
           "SELECT 'topic', 'room', 'said', CASE WHEN n = 3 THEN repeat('x', 1001) ELSE '{\"n\":' "
           "|| n || '}' END FROM generate_series(1, 4) n ORDER BY n");
}

static void rows_are_read_in_their_order_with_all_texts(void **state) {
    struct fixture *fixture = *state;
    assert_int_equal(read_outbox(fixture, 10, 1000, 10000).count, 0);
    fill(fixture);
    struct read read = read_outbox(fixture, 10, 2000, 10000);
    assert_int_equal(read.count, 4);
    assert_int_equal(read.waiting_count, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(read.ids[i], i + 1);
    assert_string_equal(read.payloads[0], "{\"n\":1}");
    assert_string_equal(read.payloads[3], "{\"n\":4}");
}

static void a_query_limits_rows_and_bytes(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    assert_int_equal(read_outbox(fixture, 2, 2000, 10000).count, 2);
    assert_int_equal(read_outbox(fixture, 10, 2000, 20).count, 1);
    assert_int_equal(read_outbox(fixture, 10, 2000, 39).count, 1);
    assert_int_equal(read_outbox(fixture, 10, 2000, 40).count, 2);
    struct read read = read_outbox(fixture, 10, 1000, 10000);
    assert_int_equal(read.count, 4);
    assert_true(read.are_oversized[2] && !read.are_oversized[1]);
    assert_string_equal(read.payloads[2], "absent");
}

static void a_commit_removes_the_rows_that_it_answers(void **state) {
    struct fixture *fixture = *state;
    fill(fixture);
    int64_t ids[] = {1, 2};
    struct store_outbox_rejection rejection = {2, SLICE("invalid_request"), SLICE("no")};
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.outbox_ids = ids,
                                                                  .outbox_count = 2,
                                                                  .rejections = &rejection,
                                                                  .rejection_count = 1}));
    struct read read = read_outbox(fixture, 10, 2000, 10000);
    assert_int_equal(read.count, 2);
    assert_int_equal(read.ids[0], 3);
    struct store_outbox_state shown;
    assert_ok(store_outbox_state(fixture->reader, &shown));
    assert_int_equal(shown.waiting_count, 2);
    assert_int_equal(shown.rejected_count, 1);
    assert_string_equal(shown.rejected_code, "invalid_request");
    /* A row that is gone refuses the whole commit. */
    int64_t again[] = {2, 3};
    assert_int_equal(store_commit(fixture->writer,
                                  &(struct store_batch){.outbox_ids = again, .outbox_count = 2}),
                     STATUS_STORE_UNAVAILABLE);
    assert_int_equal(read_outbox(fixture, 10, 2000, 10000).count, 2);
}

static void the_limits_of_the_writer_reach_the_functions(void **state) {
    struct fixture *fixture = *state;
    struct read read = {0};
    struct store_outbox_limit limit = {SLICE("topic"), 20};
    struct store_outbox_query query = {
        .row_max = 1, .row_bytes_max = 1, .bytes_max = 1, .limits = &limit, .limit_count = 1};
    assert_ok(store_read_outbox(fixture->writer, &query, &read, see));
    pg_run(
        fixture->place,
        "DO $$ BEGIN IF (SELECT max_payload_bytes FROM runtime.outbox_limits WHERE kind = "
        "'topic') <> 20 OR (SELECT max_payload_bytes FROM runtime.outbox_limits WHERE kind = "
        "'run') <> 262144 THEN RAISE 'the limits differ'; END IF; PERFORM "
        "runtime.append_event('a', 'b', '{\"a\":\"12345678901\"}'); BEGIN PERFORM "
        "runtime.append_event('a', 'b', '{\"a\":\"123456789012345\"}'); RAISE 'taken'; EXCEPTION "
        "WHEN SQLSTATE 'KH413' THEN END; END $$");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_in_their_order_with_all_texts),
        cmocka_unit_test(a_query_limits_rows_and_bytes),
        cmocka_unit_test(a_commit_removes_the_rows_that_it_answers),
        cmocka_unit_test(the_limits_of_the_writer_reach_the_functions),
    };
    return CONTRACT_RUN_ONLY("the outbox", "postgres", tests);
}
