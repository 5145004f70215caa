/* The stores under test. A place is where one store lives across closing and opening it again; the
 * tests know nothing else about a backend. Failures of the harness itself abort the test. */
#ifndef BACKEND_H
#define BACKEND_H

#include "store/store.h"
#include "test.h"

struct backend {
    const char *name;
    /* A new place, empty; freed by destroy. */
    char *(*make)(void);
    /* Opens the store there as a server does, making it when there is none. */
    struct store *(*open)(const char *place);
    void (*destroy)(char *place);
};

extern const struct backend backend_sqlite;
extern const struct backend backend_postgres;

/* ---- a store with a write and a read session, as nearly every test wants -------------------- */

struct fixture {
    const struct backend *backend;
    char *place;
    struct store *store;
    struct store_session *writer;
    struct store_session *reader;
    struct arena arena;
};

void fixture_open(struct fixture *fixture, const struct backend *backend);
/* Closes everything and opens it again: what is then read comes from the disk. */
void fixture_reopen(struct fixture *fixture);
void fixture_close(struct fixture *fixture);

/* Runs all tests once a backend (only: the one of that name), each with a fixture of its own as its
 * state. */
int contract_run(const char *name, const char *only, const struct CMUnitTest *tests, size_t count);
#define CONTRACT_RUN(name, tests)                                                                  \
    contract_run(name, NULL, tests, sizeof(tests) / sizeof((tests)[0]))
#define CONTRACT_RUN_ONLY(name, only, tests)                                                       \
    contract_run(name, only, tests, sizeof(tests) / sizeof((tests)[0]))

#endif
