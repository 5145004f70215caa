#include "delivery/causes.h"

#include <pthread.h>

#include "test.h"

#define CAPACITY 4

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

struct seen {
    size_t count;
    size_t count_max;
    uint64_t at_ms[16];
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
    struct seen seen = {.count_max = 16};
    causes_walk(causes, &filter, &seen, see);
    return seen;
}

static void the_latest_comes_first_and_the_oldest_gives_way(void **state) {
    for (uint64_t i = 1; i <= CAPACITY + 2; i++) {
        struct cause cause = denial(i, "c", "t");
        causes_add(*state, &cause);
    }
    struct seen seen = walk(*state, (struct cause_filter){0});
    assert_int_equal(seen.count, CAPACITY);
    for (size_t i = 0; i < CAPACITY; i++)
        assert_int_equal(seen.at_ms[i], CAPACITY + 2 - i);
}

static void all_that_is_asked_for_must_be_equal(void **state) {
    struct cause first = denial(1, "c1", "a");
    struct cause second = denial(2, "c2", "b");
    struct cause third = denial(3, "c2", NULL);
    third.kind = CAUSE_DISCONNECTED;
    causes_add(*state, &first);
    causes_add(*state, &second);
    causes_add(*state, &third);
    assert_int_equal(walk(*state, (struct cause_filter){.connection = SLICE("c2")}).count, 2);
    assert_int_equal(walk(*state, (struct cause_filter){.topic = SLICE("a")}).at_ms[0], 1);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("user:1")}).count, 3);
    assert_int_equal(walk(*state, (struct cause_filter){.principal = SLICE("user:12")}).count, 0);
    assert_int_equal(
        walk(*state, (struct cause_filter){.connection = SLICE("c1"), .topic = SLICE("b")}).count,
        0);
    assert_int_equal(walk(*state, (struct cause_filter){.disconnected_only = true}).at_ms[0], 3);
}

static void a_walk_ends_when_it_is_told_to(void **state) {
    struct cause cause = denial(1, "c", "t");
    struct seen seen = {.count_max = 2};
    for (size_t i = 0; i < CAPACITY; i++)
        causes_add(*state, &cause);
    causes_walk(*state, &(struct cause_filter){0}, &seen, see);
    assert_int_equal(seen.count, 2);
}

static void texts_are_copied_and_cut_to_their_room(void **state) {
    char topic[TOPIC_NAME_BYTES_MAX + 2];
    memset(topic, 'x', sizeof(topic));
    topic[sizeof(topic) - 1] = '\0';
    struct cause cause = denial(1, "c", topic);
    causes_add(*state, &cause);
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
        causes_add(causes, &cause);
    return NULL;
}

static void threads_add_while_another_looks(void **state) {
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, *state), 0);
    for (size_t i = 0; i < 200; i++) {
        struct seen seen = walk(*state, (struct cause_filter){0});
        assert_true(seen.count == 0 || strcmp(seen.topic, "topic") == 0);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(walk(*state, (struct cause_filter){0}).count, CAPACITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_comes_first_and_the_oldest_gives_way, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_that_is_asked_for_must_be_equal, setup, teardown),
        cmocka_unit_test_setup_teardown(a_walk_ends_when_it_is_told_to, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_are_copied_and_cut_to_their_room, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_add_while_another_looks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
