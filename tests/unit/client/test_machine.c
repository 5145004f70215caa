/* Every cell of spec/client_states.json through the machine of the C library. */
#include "client/machine.h"

#include <jansson.h>

#include "test.h"

#define DONE_MAX 16

struct seen {
    const struct machine_table *table;
    const char *done[DONE_MAX];
    unsigned done_count;
    unsigned changes;
    struct machine machine;
    unsigned give_after; /* an input that the first action gives; 0: none */
};

static void act(void *user, unsigned action, const void *data) {
    struct seen *seen = user;
    (void)data;
    assert_true(seen->done_count < DONE_MAX);
    seen->done[seen->done_count++] = seen->table->actions[action];
    if (seen->give_after > 0) {
        unsigned input = seen->give_after;
        seen->give_after = 0;
        machine_give(&seen->machine, input, NULL);
    }
}

static void changed(void *user) {
    struct seen *seen = user;
    seen->changes++;
}

static void start(struct seen *seen, const struct machine_table *table, unsigned state) {
    *seen = (struct seen){.table = table};
    seen->machine = (struct machine){
        .table = table, .state = state, .user = seen, .act = act, .changed = changed};
}

static json_t *spec_load(const char *name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.json", SPEC_DIR, name);
    json_t *spec = json_load_file(path, 0, NULL);
    assert_non_null(spec);
    return spec;
}

static void check_cell(const struct machine_table *table, unsigned state, unsigned input,
                       json_t *cell) {
    struct seen seen;
    start(&seen, table, state);
    machine_give(&seen.machine, input, NULL);
    const char *next = json_string_value(json_array_get(cell, 0));
    assert_string_equal(table->states[seen.machine.state], next);
    assert_int_equal(seen.done_count, json_array_size(cell) - 1);
    for (unsigned i = 0; i < seen.done_count; i++)
        assert_string_equal(seen.done[i], json_string_value(json_array_get(cell, i + 1)));
    assert_int_equal(seen.changes, strcmp(next, table->states[state]) == 0 ? 0 : 1);
}

static void check_machine(json_t *spec, const char *name, const struct machine_table *table) {
    json_t *machine = json_object_get(spec, name);
    json_t *rows = json_object_get(machine, "table");
    size_t cells = 0;
    assert_int_equal(table->state_count, json_object_size(json_object_get(machine, "states")));
    assert_int_equal(table->input_count, json_object_size(json_object_get(machine, "inputs")));
    assert_int_equal(table->action_count, json_object_size(json_object_get(machine, "actions")));
    for (unsigned state = 0; state < table->state_count; state++) {
        json_t *row = json_object_get(rows, table->states[state]);
        for (unsigned input = 0; input < table->input_count; input++, cells++) {
            json_t *cell = json_object_get(row, table->inputs[input]);
            assert_true(json_array_size(cell) > 0);
            check_cell(table, state, input, cell);
        }
    }
    assert_int_equal(cells, table->state_count * table->input_count);
}

static void every_cell_of_both_tables_runs_its_actions_in_order(void **state) {
    (void)state;
    json_t *spec = spec_load("client_states");
    check_machine(spec, "connection", &connection_machine);
    check_machine(spec, "topic", &topic_machine);
    json_decref(spec);
}

static void an_input_of_an_action_waits_until_its_step_ends(void **state) {
    (void)state;
    struct seen seen;
    start(&seen, &connection_machine, CONNECTION_STATE_LIVE);
    seen.give_after = CONNECTION_INPUT_EXHAUSTED;
    machine_give(&seen.machine, CONNECTION_INPUT_REFUSED, NULL);
    const char *wanted[] = {"drop", "count_refusal", "back_off", "cancel", "fail"};
    assert_int_equal(seen.done_count, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_string_equal(seen.done[i], wanted[i]);
    assert_int_equal(seen.machine.state, CONNECTION_STATE_CLOSED);
}

static void the_wait_grows_to_its_maximum_and_a_hint_is_the_least_wait(void **state) {
    (void)state;
    for (unsigned attempt = 0; attempt < 40; attempt++) {
        uint64_t whole = attempt < 7 ? (uint64_t)300 << attempt : 30000;
        assert_int_equal(back_off_ms(attempt, -1, 0, 300, 30000), whole / 2);
        assert_true(back_off_ms(attempt, -1, 0.999, 300, 30000) <= whole);
        assert_true(back_off_ms(attempt, 1234, 0, 300, 30000) == 1234);
        assert_true(back_off_ms(attempt, 1234, 0.999, 300, 30000) > 1234);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_of_both_tables_runs_its_actions_in_order),
        cmocka_unit_test(an_input_of_an_action_waits_until_its_step_ends),
        cmocka_unit_test(the_wait_grows_to_its_maximum_and_a_hint_is_the_least_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
