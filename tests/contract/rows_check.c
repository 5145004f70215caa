#include "rows_check.h"

void assert_text(struct slice actual, struct slice expected) {
    assert_int_equal(actual.data == NULL, expected.data == NULL);
    assert_true(slice_equal(actual, expected));
}

void assert_owner(const struct owner *actual, const struct owner *expected) {
    assert_text(actual->user_id, expected->user_id);
    assert_text(actual->guest_scope, expected->guest_scope);
    assert_text(actual->org_id, expected->org_id);
}

void assert_event(const struct store_event *actual, const struct store_event *expected) {
    assert_int_equal(actual->log_id, expected->log_id);
    assert_int_equal(actual->entity_ref, expected->entity_ref);
    assert_int_equal(actual->seq, expected->seq);
    assert_text(actual->type, expected->type);
    assert_text(actual->payload, expected->payload);
    assert_owner(&actual->owner, &expected->owner);
    assert_memory_equal(&actual->event_id, &expected->event_id, sizeof(actual->event_id));
    assert_memory_equal(&actual->cursor, &expected->cursor, sizeof(actual->cursor));
    assert_int_equal(actual->recorded_at_ms, expected->recorded_at_ms);
    assert_int_equal(actual->chain_version, expected->chain_version);
    assert_memory_equal(actual->payload_hash, expected->payload_hash, SHA256_BYTES);
    assert_memory_equal(actual->prev_chain_hash, expected->prev_chain_hash, SHA256_BYTES);
    assert_memory_equal(actual->chain_hash, expected->chain_hash, SHA256_BYTES);
}

void check_fill(struct fixture *fixture) {
    struct rows_text ids[2];
    struct store_entity runs[2] = {rows_run(2, &ids[0]), rows_run(3, &ids[1])};
    struct store_event events[CHECK_EVENTS];
    for (uint64_t i = 0; i < CHECK_EVENTS; i++)
        events[i] = rows_event(i + 1, 2 + i % 2, i / 2 + 1);
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = runs,
                                                                  .entity_count = 2,
                                                                  .events = events,
                                                                  .event_count = CHECK_EVENTS}));
}
