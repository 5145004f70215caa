/* The embedded engine: SQLite in a folder of its own.
 * Threads, memory and errors are those of store.h.
 * The location of its URLs is the folder. */
#ifndef STORE_SQLITE_SQLITE_ENGINE_H
#define STORE_SQLITE_SQLITE_ENGINE_H

#include "store/store_engine.h"

extern const struct store_engine store_engine_sqlite;

#endif
