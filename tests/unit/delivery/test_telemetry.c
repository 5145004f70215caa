#include "delivery/telemetry.h"

#include <pthread.h>

#include "test.h"

/* One principal may have 4 of these entries, all addresses without a principal 32. */
#define CAPACITY 64
#define SHARE    4

static int setup(void **state) {
    return causes_open((struct causes **)state, CAPACITY) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state) {
    causes_close(*state);
    return 0;
}

static struct cause denial(uint64_t at_ms, const char *connection, const char *topic) {
    return (struct cause){.kind = CAUSE_DENIED,
                          .at_ms = at_ms,
                          .connection = slice_of(connection),
                          .principal = SLICE("user:1"),
                          .topic = topic ? slice_of(topic) : (struct slice){NULL, 0},
                          .status = STATUS_FORBIDDEN_TOPIC,
                          .dialect = LABEL_DIALECT_PHOENIX};
}

static void add(struct causes *causes, const struct cause *cause) {
    (void)causes_add(causes, cause, 1000);
}

/* By a principal that has no other cause. */
static struct cause denial_of(uint64_t at_ms, char name[16]) {
    struct cause cause = denial(at_ms, "c", "t");
    snprintf(name, 16, "user:%u", (unsigned)at_ms + 100);
    cause.principal = slice_of(name);
    return cause;
}

/* By a client without a valid token. */
static struct cause denial_from(uint64_t at_ms, const char *peer) {
    struct cause cause = denial(at_ms, "c", "t");
    cause.principal = (struct slice){NULL, 0};
    cause.peer = slice_of(peer);
    return cause;
}

struct seen {
    size_t count;
    size_t count_max;
    uint64_t at_ms[CAPACITY];
    char topic[TOPIC_NAME_BYTES_MAX + 1];
};

static bool see(void *user, const struct cause *cause) {
    struct seen *seen = user;
    seen->at_ms[seen->count++] = cause->at_ms;
    snprintf(seen->topic, sizeof(seen->topic), "%.*s", (int)cause->topic.size,
             cause->topic.data ? cause->topic.data : "");
    return seen->count < seen->count_max;
}

static struct seen walk(struct causes *causes, struct cause_filter filter) {
    struct seen seen = {.count_max = CAPACITY};
    causes_walk(causes, &filter, &seen, see);
    return seen;
}

static void the_latest_comes_first_and_the_oldest_is_evicted(void **state) {
    char name[16];
    for (uint64_t i = 1; i <= CAPACITY + 2; i++) {
        struct cause cause = denial_of(i, name);
        add(*state, &cause);
    }
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(seen.count, CAPACITY);
    for (size_t i = 0; i < CAPACITY; i++)
        assert_int_equal(seen.at_ms[i], CAPACITY + 2 - i);
}

static void a_principal_with_many_causes_evicts_only_its_own(void **state) {
    char name[16];
    struct cause other = denial_of(1, name);
    add(*state, &other);
    for (uint64_t i = 2; i < 1000; i++) {
        struct cause cause = denial(i, "c", "t");
        add(*state, &cause);
    }
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(seen.count, SHARE + 1);
    for (size_t i = 0; i < SHARE; i++)
        assert_int_equal(seen.at_ms[i], 999 - i);
    assert_int_equal(seen.at_ms[SHARE], 1);
}

static void one_address_does_not_evict_the_causes_of_others(void **state) {
    struct cause other = denial_from(1, "10.0.0.1");
    add(*state, &other);
    for (uint64_t i = 2; i < 1000; i++) {
        struct cause cause = denial_from(i, "10.0.0.2");
        add(*state, &cause);
    }
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(seen.count, SHARE + 1);
    assert_int_equal(seen.at_ms[SHARE], 1);
}

static void addresses_together_leave_half_of_the_entries_to_principals(void **state) {
    char text[16];
    for (uint64_t i = 0; i < CAPACITY / 2; i++) {
        struct cause cause = denial_of(i, text);
        add(*state, &cause);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "10.0.%u.%u", (unsigned)i / 100, (unsigned)i % 100);
        struct cause cause = denial_from(1000 + i, text);
        add(*state, &cause);
    }
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(seen.count, CAPACITY);
    assert_int_equal(seen.at_ms[CAPACITY / 2 - 1], 2000 - CAPACITY / 2);
    for (size_t i = 0; i < CAPACITY / 2; i++)
        assert_int_equal(seen.at_ms[CAPACITY / 2 + i], CAPACITY / 2 - 1 - i);
}

