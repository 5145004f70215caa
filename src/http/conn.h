/* A connection: bytes in, requests to the exchange above it, answers out, one request at a time.
 * Thread: a connection belongs to its loop.
 * Memory: between requests a connection holds no buffer, and as a session nothing of HTTP.
 * Errors: a peer's mistake is reported by the refused event and the connection closes after the
 * answer; a peer that stops reading or sending is closed by its deadline.
 * Invariant: a connection does not read while an answer is due or a streaming handler is busy, so
 * a peer that pipelines cannot pile up work. */
#ifndef HTTP_CONN_H
#define HTTP_CONN_H

#include "base/limits.h"
#include "delivery/session/outlet.h"
#include "http/http.h"
#include "net/transport.h"
#include "wire/http1.h"

struct conn;
struct exchange;
struct session;

/* Bytes that arrive before the answer to an earlier request. */
#define CONN_UNREAD_BYTES_MAX LOOP_READ_BYTES

/* The part of a connection that requests and answers need. It is freed when the connection becomes
 * a session, because most connections of a busy server are idle sessions. */
struct conn_http {
    struct http1_parser parser;
    struct buffer unread;    /* bytes after the request that is being handled */
    struct buffer out;       /* the one bounded slot of bytes to be written */
    size_t fresh_body_bytes; /* arrived of a streamed body since its deadline was set */
    size_t unread_bytes;     /* unread of the answer when its deadline was set */
    uint64_t written_bytes;  /* written of all answers */
    unsigned chunk_zeros;    /* sent since the last chunk, to learn whether the peer is gone */
};

enum conn_state {
    CONN_READING,   /* waits for a request, or reads one */
    CONN_HANDLING,  /* a handler prepares the answer; nothing is read */
    CONN_WRITING,   /* the answer is being written; nothing is read */
    CONN_STREAMING, /* a handler reads the body, or sends its answer, in pieces */
    CONN_PUSHING,   /* a session: both sides send at any time */
    CONN_LINGERING, /* the last answer is sent; input is discarded */
    CONN_CLOSED,    /* the memory is freed when libuv has closed the handle */
};

/* What a connection reports to the layer that answers its requests: dispatch_events
 * (http/dispatch.c). */
struct conn_events {
    /* The head of a request is complete. */
    void (*head)(struct conn *conn, const struct http1_request *request);
    /* A piece of the body, valid during the call. */
    void (*body)(struct conn *conn, struct slice piece);
    /* The request is complete. */
    void (*request)(struct conn *conn);
    /* The request is broken or late: answer the status, or close. */
    void (*refused)(struct conn *conn, enum status status);
    /* A piece of a streamed answer is written, and the answer goes on. */
    void (*sent)(struct conn *conn);
    /* The delay of the answer is over. */
    void (*delayed)(struct conn *conn);
    /* The server drains and the answer is still due. */
    void (*drain)(struct conn *conn);
    /* The bytes of the answer that the peer must read within the deadline. */
    uint64_t (*progress_min)(const struct conn *conn);
    /* The connection is done with conn->exchange: it was answered, or the connection closes. */
    void (*detach)(struct exchange *exchange);
};

struct conn {
    struct transport transport;
    struct outlet outlet;  /* the session writes to it */
    struct list_node node; /* in the list of the loop's connections */
    uint64_t number;       /* rises in the order of arrival, over all loops */
    uint64_t since_ms;     /* when it was accepted */
    struct deadline deadline;
    struct conn_http *http;    /* NULL: a session has taken over */
    struct exchange *exchange; /* NULL between requests */
    struct session *session;   /* from the upgrade until the memory is freed */
    struct push *pushed;       /* a part of it is not written yet */
    struct conn_ticket ticket;
    struct principal_share principal_share;
    struct conn_share address_share;
    enum conn_state state;
    uint32_t lingered_bytes;  /* discarded since the last answer */
    enum status refusal;      /* the answer while its ticket is reserved */
    uint8_t peer_check_count; /* since the answer is due, or since its last piece */
    /* Bits, because every idle connection has this struct. */
    bool is_operators : 1;     /* accepted on the operator's listener */
    bool is_node : 1;          /* another node forwards the requests of many clients */
    bool has_head : 1;         /* the head of a request has arrived */
    bool keep_alive : 1;       /* after the answer under way */
    bool watches_end : 1;      /* reads while the answer is due, to notice a peer that closes */
    bool has_large_answer : 1; /* the kernel may hold much of the last answers */
    bool is_consuming : 1;     /* inside conn_consume, which continues by itself after an answer */
    /* These five are valid while streaming. */
    bool is_chunked : 1;    /* the answer consists of chunks */
    bool is_paused : 1;     /* the handler reads no more of the body for now */
    bool is_body_done : 1;  /* the whole body was read */
    bool is_sending : 1;    /* the bytes of http->out are being written */
    bool is_last_piece : 1; /* the end of the answer is in http->out */
};

