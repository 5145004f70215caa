#include "authority/entity_state.h"
#include "test.h"

#define NONE RUN_STATE_COUNT

/* Every state against every event: where it leads, or NONE where it is not allowed. */
static const struct {
    const char *type;
    enum run_state outcome;
    enum run_state next[RUN_STATE_COUNT];
} table[] = {
    /* from:                      created        running        canceling      canceled succeeded
                                  failed */
    {"run.started", NONE, {RUN_RUNNING, RUN_RUNNING, NONE, NONE, NONE, NONE}},
    {"run.cancel_requested", NONE, {RUN_CANCELING, RUN_CANCELING, RUN_CANCELING, NONE, NONE, NONE}},
    {"run.finished", RUN_SUCCEEDED, {RUN_SUCCEEDED, RUN_SUCCEEDED, NONE, NONE, NONE, NONE}},
    {"run.finished", RUN_FAILED, {RUN_FAILED, RUN_FAILED, RUN_FAILED, NONE, NONE, NONE}},
    {"run.finished", RUN_CANCELED, {RUN_CANCELED, RUN_CANCELED, RUN_CANCELED, NONE, NONE, NONE}},
    {"run.finished", RUN_RUNNING, {RUN_RUNNING, RUN_RUNNING, NONE, NONE, NONE, NONE}},
    {"run.finished", RUN_CREATED, {NONE, NONE, NONE, NONE, NONE, NONE}},
    {"run.finishe",
     RUN_FAILED,
     {RUN_CREATED, RUN_RUNNING, RUN_CANCELING, RUN_CANCELED, RUN_SUCCEEDED, RUN_FAILED}},
    {"tool.called",
     NONE,
     {RUN_CREATED, RUN_RUNNING, RUN_CANCELING, RUN_CANCELED, RUN_SUCCEEDED, RUN_FAILED}},
};

static void every_pair_of_state_and_event_has_its_result(void **state) {
    (void)state;
    for (size_t row = 0; row < sizeof(table) / sizeof(table[0]); row++) {
        for (unsigned from = 0; from < RUN_STATE_COUNT; from++) {
            enum run_state wanted = table[row].next[from];
            enum run_state next = NONE;
            enum status status = run_state_next((enum run_state)from, slice_of(table[row].type),
                                                table[row].outcome, &next);
            assert_int_equal(status, wanted == NONE ? STATUS_INVALID_TRANSITION : STATUS_OK);
            assert_int_equal(next, wanted == NONE ? from : (unsigned)wanted);
        }
    }
}

static void every_state_is_found_by_its_name(void **state) {
    (void)state;
    static const char *const names[] = {"created",  "running",   "canceling",
                                        "canceled", "succeeded", "failed"};
    enum run_state parsed;
    for (unsigned i = 0; i < RUN_STATE_COUNT; i++) {
        assert_string_equal(run_state_name((enum run_state)i), names[i]);
        assert_true(run_state_parse(slice_of(names[i]), &parsed));
        assert_int_equal(parsed, i);
        assert_int_equal(run_state_is_final((enum run_state)i), i >= RUN_CANCELED);
    }
    assert_false(run_state_parse(SLICE("cancelled"), &parsed));
    assert_false(run_state_parse(SLICE(""), &parsed));
    assert_false(run_state_parse(SLICE("Running"), &parsed));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_state_and_event_has_its_result),
        cmocka_unit_test(every_state_is_found_by_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
