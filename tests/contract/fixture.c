#include "backend.h"
#include "backend_postgres.h"

#define ARENA_BYTES_MAX 16777216

static void open_sessions(struct fixture *fixture) {
    fixture->store = fixture->backend->open(fixture->place);
    assert_ok(store_session_open(fixture->store, STORE_WRITE, &fixture->writer));
    assert_ok(store_session_open(fixture->store, STORE_READ, &fixture->reader));
}

static void close_sessions(struct fixture *fixture) {
    store_session_close(fixture->reader);
    store_session_close(fixture->writer);
    store_close(fixture->store);
}

void fixture_open(struct fixture *fixture, const struct backend *backend) {
    *fixture = (struct fixture){.backend = backend, .place = backend->make()};
    arena_init(&fixture->arena, ARENA_BYTES_MAX);
    open_sessions(fixture);
}

void fixture_reopen(struct fixture *fixture) {
    close_sessions(fixture);
    open_sessions(fixture);
}

void fixture_close(struct fixture *fixture) {
    close_sessions(fixture);
    arena_release(&fixture->arena);
    fixture->backend->destroy(fixture->place);
}

static const struct backend *const backends[] = {&backend_sqlite, &backend_postgres};
static const struct backend *current;

static bool is_absent(const struct backend *backend) {
    return backend == &backend_postgres && !pg_server();
}

static int setup(void **state) {
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    fixture_open(fixture, current);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    fixture_close(*state);
    free(*state);
    return 0;
}

int contract_run(const char *name, const char *only, const struct CMUnitTest *tests, size_t count) {
    int failed = 0;
    struct CMUnitTest *with_fixture = calloc(count, sizeof(*with_fixture));
    if (with_fixture == NULL)
        return 1;
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (only && strcmp(only, backends[i]->name) != 0)
            continue;
        if (is_absent(backends[i])) {
            printf("# KHALA_TEST_POSTGRES is not set: no test on %s\n", backends[i]->name);
            continue;
        }
        char group[128];
        snprintf(group, sizeof(group), "%s on %s", name, backends[i]->name);
        for (size_t k = 0; k < count; k++) {
            with_fixture[k] = tests[k];
            with_fixture[k].setup_func = setup;
            with_fixture[k].teardown_func = teardown;
        }
        current = backends[i];
        failed += _cmocka_run_group_tests(group, with_fixture, count, NULL, NULL);
    }
    free(with_fixture);
    return failed;
}
