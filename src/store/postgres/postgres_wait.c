/* Waiting for answers of the server. A connection over which nothing arrives is slow or cut, and
 * TCP cannot tell the two apart where a middlebox acknowledges each packet. So after a silence this
 * module asks over a second connection whether the server still works on the statement. A statement
 * that takes minutes, waits for a lock or waits for a standby is never ended by it. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "store/postgres/postgres.h"

#define SILENCE_MS 3000
/* An answer may be on its way while the question for it is asked. */
#define LAST_WAIT_MS 1000

/* Whether an answer, or the end of the connection, arrives in this time. */
static bool arrives(PGconn *connection, uint64_t wait_ms) {
    uint64_t end_ns = clock_now().mono_ns + wait_ms * CLOCK_NS_PER_MS;
    while (PQisBusy(connection)) {
        uint64_t now_ns = clock_now().mono_ns;
        struct pollfd waiting = {.fd = PQsocket(connection), .events = POLLIN};
        if (waiting.fd < 0)
            return true;
        if (now_ns >= end_ns)
            return false;
        int count = poll(&waiting, 1, (int)((end_ns - now_ns) / CLOCK_NS_PER_MS) + 1);
        if (count < 0 && errno != EINTR)
            return true;
        if (count > 0 && !PQconsumeInput(connection))
            return true;
    }
    return true;
}

PGresult *postgres_exec_within(PGconn *connection, const char *sql, uint64_t wait_ms) {
    PGresult *last = NULL;
    if (!PQsendQuery(connection, sql))
        return NULL;
    while (arrives(connection, wait_ms)) {
        PGresult *next = PQgetResult(connection);
        if (!next)
            return last;
        PQclear(last);
        last = next;
    }
    PQclear(last);
    return NULL;
}

/* Whether the server does not work on the connection's statement. */
static bool is_lost(const struct postgres_store *store, PGconn *connection) {
    char sql[128];
    if (!postgres_is_reachable(store))
        return true;
    if (!store->is_direct)
        return false;
    PGconn *second = postgres_dial(store, true);
    bool is_asked = PQstatus(second) == CONNECTION_OK;
    snprintf(sql, sizeof(sql),
             "SELECT 1 FROM pg_stat_activity WHERE pid = %d AND state NOT LIKE 'idle%%'",
             PQbackendPID(connection));
    PGresult *result = is_asked ? postgres_exec_within(second, sql, SILENCE_MS) : NULL;
    bool is_working = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0;
    PQclear(result);
    PQfinish(second);
    return is_asked && !is_working;
}

/* The next result of a connection that is shut down is a fault, as of one that the server closed.
 */
PGresult *postgres_result(const struct postgres_store *store, PGconn *connection) {
    bool is_open = PQflush(connection) == 0;
    while (is_open && !arrives(connection, SILENCE_MS))
        if (is_lost(store, connection) && !arrives(connection, LAST_WAIT_MS)) {
            (void)shutdown(PQsocket(connection), SHUT_RDWR);
            is_open = false;
        }
    return PQgetResult(connection);
}

PGresult *postgres_results(const struct postgres_store *store, PGconn *connection) {
    PGresult *last = NULL;
    for (PGresult *next = postgres_result(store, connection); next;
         next = postgres_result(store, connection)) {
        PQclear(last);
        last = next;
    }
    return last;
}

PGresult *postgres_exec(const struct postgres_store *store, PGconn *connection, const char *sql) {
    return PQsendQuery(connection, sql) ? postgres_results(store, connection) : NULL;
}
