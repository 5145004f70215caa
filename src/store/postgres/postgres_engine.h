/* The shared engine: PostgreSQL, over libpq, in the schema runtime of one database.
 * Threads, memory and errors are those of store.h.
 * The location of its URLs is the URL without its scheme. It may hold a password, which no message
 * shows. */
#ifndef STORE_POSTGRES_POSTGRES_ENGINE_H
#define STORE_POSTGRES_POSTGRES_ENGINE_H

#include "store/store_engine.h"

extern const struct store_engine store_engine_postgres;

#endif
