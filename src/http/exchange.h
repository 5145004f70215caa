/* An exchange: one request and its one answer.
 * Thread: its connection's loop.
 * Memory: an exchange, its parameters and its body live from the request's head until the answer
 * is written and the last reference is returned.
 * Errors: answering cannot fail for the caller. An answer that cannot be written closes the
 * connection, which then detaches the exchange (conn is NULL).
 * Invariant: each exchange gets exactly one answer, whole or in pieces. Every error has one body:
 * {"error","message","reason_code"?,"request_id","details"?}. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "auth/grant.h"
#include "auth/principal.h"
#include "authority/call.h"
#include "http/conn.h"

#define REQUEST_ID_BYTES_MAX 64

struct exchange;

/* How a handler reads a body and sends an answer in pieces; all on the loop's thread. */
struct exchange_stream {
    /* A piece of the body, valid during the call. Not called while paused. */
    void (*body)(struct exchange *exchange, struct slice piece);
    void (*body_end)(struct exchange *exchange);
    /* The piece that exchange_send could not write at once is written. */
    void (*sent)(struct exchange *exchange);
    /* The connection is gone while calls on other threads have not returned. May be NULL. */
    void (*gone)(struct exchange *exchange);
};

/* The answer, of which there is one. */
enum exchange_state {
    EXCHANGE_DUE,
    EXCHANGE_PLAIN,    /* it is sent in pieces; its length or the end of the connection ends it */
    EXCHANGE_CHUNKED,  /* it is sent in pieces, each a chunk */
    EXCHANGE_FAILING,  /* its head could not be written; the next piece closes the connection */
    EXCHANGE_ANSWERED, /* it was written in one piece */
};

struct exchange {
    struct conn *conn; /* NULL: the connection is gone, and no answer is possible */
    struct io_loop *loop;
    struct http *http;
    const struct http1_request *request; /* NULL without conn, or when the parser refused it */
    const struct principal *principal; /* a reference, of a token or an operator key; NULL: none */
    char *bearer;                      /* name of the principal of a refused token; NULL: unknown */
    const char *token_rule;   /* static: the rule that a refused token breaks; for operators only */
    enum grant_view view;     /* which frames of its topic the principal gets */
    unsigned scopes_needed;   /* named by STATUS_MISSING_SCOPE: bits of enum scope, one of them is
                                 needed */
    unsigned routes_hidden;   /* flags of the routes that its listener does not serve */
    uint64_t started_ns;      /* when its head was read */
    struct route_match match; /* the route, NULL until one is found, and its parameters */
    struct buffer parameter_memory;
    struct buffer body;
    char request_id[REQUEST_ID_BYTES_MAX + 1]; /* made when first needed */
    enum status refused; /* decided at the head; answered when the request is complete */
    enum exchange_state state;
    uint64_t held_bytes;     /* bytes of its large answer that the client has not read */
    unsigned refs;           /* calls on other threads that have not returned */
    bool has_read;           /* a read was posted to the store pool */
    struct call *store_call; /* the one in the store pool; cancelled with the connection */
    const struct exchange_stream *stream;
    void (*drain)(struct exchange *exchange); /* the server drains: answer soon; may be NULL */
    void *work; /* the handler's state; work_free frees it with the exchange */
    void (*work_free)(void *work);
};

struct exchange_error {
    enum status status;
    const char *message;     /* NULL: the status's own */
    const char *reason_code; /* NULL: none */
    struct slice details;    /* a JSON object, or empty */
    struct slice topic;      /* logged; absent: the topic of the route, if it has one */
    struct http1_header *headers;
    size_t header_count;
};

/* The answer is written, or has started. */
static inline bool exchange_is_answered(const struct exchange *exchange) {
    return exchange->state != EXCHANGE_DUE;
}

struct exchange *exchange_new(struct conn *conn, const struct http1_request *request);
/* The connection releases the exchange: it is freed now, or when the last reference returns. */
void exchange_detach(struct exchange *exchange);
/* Runs a handler in a later turn than the request's. */
void exchange_handle(struct exchange *exchange, void (*handle)(struct exchange *exchange));
/* Keeps the exchange until exchange_unref, also without its connection. */
void exchange_ref(struct exchange *exchange);
/* Returns a reference. False: the connection is gone, or the dispatcher has already answered, as it
 * does when a body is broken. The exchange may be freed then. */
MUST_CHECK bool exchange_unref(struct exchange *exchange);

/* The client's X-Request-Id if it is usable, so that its logs and ours can be joined. */
struct slice exchange_request_id(struct exchange *exchange);

/* Sets the header X-Request-Id if the client gave a usable id, so that the client can recognise an
 * answer that a cache or a proxy repeats for another request. */
bool exchange_id_header(struct exchange *exchange, struct http1_header *header);
bool exchange_is_head(const struct exchange *exchange);
/* The queue and the bounds of its principal. */
struct store_client exchange_client(const struct exchange *exchange,
                                    char key[PRINCIPAL_KEY_BYTES_MAX]);
/* Counts the bytes of an answer as unread while it is being made; the answer replaces them.
 * STATUS_RATE_LIMITED: the principal has no room for them. */
