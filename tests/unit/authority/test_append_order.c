/* The order of a batch after refusals: which later requests it blocks. */
#include <stdio.h>

#include "authority/append.h"
#include "base/limits.h"
#include "test.h"

static struct append_request request_of(enum append_kind kind, const char *id, enum status status) {
    return (struct append_request){
        .kind = kind, .entity_id = slice_of(id), .event_type = SLICE("x"), .status = status};
}

static void note(struct append_order *order, enum append_kind kind, const char *id,
                 enum status status) {
    struct append_request request = request_of(kind, id, status);
    append_order_note(order, &request);
}

static bool blocks(const struct append_order *order, enum append_kind kind, const char *id) {
    struct append_request request = request_of(kind, id, STATUS_OK);
    return append_order_blocks(order, &request);
}

static void only_refusals_for_now_block(void **state) {
    (void)state;
    struct append_order order;
    append_order_init(&order);
    note(&order, APPEND_RUN_EVENT, "r", STATUS_OK);
    note(&order, APPEND_RUN_EVENT, "r", STATUS_RUN_NOT_FOUND);
    note(&order, APPEND_RUN_EVENT, "r", STATUS_SEQUENCE_CONFLICT);
    note(&order, APPEND_RUN_EVENT, "r", STATUS_NOT_ATTEMPTED);
    assert_false(blocks(&order, APPEND_RUN_EVENT, "r"));
    note(&order, APPEND_RUN_EVENT, "r", STATUS_KHALA_PUBLISH_RATE_LIMITED);
    assert_true(blocks(&order, APPEND_RUN_EVENT, "r"));
    note(&order, APPEND_WORKER_HEARTBEAT, "w", STATUS_STORE_UNAVAILABLE);
    assert_true(blocks(&order, APPEND_WORKER_STATUS, "w"));
    append_order_release(&order);
}

static void other_entities_are_free(void **state) {
    (void)state;
    struct append_order order;
    append_order_init(&order);
    note(&order, APPEND_RUN_EVENT, "a", STATUS_STORE_UNAVAILABLE);
    assert_false(blocks(&order, APPEND_RUN_EVENT, "b"));
    assert_false(blocks(&order, APPEND_WORKER_EVENT, "a"));
    assert_false(blocks(&order, APPEND_TOPIC_EVENT, "a"));
    assert_false(blocks(&order, APPEND_AUDIT_EVENT, ""));
    note(&order, APPEND_AUDIT_EVENT, "", STATUS_STORE_UNAVAILABLE);
    assert_true(blocks(&order, APPEND_AUDIT_EVENT, ""));
    append_order_release(&order);
}

static void a_refusal_without_an_entity_blocks_everything(void **state) {
    (void)state;
    struct append_order order;
    append_order_init(&order);
    struct append_request unread = {.kind = APPEND_KIND_COUNT, .status = STATUS_OUT_OF_MEMORY};
    append_order_note(&order, &unread);
    assert_true(blocks(&order, APPEND_RUN_EVENT, "a"));
    append_order_release(&order);
}

static void a_full_order_blocks_everything(void **state) {
    (void)state;
    struct append_order order;
    char id[32];
    append_order_init(&order);
    for (int i = 0; i <= BATCH_BLOCKED_ENTITIES_MAX; i++) {
        assert_false(blocks(&order, APPEND_RUN_EVENT, "never refused"));
        (void)snprintf(id, sizeof(id), "r%d", i);
        note(&order, APPEND_RUN_EVENT, id, STATUS_KHALA_PUBLISH_RATE_LIMITED);
        assert_true(blocks(&order, APPEND_RUN_EVENT, id));
    }
    assert_true(blocks(&order, APPEND_RUN_EVENT, "never refused"));
    append_order_release(&order);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_refusals_for_now_block),
        cmocka_unit_test(other_entities_are_free),
        cmocka_unit_test(a_refusal_without_an_entity_blocks_everything),
        cmocka_unit_test(a_full_order_blocks_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
