/* An exchange: one request and its one answer.
 * Belongs to its connection's loop. Lives from the request's head until its answer is written;
 * the request's slices live as long, unless the connection goes first: then conn and request are
 * NULL, the body stays, and the answer frees the exchange.
 * Exactly one of the answering functions is called, once, and the exchange not touched after it;
 * answering cannot fail for the caller: what cannot be written closes the connection.
 * Every error has one body: {"error","message","reason_code"?,"request_id","details"?}. */
#ifndef SERVER_EXCHANGE_H
#define SERVER_EXCHANGE_H

#include "base/buffer.h"
#include "wire/http1.h"

#define EXCHANGE_PARAMETERS_MAX 2
#define REQUEST_ID_BYTES_MAX    64

struct conn;
struct route;
struct server;

struct exchange {
    struct conn *conn; /* NULL: gone while the answer was owed */
    struct server *server;
    const struct http1_request *request; /* NULL: refused in the head, or conn is gone */
    const struct route *route;
    struct slice parameters[EXCHANGE_PARAMETERS_MAX]; /* decoded {…} segments of the path */
    size_t parameter_count;
    struct buffer parameter_memory;
    struct buffer body;
    char request_id[REQUEST_ID_BYTES_MAX + 1]; /* made when first needed */
    enum status refused; /* known from the head; answered when the request is read */
    bool answered;
};

struct exchange_error {
    enum status status;
    const char *message;     /* NULL: the status's own */
    const char *reason_code; /* NULL: none */
    struct slice details;    /* a JSON object, or empty */
    struct http1_header *headers;
    size_t header_count;
};

struct exchange *exchange_new(struct conn *conn, const struct http1_request *request);
void exchange_free(struct exchange *exchange);
/* For connections: this one closes while a handler owes the answer. */
void exchange_abandon(struct exchange *exchange);

void exchange_answer_json(struct exchange *exchange, unsigned http_status, struct slice body);
void exchange_answer_error(struct exchange *exchange, const struct exchange_error *error);
void exchange_answer_status(struct exchange *exchange, enum status status);

#endif
