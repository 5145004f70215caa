#include "stored_log.h"

#include "base/log.h"

static struct verify_result run(struct stored_log *log) {
    const struct verify_options options = {0};
    struct verify_result result;
    assert_ok(verify(log->session, &options, &result));
    return result;
}

static struct stored_log *populated(void) {
    struct stored_log *log = log_open(NULL);
    for (int i = 0; i < 10; i++) {
        log_append(log, ENTITY_RUN, "r1", "x", "{\"n\":1}");
        log_append(log, ENTITY_WORKER, "w1", "worker.x", "{}");
        log_append(log, ENTITY_TOPIC, "app", "y", "[]");
    }
    log_append(log, ENTITY_AUDIT, "audit", "y", "[]");
    log_commit(log);
    return log;
}

/* log_id 4 is the second event of r1. */
static void expect_broken(const char *sql, const char *entity, uint64_t seq, uint64_t log_id,
                          const char *what) {
    struct stored_log *log = populated();
    log_alter(log, sql);
    struct verify_result result = run(log);
    assert_true(result.is_broken);
    assert_string_equal(result.broken.message, what);
    assert_string_equal(result.broken.entity, entity);
    assert_int_equal(result.broken.seq, seq);
    assert_int_equal(result.broken.log_id, log_id);
    log_close(log);
}

static void an_intact_log_passes(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    struct verify_result result = run(log);
    assert_false(result.is_broken);
    assert_int_equal(result.events, 0);
    log_close(log);
    log = populated();
    result = run(log);
    assert_false(result.is_broken);
    assert_int_equal(result.events, 31);
    assert_int_equal(result.entities, 4);
    log_close(log);
}

static void an_entity_with_the_largest_metadata_is_verified(void **state) {
    (void)state;
    struct stored_log *log = populated();
    log_alter(log, "UPDATE entities SET metadata = '{\"a\":\"' || hex(zeroblob(8388600)) || '\"}' "
                   "WHERE id = 'r1'");
    struct verify_result result = run(log);
    assert_false(result.is_broken);
    assert_int_equal(result.entities, 4);
    log_close(log);
}

static void an_altered_payload_is_reported(void **state) {
    (void)state;
    expect_broken("UPDATE events SET payload = '{\"n\":2}' WHERE log_id = 4", "run:r1", 2, 4,
                  "the payload does not hash to its payload_hash");
}

static void any_altered_column_is_reported(void **state) {
    (void)state;
    const char *what = "the event does not hash to its chain_hash";
    expect_broken("UPDATE events SET type = 'z' WHERE log_id = 4", "run:r1", 2, 4, what);
    expect_broken("UPDATE events SET chain_hash = zeroblob(32) WHERE log_id = 4", "run:r1", 2, 4,
                  what);
    expect_broken("UPDATE events SET prev_chain_hash = zeroblob(32) WHERE log_id = 4", "run:r1", 2,
                  4, what);
    expect_broken("UPDATE events SET seq = 99 WHERE log_id = 4", "run:r1", 99, 4, what);
    expect_broken("UPDATE events SET recorded_at = 1 WHERE log_id = 4", "run:r1", 2, 4, what);
    expect_broken("UPDATE events SET chain_version = 1 WHERE log_id = 4", "run:r1", 2, 4, what);
    expect_broken("UPDATE entities SET id = 'thief' WHERE id = 'r1'", "run:thief", 1, 1, what);
    expect_broken("UPDATE entities SET owner_user_id = 'thief' WHERE id = 'r1'", "run:r1", 1, 1,
                  what);
}

static void a_missing_event_is_reported(void **state) {
    (void)state;
    expect_broken("DELETE FROM events WHERE log_id = 4", "worker:w1", 2, 5,
                  "events before this one are missing from the log");
}

static void a_cursor_that_does_not_rise_is_reported(void **state) {
    (void)state;
    expect_broken("UPDATE events SET cursor = (SELECT cursor FROM events WHERE log_id = 2) "
                  "WHERE log_id = 4",
                  "run:r1", 2, 4, "the cursor is not above the cursor of the previous event");
}

