/* The writes to the write-ahead log of the embedded store, which are gathered. */
#include "backend.h"
#include "rows.h"

#include <stdlib.h>

#define EVENTS       2000
#define CALLS_MAX    (EVENTS / 10)
#define LARGE_EVENTS 1200
#define LARGE_BYTES  ((size_t)40000) /* in all more than SQLite's cache holds */

static uint64_t write_calls(void) {
    char line[64];
    unsigned long long count = 0;
    FILE *file = fopen("/proc/self/io", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "syscw: %llu", &count) == 1)
            break;
    fclose(file);
    return count;
}

static void commit(struct fixture *fixture, size_t count, struct slice payload) {
    struct store_event *events = calloc(count, sizeof(*events));
    struct rows_text name;
    struct store_entity entity = rows_run(2, &name);
    assert_non_null(events);
    for (size_t i = 0; i < count; i++) {
        events[i] = rows_event(i + 1, 2, i + 1);
        if (payload.data)
            events[i].payload = payload;
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &entity,
                                                                  .entity_count = 1,
                                                                  .events = events,
                                                                  .event_count = count}));
    free(events);
}

static enum status count_event(void *user, const struct store_event *event) {
    uint64_t *count = user;
    assert_int_equal(event->log_id, ++*count);
    return STATUS_OK;
}

static void assert_stored(struct fixture *fixture, uint64_t expected) {
    uint64_t count = 0;
    assert_ok(store_walk_log(fixture->reader, 0, expected + 1, &count, count_event));
    assert_int_equal(count, expected);
}

static void a_commit_is_few_calls_and_is_read_by_other_connections(void **state) {
    struct fixture *fixture = *state;
    uint64_t before = write_calls();
    commit(fixture, EVENTS, (struct slice){NULL, 0});
    uint64_t calls = write_calls() - before;
    assert_true(calls > 0 && calls < CALLS_MAX);
    assert_stored(fixture, EVENTS);
    fixture_reopen(fixture);
    assert_stored(fixture, EVENTS);
}

/* Its pages leave the cache before the commit, and some of them are read and written again. */
static void a_commit_larger_than_the_cache_is_whole(void **state) {
    struct fixture *fixture = *state;
    char *text = malloc(LARGE_BYTES);
    assert_non_null(text);
    memset(text, 'x', LARGE_BYTES);
    commit(fixture, LARGE_EVENTS, (struct slice){text, LARGE_BYTES});
    assert_stored(fixture, LARGE_EVENTS);
    fixture_reopen(fixture);
    assert_stored(fixture, LARGE_EVENTS);
    struct store_event event;
    assert_ok(store_load_event(fixture->reader, LARGE_EVENTS, &fixture->arena, &event));
    assert_int_equal(event.payload.size, LARGE_BYTES);
    assert_memory_equal(event.payload.data, text, LARGE_BYTES);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_is_few_calls_and_is_read_by_other_connections),
        cmocka_unit_test(a_commit_larger_than_the_cache_is_whole),
    };
    return CONTRACT_RUN_ONLY("sqlite: gathered writes", "sqlite", tests);
}
