/* What the tests of the authority's rules share: a writer over a real store for each test, and
 * requests that make an entity.
 * Belongs to the thread of the test. Memory: the fixture's. A failure fails the test. The hash
 * chain of the log is checked after each test. */
#ifndef AUTHORITY_RULES_FIXTURE_H
#define AUTHORITY_RULES_FIXTURE_H

#include "authority/writer_fixture.h"

static inline int setup(void **state) {
    struct fixture *fixture = fixture_new();
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

static inline int teardown(void **state) {
    struct fixture *fixture = *state;
    (void)checked_log(fixture);
    fixture_close(fixture);
    fixture_free(fixture);
    return 0;
}

static inline void new_run(struct fixture *fixture, const char *id) {
    char body[300];
    (void)snprintf(body, sizeof(body), "{\"run_id\":\"%s\"}", id);
    assert_true(ask_ok(fixture, APPEND_RUN_CREATE, NULL, body)->created);
}

static inline void new_worker(struct fixture *fixture, const char *id) {
    char body[300];
    (void)snprintf(body, sizeof(body), "{\"worker_id\":\"%s\",\"owner_user_id\":\"u1\"}", id);
    assert_true(ask_ok(fixture, APPEND_WORKER_CREATE, NULL, body)->created);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