/* A changed event with valid hashes of its own breaks the link of the next event. */
static void an_event_forged_with_its_hashes_breaks_the_next_link(void **state) {
    (void)state;
    struct stored_log *log = populated();
    struct store_event event;
    char sql[1024];
    char hex[2 * SHA256_BYTES + 1];
    char payload_hex[2 * SHA256_BYTES + 1];
    assert_ok(store_load_event(log->session, 4, &log->arena, &event));
    event.payload = SLICE("{\"n\":3}");
    sha256(event.payload.data, event.payload.size, event.payload_hash);
    assert_ok(chain_hash(&event, &log->scratch, event.chain_hash));
    for (int i = 0; i < SHA256_BYTES; i++) {
        snprintf(hex + 2 * i, 3, "%02x", event.chain_hash[i]);
        snprintf(payload_hex + 2 * i, 3, "%02x", event.payload_hash[i]);
    }
    snprintf(sql, sizeof(sql),
             "UPDATE events SET payload = '{\"n\":3}', payload_hash = x'%s', chain_hash = x'%s' "
             "WHERE log_id = 4",
             payload_hex, hex);
    log_alter(log, sql);
    struct verify_result result = run(log);
    assert_true(result.is_broken);
    assert_string_equal(result.broken.message,
                        "the link to the previous event of the entity is broken");
    assert_string_equal(result.broken.entity, "run:r1");
    assert_int_equal(result.broken.seq, 3);
    assert_int_equal(result.broken.log_id, 7);
    log_close(log);
}

static void events_without_an_entity_are_reported(void **state) {
    (void)state;
    struct stored_log *log = populated();
    log_alter(log, "DELETE FROM entities WHERE id = 'r1'");
    const struct verify_options options = {0};
    struct verify_result result;
    enum status status = verify(log->session, &options, &result);
    assert_true(status != STATUS_OK || result.is_broken);
    log_close(log);
}

static struct verify_result sampled(struct stored_log *log, uint64_t stretch_count,
                                    uint64_t stretch_events) {
    const struct verify_sample sample = {stretch_count, stretch_events, 7};
    struct verify_result result;
    assert_ok(verify_sample(log->session, &sample, &result));
    return result;
}

static void a_sample_of_an_intact_log_passes(void **state) {
    (void)state;
    struct stored_log *log = log_open(NULL);
    assert_int_equal(sampled(log, 3, 4).events, 0);
    log_close(log);
    log = populated();
    assert_int_equal(sampled(log, 1, 4).events, 4);
    assert_int_equal(sampled(log, 3, 4).events, 12);
    assert_int_equal(sampled(log, 3, 1000).events, 31);
    /* Stretches of a short log overlap; each event is checked once. */
    assert_int_equal(sampled(log, 20, 10).events, 31);
    assert_false(sampled(log, 3, 4).is_broken);
    log_close(log);
}

/* The log has 31 events; log_id 28 is the last of r1, 25 the one before. */
static void a_sample_finds_damage_at_the_end_of_the_log(void **state) {
    (void)state;
    const struct {
        const char *sql;
        uint64_t log_id;
        const char *what;
    } cases[] = {
        {"UPDATE events SET payload = '{}' WHERE log_id = 28", 28,
         "the payload does not hash to its payload_hash"},
        {"UPDATE events SET type = 'z' WHERE log_id = 28", 28,
         "the event does not hash to its chain_hash"},
        {"UPDATE events SET chain_hash = zeroblob(32) WHERE log_id = 25", 28,
         "the link to the previous event of the entity is broken"},
        {"DELETE FROM events WHERE log_id = 29", 30,
         "events before this one are missing from the log"},
        {"UPDATE events SET cursor = (SELECT cursor FROM events WHERE log_id = 28) "
         "WHERE log_id = 29",
         29, "the cursor is not above the cursor of the previous event"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stored_log *log = populated();
        log_alter(log, cases[i].sql);
        struct verify_result result = sampled(log, 1, 5);
        assert_true(result.is_broken);
        assert_string_equal(result.broken.message, cases[i].what);
        assert_int_equal(result.broken.log_id, cases[i].log_id);
        log_close(log);
    }
}

static void samples_reach_every_part_of_the_log(void **state) {
    (void)state;
    struct stored_log *log = populated();
    log_alter(log, "UPDATE events SET type = 'z'");
    for (uint64_t count = 1; count < 5; count++)
        assert_true(sampled(log, count, 1).is_broken);
    log_close(log);
}

int main(void) {
    log_configure(LOG_OFF, LOG_TEXT, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_intact_log_passes),
        cmocka_unit_test(an_entity_with_the_largest_metadata_is_verified),
        cmocka_unit_test(an_altered_payload_is_reported),
        cmocka_unit_test(any_altered_column_is_reported),
        cmocka_unit_test(a_missing_event_is_reported),
        cmocka_unit_test(a_cursor_that_does_not_rise_is_reported),
        cmocka_unit_test(an_event_forged_with_its_hashes_breaks_the_next_link),
        cmocka_unit_test(events_without_an_entity_are_reported),
        cmocka_unit_test(a_sample_of_an_intact_log_passes),
        cmocka_unit_test(a_sample_finds_damage_at_the_end_of_the_log),
        cmocka_unit_test(samples_reach_every_part_of_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
