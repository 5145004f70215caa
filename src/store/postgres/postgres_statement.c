/* Parameters, single statements, and pipelines of several statements. Parameters and results are in
 * PostgreSQL's binary form: numbers in network order, texts and bytes as they are. */
#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <limits.h>
#include <stdio.h>

#include "base/clock.h"
#include "store/postgres/postgres.h"

/* The fixed numbers of PostgreSQL's own types. */
#define OID_BIGINT 20
#define OID_BYTEA  17
#define OID_TEXT   25
#define OID_UUID   2950
/* Dimensions, flags, the type of an element, length, lower bound. */
#define ARRAY_HEADER_BYTES 20
#define NULL_LENGTH        UINT32_MAX
/* A statement of rows with its parameters written out. */
#define SQL_BYTES_MAX 4096

/* ---- parameters ------------------------------------------------------------------------------ */

static size_t parameter_count(const struct postgres_statement *statement) {
    return statement->layout ? statement->column_count : strlen(statement->parameters);
}

static char parameter_type(const struct postgres_statement *statement, size_t index) {
    if (!statement->layout)
        return statement->parameters[index];
    char type = store_column_type(&statement->layout->columns[statement->first_column + index]);
    return (char)toupper(type == 's' ? 'n' : type);
}

static const struct {
    const char *name;
    uint32_t oid;
} types[UCHAR_MAX] = {
    ['n'] = {"bigint", OID_BIGINT},
    ['t'] = {"text", OID_TEXT},
    ['b'] = {"bytea", OID_BYTEA},
    ['u'] = {"uuid", OID_UUID},
};

/* The text of a statement, NUL-terminated, with the parameters of its rows written out. */
static const char *sql_of(enum statement_id id, char memory[SQL_BYTES_MAX]) {
    const struct postgres_statement *statement = &postgres_statements[id];
    if (!statement->layout)
        return statement->sql;
    struct buffer sql = buffer_over(memory, SQL_BYTES_MAX);
    for (const char *next = statement->sql; *next; next++) {
        if (*next != '@' && *next != '#')
            buffer_append_byte(&sql, *next);
        for (size_t i = 0; (*next == '@' || *next == '#') && i < statement->column_count; i++)
            buffer_printf(&sql, *next == '@' ? "%s$%zu::%s[]" : "%sunnest($%zu::%s[])",
                          i > 0 ? ", " : "", i + 1,
                          types[tolower((unsigned char)parameter_type(statement, i))].name);
    }
    buffer_append_byte(&sql, '\0');
    assert(buffer_status(&sql) == STATUS_OK);
    return memory;
}

void postgres_begin(struct postgres_session *session, enum statement_id id) {
    const struct postgres_statement *statement = &postgres_statements[id];
    session->statement = id;
    session->parameter_count = parameter_count(statement);
    session->next_parameter = 0;
    assert(session->parameter_count <= POSTGRES_PARAMETERS_MAX);
    for (size_t i = 0; i < session->parameter_count; i++) {
        struct postgres_parameter *parameter = &session->parameters[i];
        static const char header[ARRAY_HEADER_BYTES];
        buffer_clear(&parameter->bytes);
        parameter->count = 0;
        parameter->is_null = false;
        if (isupper((unsigned char)parameter_type(statement, i)))
            buffer_append(&parameter->bytes, header, sizeof(header));
    }
}

/* bytes NULL: the value NULL. */
static void put(struct postgres_session *session, char kind, const void *bytes, size_t size) {
    assert(session->parameter_count > 0);
    size_t index = session->next_parameter;
    struct postgres_parameter *parameter = &session->parameters[index];
    char wanted = parameter_type(&postgres_statements[session->statement], index);
    assert(tolower((unsigned char)wanted) == kind);
    session->next_parameter = (index + 1) % session->parameter_count;
    if (isupper((unsigned char)wanted)) {
        uint32_t length = htonl(bytes ? (uint32_t)size : NULL_LENGTH);
        buffer_append(&parameter->bytes, &length, sizeof(length));
        parameter->count++;
    } else {
        parameter->is_null = bytes == NULL;
    }
    if (bytes)
        buffer_append(&parameter->bytes, bytes, size);
}

