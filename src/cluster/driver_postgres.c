/* PostgreSQL: LISTEN and NOTIFY on one connection. libpq never blocks here: each step waits in
 * poll() with a deadline, because a server that is stopped answers nothing and closes nothing. */
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/driver.h"

#define CHANNEL_BYTES_MAX 64

struct postgres {
    PGconn *connection;
    const struct fanout_port *port;
};

/* The first line of a message; libpq's have several and end with a line end. */
static enum status fail(char error[FANOUT_ERROR_BYTES_MAX], const char *reason) {
    snprintf(error, FANOUT_ERROR_BYTES_MAX, "%.*s", (int)strcspn(reason, "\n"), reason);
    return STATUS_SYSTEM_ERROR;
}

static enum status fail_late(char error[FANOUT_ERROR_BYTES_MAX]) {
    return fail(error, "the server does not answer in time");
}

/* False: the deadline passed. */
static bool wait_for(const struct postgres *postgres, short events, uint64_t until_ms) {
    struct pollfd wait = {.fd = PQsocket(postgres->connection), .events = events};
    for (uint64_t now = clock_mono_now_ms(); now < until_ms; now = clock_mono_now_ms()) {
        int ready = poll(&wait, 1, (int)(until_ms - now));
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return true;
    }
    return false;
}

static void pass_on(struct postgres *postgres) {
    for (PGnotify *notify = PQnotifies(postgres->connection); notify;
         notify = PQnotifies(postgres->connection)) {
        /* Its own come back too. */
        if (notify->be_pid != PQbackendPID(postgres->connection))
            postgres->port->on_text(postgres->port->user, slice_of(notify->extra));
        PQfreemem(notify);
    }
}

/* ---- statements ---- */

static enum status flush(struct postgres *postgres, uint64_t until_ms,
                         char error[FANOUT_ERROR_BYTES_MAX]) {
    for (;;) {
        int left = PQflush(postgres->connection);
        if (left == 0)
            return STATUS_OK;
        if (left < 0)
            return fail(error, PQerrorMessage(postgres->connection));
        if (!wait_for(postgres, POLLIN | POLLOUT, until_ms))
            return fail_late(error);
        if (!PQconsumeInput(postgres->connection))
            return fail(error, PQerrorMessage(postgres->connection));
    }
}

/* Takes all results of the statement that was sent. */
static enum status finish(struct postgres *postgres, char error[FANOUT_ERROR_BYTES_MAX]) {
    PGconn *connection = postgres->connection;
    uint64_t until_ms = clock_mono_now_ms() + FANOUT_TIMEOUT_MS;
    enum status status = flush(postgres, until_ms, error);
    while (status == STATUS_OK) {
        if (PQisBusy(connection)) {
            if (!wait_for(postgres, POLLIN, until_ms))
                return fail_late(error);
            if (!PQconsumeInput(connection))
                return fail(error, PQerrorMessage(connection));
            continue;
        }
        PGresult *result = PQgetResult(connection);
        if (!result)
            break;
        ExecStatusType kind = PQresultStatus(result);
        if (kind != PGRES_COMMAND_OK && kind != PGRES_TUPLES_OK && kind != PGRES_EMPTY_QUERY)
            status = fail(error, PQresultErrorMessage(result));
        PQclear(result);
    }
    if (status == STATUS_OK)
        pass_on(postgres);
    return status;
}

static enum status execute(struct postgres *postgres, const char *statement,
                           char error[FANOUT_ERROR_BYTES_MAX]) {
    if (!PQsendQuery(postgres->connection, statement))
        return fail(error, PQerrorMessage(postgres->connection));
    return finish(postgres, error);
}

/* ---- connecting ---- */

static const char *postgres_check_url(const char *url) {
    char *reason = NULL;
    PQconninfoOption *options = NULL;
    if (strncmp(url, "postgres://", strlen("postgres://")) == 0 ||
        strncmp(url, "postgresql://", strlen("postgresql://")) == 0)
        options = PQconninfoParse(url, &reason);
    bool is_good = options != NULL;
    PQconninfoFree(options);
    PQfreemem(reason); /* it may quote the password */
    return is_good ? NULL : "is no URL like postgres://user@127.0.0.1/database";
}

