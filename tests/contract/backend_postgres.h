/* The PostgreSQL under test, for tests of its own. */
#ifndef BACKEND_POSTGRES_H
#define BACKEND_POSTGRES_H

#include "backend.h"

/* The URL of the server, without a database. NULL: there is none, and its tests are skipped. */
const char *pg_server(void);
char *pg_make(void);
void pg_destroy(char *place);
/* Runs statements on a database. */
void pg_run(const char *database_url, const char *sql);

/* Runs tests that need the server and no fixture. */
int pg_run_tests(const char *name, const struct CMUnitTest *tests, size_t count);
#define PG_RUN(name, tests) pg_run_tests(name, tests, sizeof(tests) / sizeof((tests)[0]))

#endif