void postgres_put_signed(struct postgres_session *session, int64_t number) {
    uint64_t ordered = htobe64((uint64_t)number);
    put(session, 'n', &ordered, sizeof(ordered));
}

void postgres_put_number(struct postgres_session *session, uint64_t number) {
    assert(number <= INT64_MAX);
    postgres_put_signed(session, (int64_t)number);
}

void postgres_put_bound(struct postgres_session *session, uint64_t number) {
    postgres_put_signed(session, number < INT64_MAX ? (int64_t)number : INT64_MAX);
}

void postgres_put_optional(struct postgres_session *session, uint64_t number) {
    if (number == 0)
        put(session, 'n', NULL, 0);
    else
        postgres_put_number(session, number);
}

void postgres_put_text(struct postgres_session *session, struct slice text) {
    put(session, 't', text.data, text.size);
}

void postgres_put_bytes(struct postgres_session *session, const void *bytes, size_t size) {
    put(session, 'b', bytes, size);
}

void postgres_put_uuid(struct postgres_session *session, const struct uuid *uuid) {
    put(session, 'u', uuid ? uuid->bytes : NULL, sizeof(uuid->bytes));
}

void postgres_put_row(struct postgres_session *session, const void *row) {
    const struct postgres_statement *statement = &postgres_statements[session->statement];
    const struct store_column *columns = statement->layout->columns + statement->first_column;
    for (size_t i = 0; i < statement->column_count; i++) {
        struct store_value value = {0};
        char type = store_column_type(&columns[i]);
        store_column_get(&columns[i], row, &value);
        if (type != 'n' && type != 's')
            put(session, type, value.is_null ? NULL : value.bytes.data, value.bytes.size);
        else if (value.is_null)
            put(session, 'n', NULL, 0);
        else
            postgres_put_signed(session, value.number);
    }
}

/* The parameters as libpq takes them. */
struct arguments {
    const char *values[POSTGRES_PARAMETERS_MAX];
    int sizes[POSTGRES_PARAMETERS_MAX];
    int formats[POSTGRES_PARAMETERS_MAX];
};

static enum status finish_parameters(struct postgres_session *session,
                                     struct arguments *arguments) {
    const struct postgres_statement *statement = &postgres_statements[session->statement];
    assert(session->next_parameter == 0);
    for (size_t i = 0; i < session->parameter_count; i++) {
        struct postgres_parameter *parameter = &session->parameters[i];
        char type = parameter_type(statement, i);
        if (buffer_status(&parameter->bytes) != STATUS_OK) {
            snprintf(session->error, sizeof(session->error),
                     "the rows are larger than the memory reserved for them");
            session->reason = REASON_STORE_FAILED;
            return STATUS_OUT_OF_MEMORY;
        }
        if (isupper((unsigned char)type)) {
            uint32_t header[] = {htonl(parameter->count > 0), 0,
                                 htonl(types[tolower((unsigned char)type)].oid),
                                 htonl(parameter->count), htonl(1)};
            _Static_assert(sizeof(header) == ARRAY_HEADER_BYTES, "as reserved");
            memcpy(parameter->bytes.data, header, sizeof(header));
            /* An array without elements has no dimension. */
            if (parameter->count == 0)
                parameter->bytes.size = 3 * sizeof(uint32_t);
        }
        arguments->values[i] = parameter->is_null          ? NULL
                               : parameter->bytes.size > 0 ? parameter->bytes.data
                                                           : "";
        arguments->sizes[i] = (int)parameter->bytes.size;
        arguments->formats[i] = 1;
    }
    return STATUS_OK;
}

/* ---- faults ---------------------------------------------------------------------------------- */

