/* The memory that the server may use: the sums of base/limits.h and the settings.
 * Thread: any.
 * Memory: nothing is allocated.
 * Errors: none.
 * Invariant: each sum is an upper bound: all its limits are reached at once. That of a connection
 * is not multiplied: the limits of a principal and of the process end long before all connections
 * reach theirs. Libraries (SQLite, OpenSSL, zlib) and the structures themselves are not included.
 */
#ifndef SERVER_LIMITS_REPORT_H
#define SERVER_LIMITS_REPORT_H

#include "server/config.h"

/* The numbers that multiply the limits. */
struct limits_counts {
    uint64_t loops;
    uint64_t pool_threads;
    uint64_t subscriptions_max; /* the limit of one connection */
    uint64_t request_bytes_max; /* head and messages of one connection, by the settings */
    uint64_t shared_bytes_max;  /* queues and windows of the process, by the settings */
};

struct limits_report {
    uint64_t process_bytes;    /* once, the settings included */
    uint64_t loop_bytes;       /* the sum for each loop */
    uint64_t thread_bytes;     /* the sum for each thread of the store pool */
    uint64_t connection_bytes; /* the sum for one connection, its subscriptions included */
    uint64_t fixed_bytes;      /* the process, its loops and its threads, without connections */
};

/* The number of io loops: the setting, or one for each core. */
size_t limits_loop_count(const struct config *config);
struct limits_counts limits_counts_of(const struct config *config);
struct limits_report limits_report_of(const struct limits_counts *counts);
/* Logs the event "limits". */
void limits_report_log(const struct config *config);

#endif