static void a_flood_is_distinguished_from_a_slow_pace(void **state) {
    char name[16];
    struct cause cause = denial(1, "c", "t");
    for (uint64_t i = 0; i < SHARE; i++)
        assert_true(causes_add(*state, &cause, 1000 + i));
    assert_false(causes_add(*state, &cause, 1000 + SHARE));
    struct cause other = denial_of(1, name);
    assert_true(causes_add(*state, &other, 1000 + SHARE));
    /* The clock of another loop may be a little behind. */
    assert_false(causes_add(*state, &cause, 1));
    assert_true(causes_add(*state, &cause, 1002 + CAUSE_PACE_MS));
}

static void a_flood_of_many_principals_is_recognised_too(void **state) {
    char name[16];
    for (uint64_t i = 0; i < CAPACITY; i++) {
        struct cause cause = denial_of(i, name);
        assert_true(causes_add(*state, &cause, 1000));
    }
    struct cause next = denial_of(CAPACITY, name);
    assert_false(causes_add(*state, &next, 1000 + CAUSE_PACE_MS - 1));
    struct cause last = denial_of(CAPACITY + 1, name);
    assert_true(causes_add(*state, &last, 1000 + CAUSE_PACE_MS));
}

static void every_given_field_must_be_equal(void **state) {
    struct cause first = denial(1, "c1", "a");
    struct cause second = denial(2, "c2", "b");
    struct cause third = denial(3, "c2", NULL);
    third.kind = CAUSE_DISCONNECTED;
    add(*state, &first);
    add(*state, &second);
    add(*state, &third);
    assert_int_equal(walk(*state, (struct cause_filter){.connection = SLICE("c2")}).count, 2);
    assert_int_equal(walk(*state, (struct cause_filter){.topic = SLICE("a")}).at_ms[0], 1);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("user:1")}).count, 3);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("user:12")}).count, 0);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("1")}).count, 3);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("12")}).count, 0);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("er:1")}).count, 0);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("")}).count, 0);
    assert_int_equal(
        walk(*state, (struct cause_filter){.connection = SLICE("c1"), .topic = SLICE("b")}).count,
        0);
    assert_int_equal(walk(*state, (struct cause_filter){.disconnected_only = true}).at_ms[0], 3);
}

static void a_callback_can_end_the_walk(void **state) {
    struct cause cause = denial(1, "c", "t");
    struct seen seen = {.count_max = 2};
    for (size_t i = 0; i < SHARE; i++)
        add(*state, &cause);
    causes_walk(*state, &(struct cause_filter){0}, &seen, see);
    assert_int_equal(seen.count, 2);
}

static void texts_are_copied_and_truncated(void **state) {
    char topic[TOPIC_NAME_BYTES_MAX + 2];
    memset(topic, 'x', sizeof(topic));
    topic[sizeof(topic) - 1] = '\0';
    struct cause cause = denial(1, "c", topic);
    add(*state, &cause);
    memset(topic, 'y', sizeof(topic) - 1);
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(strlen(seen.topic), TOPIC_NAME_BYTES_MAX);
    assert_int_equal(seen.topic[0], 'x');
    memset(topic, 'x', sizeof(topic) - 1);
    assert_int_equal(walk(*state, (struct cause_filter){.topic = slice_of(topic)}).count, 1);
}

static void *add_many(void *causes) {
    struct cause cause = denial(7, "connection", "topic");
    for (size_t i = 0; i < 2000; i++)
        add(causes, &cause);
    return NULL;
}

static void threads_add_while_another_walks(void **state) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, *state), 0);
    for (size_t i = 0; i < 200; i++) {
        struct seen seen = walk(*state, (struct cause_filter){0});
        assert_true(seen.count == 0 || strcmp(seen.topic, "topic") == 0);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(walk(*state, (struct cause_filter){0}).count, SHARE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_comes_first_and_the_oldest_is_evicted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_principal_with_many_causes_evicts_only_its_own, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_address_does_not_evict_the_causes_of_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(addresses_together_leave_half_of_the_entries_to_principals,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_is_distinguished_from_a_slow_pace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flood_of_many_principals_is_recognised_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(every_given_field_must_be_equal, setup, teardown),
        cmocka_unit_test_setup_teardown(a_callback_can_end_the_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_are_copied_and_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_add_while_another_walks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