enum status postgres_damaged(struct postgres_session *session, const char *row_name,
                             uint64_t number) {
    snprintf(session->error, sizeof(session->error),
             "%s: %s %llu is damaged; the store is damaged: restore a backup",
             session->store->label, row_name, (unsigned long long)number);
    session->reason = REASON_STORE_FAILED;
    return STATUS_INTERNAL_ERROR;
}

static enum reason reason_of(const PGresult *result) {
    const char *code = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    if (code && strcmp(code, "53100") == 0)
        return REASON_STORE_FULL;
    if (code && strcmp(code, "25006") == 0)
        return REASON_STORE_READ_ONLY;
    return REASON_STORE_FAILED;
}

/* After a fatal error the server closes the connection, which libpq may not have noticed yet. */
static bool is_connected(const struct postgres_session *session, const PGresult *result) {
    const char *severity =
        result ? PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED) : NULL;
    if (severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0))
        return false;
    return session->connection && PQstatus(session->connection) == CONNECTION_OK;
}

enum status postgres_fault(struct postgres_session *session, const PGresult *result) {
    enum status status =
        postgres_result_fault(session->store, session->connection, result, session->error);
    session->reason = reason_of(result);
    session->tail.known = false;
    if (is_connected(session, result))
        return status;
    postgres_disconnect(session);
    return session->base.mode == STORE_WRITE ? STATUS_WRITER_LOST : STATUS_STORE_UNAVAILABLE;
}

/* ---- one statement ---- */

static void name_of(enum statement_id id, char name[16]) {
    snprintf(name, 16, "s%d", (int)id);
}

/* *result is NULL where the status is not STATUS_OK. */
static enum status take(struct postgres_session *session, PGresult **result) {
    ExecStatusType answered = PQresultStatus(*result);
    if (answered == PGRES_COMMAND_OK || answered == PGRES_TUPLES_OK)
        return STATUS_OK;
    enum status status = postgres_fault(session, *result);
    PQclear(*result);
    *result = NULL;
    return status;
}

static enum status prepare(struct postgres_session *session) {
    char name[16], sql[SQL_BYTES_MAX];
    enum statement_id id = session->statement;
    if (session->prepared[id])
        return STATUS_OK;
    name_of(id, name);
    PGresult *result = NULL;
    if (PQsendPrepare(session->connection, name, sql_of(id, sql), 0, NULL))
        result = postgres_results(session->store, session->connection);
    enum status status = take(session, &result);
    PQclear(result);
    session->prepared[id] = status == STATUS_OK;
    return status;
}

static enum status query_once(struct postgres_session *session, const struct arguments *arguments,
                              PGresult **result) {
    char name[16];
    enum status status = postgres_ensure(session);
    if (status == STATUS_OK)
        status = prepare(session);
    if (status != STATUS_OK)
        return status;
    name_of(session->statement, name);
    if (PQsendQueryPrepared(session->connection, name, (int)session->parameter_count,
                            arguments->values, arguments->sizes, arguments->formats, 1))
        *result = postgres_results(session->store, session->connection);
    session->pinged_ns = clock_now().mono_ns;
    return take(session, result);
}

enum status postgres_query(struct postgres_session *session, PGresult **result) {
    struct arguments arguments;
    *result = NULL;
    enum status status = finish_parameters(session, &arguments);
    if (status != STATUS_OK)
        return status;
    bool was_connected = session->connection != NULL;
    status = query_once(session, &arguments, result);
    /* The server may have ended an idle connection long ago. */
    if (status == STATUS_STORE_UNAVAILABLE && was_connected && !session->connection &&
        session->base.mode == STORE_READ && !session->in_transaction)
        status = query_once(session, &arguments, result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(*result); i++)
        store_session_count_row(&session->base);
    return status;
}

enum status postgres_run(struct postgres_session *session) {
    PGresult *result = NULL;
    enum status status = postgres_query(session, &result);
    PQclear(result);
    return status;
}

/* ---- pipelines ---- */