static inline struct io_loop *conn_io(const struct conn *conn) {
    return io_loop_of(conn->transport.set);
}

static inline struct http_loop *conn_loop(const struct conn *conn) {
    return conn_io(conn)->owner;
}

/* ---- for the exchange ---- */

/* The body may have up to this many bytes. */
MUST_CHECK enum status conn_allow_body(struct conn *conn, uint64_t bytes_max);
/* Sends 100 Continue, unless the request was answered already. */
void conn_continue(struct conn *conn);
/* The request is complete, or refused: nothing is read before its answer. */
void conn_set_handling(struct conn *conn);
/* A handler reads the body in pieces; its answer may come in pieces. */
void conn_stream_body(struct conn *conn);
/* Handles nothing meanwhile; the delayed event follows. */
void conn_delay(struct conn *conn, uint64_t delay_ms);
/* The answer is in conn->http->out: write it, then continue with the next request. */
void conn_answer(struct conn *conn);
/* The handler starts an answer in pieces. */
void conn_stream(struct conn *conn, bool is_chunked);
/* Writes what is in conn->http->out, a piece of the answer or its end. True: it is written, and the
 * answer is not complete. False: the sent event follows, or the exchange is gone. */
bool conn_send(struct conn *conn);
/* Stops and resumes reading the body. Resuming may end the exchange. */
void conn_pause(struct conn *conn);
void conn_resume(struct conn *conn);
/* Closes the connection soon after the peer is gone while its answer is due, and some seconds after
 * the peer has closed its side only. Bytes that arrive are kept. */
void conn_watch_end(struct conn *conn);
/* Sends bytes of a chunked answer that change nothing, if none are on their way. A peer that is
 * gone answers them with a reset. Few are sent between two chunks. The connection may close. */
void conn_probe_chunked(struct conn *conn);
/* A request was handled in a later turn. If it became a session, the session gets the bytes that
 * arrived in between. */
void conn_handled_late(struct conn *conn);

void conn_close(struct conn *conn);
/* Closes and discards the bytes that were not sent, in the kernel too. */
void conn_reset(struct conn *conn);
/* The peer takes too little of the answer, or sends too little of the body: the connection ends,
 * and what the kernel holds is discarded. */
void conn_end_unread(struct conn *conn);
/* Bytes of all answers that the peer has confirmed. */
uint64_t conn_taken_bytes(const struct conn *conn);
/* Whether the connection or the kernel holds bytes that are not sent yet. */
bool conn_has_unsent(const struct conn *conn);
/* Ends our side, and reads for a while so that the last answer arrives. */
void conn_linger(struct conn *conn);
/* The handler made progress with a body that it reads in pieces. */
void conn_renew_deadline(struct conn *conn);

/* The limits outlive it. NULL: no memory is left. */
struct conn_http *conn_http_new(const struct http1_limits *limits);
void conn_http_free(struct conn_http *http);

/* For conn_outlet.c: the exchange is gone, and input goes to the session. */
void conn_start_session(struct conn *conn, struct session *session);

/* ---- for conn_accept.c ---- */

/* The transport has its socket: reads the first request. */
void conn_start(struct conn *conn);

/* ---- for http_loop.c ---- */

/* Idle connections close, the others finish their request. */
void conn_drain(struct conn *conn);
/* The callbacks of the deadlines of connections. */
void conn_expired(struct deadline *deadline);
void conn_unread_expired(struct deadline *deadline);
void conn_peer_check(struct deadline *deadline);
/* Closes the connections of a loop whose peers have vanished. */
void conn_peers_check(struct deadline *deadline);
void conn_delayed(struct deadline *deadline);
void conn_turn(struct deadline *deadline);

_Static_assert(sizeof(struct conn) <= 256, "every idle session has a connection");

/* The events of the transports of a loop whose owner is a struct http_loop. */
extern const struct transport_events conn_transport_events;

#endif
