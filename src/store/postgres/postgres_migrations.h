/* The numbered migrations of the PostgreSQL store, generated from store/postgres/migrations.
 * Thread: any.
 * Invariant: row n brings a store from version n to version n + 1. The rows of derived tables may
 * be run again. */
#ifndef STORE_POSTGRES_POSTGRES_MIGRATIONS_H
#define STORE_POSTGRES_POSTGRES_MIGRATIONS_H

#include <stdbool.h>

/* The build of the upgrade test has one step more. */
#ifndef POSTGRES_SCHEMA_VERSION
#define POSTGRES_SCHEMA_VERSION 16
#endif

struct postgres_migration {
    const char *name;
    const char *sql;
    bool is_derived; /* the repair of derived tables runs it again */
};

extern const struct postgres_migration postgres_migrations[POSTGRES_SCHEMA_VERSION];

#endif