enum status postgres_pipeline_begin(struct postgres_session *session) {
    enum status status = postgres_ensure(session);
    if (status != STATUS_OK)
        return status;
    session->sent_count = session->received_count = 0;
    session->is_synced = false;
    return PQenterPipelineMode(session->connection) ? STATUS_OK : postgres_fault(session, NULL);
}

static void note_sent(struct postgres_session *session, bool is_preparation) {
    assert(session->sent_count < POSTGRES_PIPELINE_MAX);
    session->sent[session->sent_count].id = session->statement;
    session->sent[session->sent_count++].is_preparation = is_preparation;
}

enum status postgres_pipeline_send(struct postgres_session *session) {
    struct arguments arguments;
    char name[16], sql[SQL_BYTES_MAX];
    enum statement_id id = session->statement;
    enum status status = finish_parameters(session, &arguments);
    if (status != STATUS_OK)
        return status;
    name_of(id, name);
    if (!session->prepared[id]) {
        if (!PQsendPrepare(session->connection, name, sql_of(id, sql), 0, NULL))
            return postgres_fault(session, NULL);
        note_sent(session, true);
    }
    if (!PQsendQueryPrepared(session->connection, name, (int)session->parameter_count,
                             arguments.values, arguments.sizes, arguments.formats, 1))
        return postgres_fault(session, NULL);
    note_sent(session, false);
    return STATUS_OK;
}

enum status postgres_pipeline_sync(struct postgres_session *session) {
    session->is_synced = true;
    return PQpipelineSync(session->connection) ? STATUS_OK : postgres_fault(session, NULL);
}

/* One result of the pipeline, and the NULL that follows it. */
static enum status receive_one(struct postgres_session *session, PGresult **result) {
    assert(session->received_count < session->sent_count);
    enum statement_id id = session->sent[session->received_count].id;
    bool is_preparation = session->sent[session->received_count].is_preparation;
    *result = postgres_result(session->store, session->connection);
    if (*result) {
        PGresult *end = postgres_result(session->store, session->connection);
        assert(end == NULL || PQstatus(session->connection) != CONNECTION_OK);
        PQclear(end);
    }
    session->received_count++;
    session->pinged_ns = clock_now().mono_ns;
    enum status status = take(session, result);
    if (is_preparation && status == STATUS_OK)
        session->prepared[id] = true;
    return status;
}

enum status postgres_pipeline_receive(struct postgres_session *session, PGresult **result) {
    *result = NULL;
    enum status status = STATUS_OK;
    if (session->sent[session->received_count].is_preparation) {
        status = receive_one(session, result);
        PQclear(*result);
        *result = NULL;
    }
    if (status == STATUS_OK)
        status = receive_one(session, result);
    for (int i = 0; status == STATUS_OK && i < PQntuples(*result); i++)
        store_session_count_row(&session->base);
    return status;
}

/* After a failure the results up to the synchronisation point are notes that nothing ran. A NULL
 * stands between the results of two statements. */
static bool drain(struct postgres_session *session) {
    int absent = 0;
    if (!session->is_synced && !PQpipelineSync(session->connection))
        return false;
    while (absent < 2) {
        PGresult *result = postgres_result(session->store, session->connection);
        bool is_end = result && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
        absent = result ? 0 : absent + 1;
        if (result && !is_end && session->received_count < session->sent_count) {
            size_t index = session->received_count++;
            /* A preparation stays, even if the caller does not need the result of its statement. */
            if (session->sent[index].is_preparation && PQresultStatus(result) == PGRES_COMMAND_OK)
                session->prepared[session->sent[index].id] = true;
        }
        PQclear(result);
        if (is_end)
            return true;
    }
    return false;
}

void postgres_pipeline_end(struct postgres_session *session) {
    if (!session->connection || PQpipelineStatus(session->connection) == PQ_PIPELINE_OFF ||
        (drain(session) && PQexitPipelineMode(session->connection)))
        return;
    snprintf(session->error, sizeof(session->error), "%s: the connection was lost",
             session->store->label);
    postgres_disconnect(session);
}