MUST_CHECK enum status exchange_hold(struct exchange *exchange, uint64_t bytes);

void exchange_answer(struct exchange *exchange, unsigned http_status, struct slice content_type,
                     struct slice body);
void exchange_answer_json(struct exchange *exchange, unsigned http_status, struct slice body);
/* Answers 200 with the JSON in text, or the failure: the status, or the first one of the appends to
 * text. */
void exchange_answer_text(struct exchange *exchange, enum status status, const struct buffer *text);
/* An answer without a body: 304. */
void exchange_answer_bare(struct exchange *exchange, unsigned http_status,
                          const struct http1_header *headers, size_t header_count);
void exchange_answer_error(struct exchange *exchange, const struct exchange_error *error);
void exchange_answer_status(struct exchange *exchange, enum status status);
/* Appends the error body, without a newline. */
MUST_CHECK enum status exchange_error_write(struct exchange *exchange,
                                            const struct exchange_error *error, struct buffer *out);

/* An answer of any length: begin, pieces, end. The head is sent with the first piece. */
void exchange_begin(struct exchange *exchange, unsigned http_status, struct slice content_type);
/* The same with the caller's header fields. */
void exchange_begin_with(struct exchange *exchange, unsigned http_status,
                         const struct http1_header *headers, size_t header_count);
/* The same for an answer of the writer, whose fields are passed on as they are. content_length
 * NULL: the length is not known. */
void exchange_begin_forwarded(struct exchange *exchange, unsigned http_status,
                              const struct http1_header *headers, size_t header_count,
                              const uint64_t *content_length);
/* True: written, and the caller may send more. False: the caller must not touch the exchange before
 * the stream's sent callback. */
MUST_CHECK bool exchange_send(struct exchange *exchange, struct slice piece);
/* Sends the last piece, which may be empty. The caller must not touch the exchange afterwards. */
void exchange_end(struct exchange *exchange, struct slice piece);
/* Breaks off an answer for that reason. Closes the connection, so that the client does not take the
 * answer for complete. */
void exchange_abort(struct exchange *exchange, enum status status);
/* Counts, logs and remembers an error that refuses the client; does nothing for other errors. A
 * topic without data stands for the route's topic. */
void exchange_log_refusal(struct exchange *exchange, enum status status, struct slice topic);
/* Counts, logs and remembers that an answer that has started breaks off for the status. */
void exchange_log_end(struct exchange *exchange, enum status status);
/* Ends a streamed exchange whose client makes too little progress. The exchange may be freed
 * afterwards. */
void exchange_end_unread(struct exchange *exchange);
/* Bytes of this connection's answers that the client has confirmed. */
uint64_t exchange_taken_bytes(const struct exchange *exchange);
/* Memory of the piece that is being sent. */
size_t exchange_sending_bytes(const struct exchange *exchange);
/* The token of the request has expired since it was admitted. Its data may no longer be sent. */
bool exchange_token_expired(const struct exchange *exchange);
/* Before data is sent: the reason why the token does not allow it any more, or STATUS_OK. */
MUST_CHECK enum status exchange_token_status(const struct exchange *exchange);
/* A part of the last piece is not written to the socket yet. */
bool exchange_is_sending(const struct exchange *exchange);
/* Bytes written to this connection, of all its answers. */
uint64_t exchange_written_bytes(const struct exchange *exchange);
/* Between two pieces of a chunked answer: lets a client that is gone answer with a reset
 * (conn_probe_chunked). The exchange may be gone afterwards. */
void exchange_probe_peer(struct exchange *exchange);
/* For an answer that may take long: closes the connection when the peer is gone, or some
 * seconds after the peer has closed its side. */
void exchange_watch_end(struct exchange *exchange);
/* Stops and resumes the body. Pieces, and even the end, may arrive inside exchange_resume. */
void exchange_pause(struct exchange *exchange);
void exchange_resume(struct exchange *exchange);
/* A body in pieces made progress, however few bytes that took: its deadline begins again. */
void exchange_renew_deadline(struct exchange *exchange);

/* ---- calls ---- */

/* Work on another thread on behalf of an exchange: it starts and is answered on the loop, and run
 * belongs to a thread of the store pool or to the writer. The call is part of the exchange's work,
 * which lives until the call has returned. A refusal of the pool or the writer is the call's
 * status. answer runs at most once, and only if the exchange can still be answered. */
struct exchange_call {
    struct call call; /* run is set for the store pool and the writer */
    struct exchange *exchange;
    void (*answer)(struct exchange_call *call);
};

/* Runs a call on the store pool in the queue of the exchange's principal, and keeps the exchange
 * until exchange_unref. An exchange has one such call at a time. The call is cancelled when the
 * client disconnects. */
void exchange_post_store(struct exchange *exchange, struct call *call);
/* exchange, answer and call.run are set. */
void exchange_call_store(struct exchange_call *call);
void exchange_call_writer(struct exchange_call *call);
/* exchange and answer are set. Another thread ends the call with call_return_post. */
void exchange_call_begin(struct exchange_call *call);
/* No thread took the work: answer runs with the status, in a later turn. */
void exchange_call_fail(struct exchange_call *call, enum status status);

#endif
