/* The numbered migrations of the embedded store, as the build found them in sqlite/migrations.
 * Any thread. Static text. Cannot fail.
 * The rows stand in order, and row n brings a store from version n to version n + 1. */
#ifndef STORE_MIGRATIONS_H
#define STORE_MIGRATIONS_H

#include "store/store.h"

struct migration {
    const char *name;
    const char *sql;
};

extern const struct migration migrations_sqlite[STORE_SCHEMA_VERSION];

#endif
