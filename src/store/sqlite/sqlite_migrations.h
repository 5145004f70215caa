/* The numbered migrations of the embedded store, generated from store/sqlite/migrations.
 * Thread: any.
 * Invariant: row n brings a store from version n to version n + 1. */
#ifndef STORE_SQLITE_SQLITE_MIGRATIONS_H
#define STORE_SQLITE_SQLITE_MIGRATIONS_H

#include "store/store.h"

struct migration {
    const char *name;
    const char *sql;
};

extern const struct migration sqlite_migrations[STORE_SCHEMA_VERSION];

#endif
