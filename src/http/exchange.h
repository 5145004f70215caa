/* An exchange: one request and its one answer.
 * Belongs to its connection's loop. Lives from the request's head until its answer is written,
 * and as long as another thread still owes it something; the parameters and the body live as long.
 * Exactly one answer is given, whole or in pieces; answering cannot fail for the caller: what
 * cannot be written closes the connection, which then forgets the exchange (conn NULL).
 * Every error has one body: {"error","message","reason_code"?,"request_id","details"?}. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "auth/grant.h"
#include "http/conn.h"

#define REQUEST_ID_BYTES_MAX 64

struct principal;
struct exchange;

/* How a handler takes a body and gives an answer in pieces; all on the loop's thread. */
struct exchange_stream {
    /* A piece of the body, which lives during the call. Not called while paused. */
    void (*body)(struct exchange *exchange, struct slice piece);
    void (*body_end)(struct exchange *exchange);
    /* The piece that exchange_send could not write at once is written. */
    void (*sent)(struct exchange *exchange);
};

struct exchange {
    struct conn *conn; /* NULL: gone, there is nobody to answer */
    struct io_loop *loop;
    struct http *http;
    const struct http1_request *request; /* NULL with conn, or when there was none */
    const struct principal *principal; /* behind a reader's route; a reference. NULL: nobody yet */
    char *bearer;             /* whose token was refused, for people to know; NULL: not known */
    enum grant_view view;     /* which frames of its topic the principal gets */
    unsigned routes_hidden;   /* flags of those that are not served where it came in */
    uint64_t begun_ns;        /* when its head was read */
    struct route_match match; /* the route, NULL until one is found, and its parameters */
    struct buffer parameter_memory;
    struct buffer body;
    char request_id[REQUEST_ID_BYTES_MAX + 1]; /* made when first needed */
    enum status refused; /* known from the head; answered when the request is read */
    bool answered;       /* or the answer has begun */
    bool chunked;        /* the answer in pieces: else closing ends it */
    bool broken;         /* the answer's head could not be written */
    bool whole;          /* answered in one piece: nothing may follow */
    unsigned refs;       /* what other threads owe */
    const struct exchange_stream *stream;
    void (*drain)(struct exchange *exchange); /* the server ends: answer soon; may be NULL */
    void *work; /* the handler's own, which work_free takes back with the exchange */
    void (*work_free)(void *work);
};

struct exchange_error {
    enum status status;
    const char *message;     /* NULL: the status's own */
    const char *reason_code; /* NULL: none */
    struct slice details;    /* a JSON object, or empty */
    struct slice topic;      /* what it is about; absent: the route's, if it has one */
    struct http1_header *headers;
    size_t header_count;
};

struct exchange *exchange_new(struct conn *conn, const struct http1_request *request);
/* The connection lets go of it: it is freed now, or when the last reference returns. */
void exchange_detach(struct exchange *exchange);
/* Runs a handler for an exchange that had to wait for something first. */
void exchange_handle(struct exchange *exchange, void (*handle)(struct exchange *exchange));
/* Keeps the exchange until exchange_unref, also without its connection. A call under way keeps the
 * loop. */
void exchange_ref(struct exchange *exchange);
/* It came back. False: there is nobody to answer any more, or the connection has answered in the
 * handler's place, as it does when a body breaks off; the exchange may be gone. */
MUST_CHECK bool exchange_unref(struct exchange *exchange);

/* The client's own id where it gives a usable one, so that its logs and ours meet. */
struct slice exchange_request_id(struct exchange *exchange);
bool exchange_is_head(const struct exchange *exchange);

void exchange_answer(struct exchange *exchange, unsigned http_status, struct slice content_type,
                     struct slice body);
void exchange_answer_json(struct exchange *exchange, unsigned http_status, struct slice body);
/* An answer that has only a head: 304. */
void exchange_answer_bare(struct exchange *exchange, unsigned http_status,
                          const struct http1_header *headers, size_t header_count);
void exchange_answer_error(struct exchange *exchange, const struct exchange_error *error);
void exchange_answer_status(struct exchange *exchange, enum status status);
/* The one error body, without a line's end. */
MUST_CHECK enum status exchange_error_write(struct exchange *exchange,
                                            const struct exchange_error *error, struct buffer *out);

/* An answer of any length: begin, pieces, end. The head leaves with the first piece. */
void exchange_begin(struct exchange *exchange, unsigned http_status, struct slice content_type);
/* The same with further fields. */
void exchange_begin_with(struct exchange *exchange, unsigned http_status,
                         const struct http1_header *headers, size_t header_count);
/* True: written, more may be sent. False: touch the exchange no more until the stream's sent. */
MUST_CHECK bool exchange_send(struct exchange *exchange, struct slice piece);
/* The last piece, which may be empty. Touch the exchange no more. */
void exchange_end(struct exchange *exchange, struct slice piece);
/* Breaks off for that reason: closes the connection, so that nobody takes the answer for a whole
 * one. */
void exchange_abort(struct exchange *exchange, enum status status);
/* Counts, logs and remembers an error that refuses the caller; other errors are not refusals. A
 * topic without data stands for the route's. */
void exchange_log_refusal(struct exchange *exchange, enum status status, struct slice topic);
/* Counts, logs and remembers that an answer that has begun breaks off for the status. */
void exchange_log_end(struct exchange *exchange, enum status status);
/* The token it came with has ended meanwhile: nothing more may be answered of what it opened. */
bool exchange_outlives_token(const struct exchange *exchange);
/* A piece is still being written. */
bool exchange_is_sending(const struct exchange *exchange);
/* The answer may be long in coming: a peer that goes meanwhile is noticed. */
void exchange_watch_end(struct exchange *exchange);
/* Holds the body back, and lets it come on; it may come, and even end, inside the call. */
void exchange_pause(struct exchange *exchange);
void exchange_resume(struct exchange *exchange);

#endif