static enum status finish_connect(struct postgres *postgres, char error[FANOUT_ERROR_BYTES_MAX]) {
    uint64_t until_ms = clock_mono_now_ms() + FANOUT_TIMEOUT_MS;
    PostgresPollingStatusType step = PGRES_POLLING_WRITING;
    if (PQstatus(postgres->connection) == CONNECTION_BAD)
        return fail(error, PQerrorMessage(postgres->connection));
    while (step != PGRES_POLLING_OK) {
        if (!wait_for(postgres, step == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_ms))
            return fail_late(error);
        step = PQconnectPoll(postgres->connection);
        if (step == PGRES_POLLING_FAILED)
            return fail(error, PQerrorMessage(postgres->connection));
    }
    return STATUS_OK;
}

static void ignore_notice(void *user, const PGresult *notice) {
    (void)user;
    (void)notice;
}

static void postgres_close(void *connection) {
    struct postgres *postgres = connection;
    PQfinish(postgres->connection);
    free(postgres);
}

/* The URL decides about TLS, and wins over the keys before it. */
static enum status postgres_connect(void **connection, const struct fanout_port *port,
                                    char error[FANOUT_ERROR_BYTES_MAX]) {
    /* A notification is a transaction. Hints need not survive a crash, so none waits for the disk.
     */
    static const char settings[] = "SET synchronous_commit = off";
    char statement[CHANNEL_BYTES_MAX + sizeof(settings) + sizeof("; LISTEN \"\"")];
    const char *const keys[] = {"application_name", "dbname", "client_encoding", NULL};
    const char *const values[] = {"khala-fanout", port->url, "UTF8", NULL};
    struct postgres *postgres = calloc(1, sizeof(*postgres));
    if (!postgres)
        return fail(error, "out of memory");
    postgres->port = port;
    postgres->connection = PQconnectStartParams(keys, values, 1);
    enum status status =
        postgres->connection ? finish_connect(postgres, error) : fail(error, "out of memory");
    if (status == STATUS_OK) {
        PQsetNoticeReceiver(postgres->connection, ignore_notice, NULL);
        if (PQsetnonblocking(postgres->connection, 1) != 0)
            status = fail(error, PQerrorMessage(postgres->connection));
    }
    if (status == STATUS_OK) {
        /* The channel has letters, digits and dots only. */
        snprintf(statement, sizeof(statement), "%s; LISTEN \"%s\"", settings, port->channel);
        status = execute(postgres, statement, error);
    }
    if (status == STATUS_OK)
        *connection = postgres;
    else
        postgres_close(postgres);
    return status;
}

/* ---- the connection ---- */

static enum status postgres_send(void *connection, struct slice text,
                                 char error[FANOUT_ERROR_BYTES_MAX]) {
    struct postgres *postgres = connection;
    char payload[CHANNEL_BYTES_MAX + 1];
    snprintf(payload, sizeof(payload), "%.*s", (int)text.size, text.data);
    const char *const values[] = {postgres->port->channel, payload};
    if (!PQsendQueryParams(postgres->connection, "SELECT pg_notify($1, $2)", 2, NULL, values, NULL,
                           NULL, 0))
        return fail(error, PQerrorMessage(postgres->connection));
    return finish(postgres, error);
}

static enum status postgres_ping(void *connection, char error[FANOUT_ERROR_BYTES_MAX]) {
    return execute(connection, "", error);
}

static enum status postgres_wait(void *connection, int timeout_ms,
                                 char error[FANOUT_ERROR_BYTES_MAX]) {
    struct postgres *postgres = connection;
    struct pollfd wait[] = {{.fd = postgres->port->wake_fd, .events = POLLIN},
                            {.fd = PQsocket(postgres->connection), .events = POLLIN}};
    if (poll(wait, 2, timeout_ms) < 0)
        return errno == EINTR ? STATUS_OK : fail(error, strerror(errno));
    if (!wait[1].revents)
        return STATUS_OK;
    if (!PQconsumeInput(postgres->connection))
        return fail(error, PQerrorMessage(postgres->connection));
    pass_on(postgres);
    return STATUS_OK;
}

const struct fanout_driver fanout_driver_postgres = {
    .name = "postgres_notify",
    .check_url = postgres_check_url,
    .connect = postgres_connect,
    .send = postgres_send,
    .ping = postgres_ping,
    .wait = postgres_wait,
    .close = postgres_close,
};
