/* A connection: bytes in, requests to their handlers, answers out, one request at a time.
 * Belongs to its loop's thread. Between requests it holds no memory but itself.
 * A peer's mistake is answered with its coded error and the connection closes; a peer that stops
 * reading or sending is closed by its deadline.
 * Nothing is read while an answer is due, or while a streaming handler is busy, so a peer that
 * pipelines cannot pile up work. */
#ifndef HTTP_CONN_H
#define HTTP_CONN_H

#include "delivery/outlet.h"
#include "http/exchange.h"
#include "io/loop.h"
#include "io/transport.h"

enum conn_state {
    CONN_READING,   /* waits for a request, or reads one */
    CONN_HANDLING,  /* a handler owes the answer; nothing is read */
    CONN_WRITING,   /* the answer is going out; nothing is read */
    CONN_STREAMING, /* a handler takes the body, or gives its answer, in pieces */
    CONN_PUSHING,   /* a session: both sides speak when they like */
    CONN_LINGERING, /* the last answer is out; what still comes is thrown away */
    CONN_CLOSED,    /* libuv lets go of the handle, then the memory returns */
};

struct conn {
    uv_tcp_t tcp;
    struct secure *secure; /* NULL: bytes go as they are */
    struct io_loop *loop;
    struct conn *previous;
    struct conn *next;
    struct deadline deadline;
    struct http1_parser parser;
    struct exchange *exchange; /* NULL between requests */
    struct outlet outlet;      /* how the session writes */
    struct session *session;   /* while pushing, and until the memory returns */
    struct push *pushed;       /* what the session's socket is still taking */
    struct buffer unread;      /* bytes behind the request being handled */
    struct buffer out;         /* the one bounded slot of bytes to be written */
    size_t lingered_bytes;     /* thrown away since the last answer */
    enum conn_state state;
    bool is_operators; /* came in by the operator's own listener */
    bool has_place;    /* among the server's connections_max */
    bool keep_alive;   /* after the answer under way */
    bool watches_end;  /* reads on while the answer is due, to see the peer go */
    bool consuming;    /* inside conn_consume, which goes on by itself after an answer */
    /* These four while streaming. */
    bool paused;    /* the handler takes no more of the body for now */
    bool body_done; /* the whole body was read */
    bool sending;   /* conn->out is being written */
    bool ending;    /* the end of the answer is in conn->out */
};

/* Accepts what the loop's listener has; beyond the server's maximum it is closed at once. */
void conn_accept(struct io_loop *loop);
/* The same for its operator's listener, which has some places beyond the maximum: whoever looks
 * after a server that clients have filled must get in. */
void conn_accept_operator(struct io_loop *loop);
struct conn *conn_of_deadline(struct deadline *deadline);
/* Its deadline has passed. */
void conn_expired(struct conn *conn);
/* Runs a handler for an exchange that had to wait for something first. */
void conn_handle(struct exchange *exchange, void (*handle)(struct exchange *exchange));
/* The exchange's answer is in conn->out: write it, then go on with the next request. */
void conn_answered(struct conn *conn);
/* The handler starts an answer in pieces. */
void conn_stream(struct conn *conn);
/* Writes what is in conn->out, a piece of the answer or its end. True: it is written, and the
 * answer is not over. False: wait for the stream's sent, and touch the exchange no more. */
bool conn_send(struct conn *conn);
/* Takes no more of the body, and goes on with it. Going on may end the exchange. */
void conn_pause(struct conn *conn);
void conn_resume(struct conn *conn);
/* Notices a peer that goes while its answer is due; bytes that come are kept, and end that. */
void conn_watch_end(struct conn *conn);
void conn_close(struct conn *conn);
/* Closes it, and what its peer was not sent yet is not sent any more, by the kernel either. */
void conn_reset(struct conn *conn);
/* Whether there is such a thing. */
bool conn_has_unsent(const struct conn *conn);
/* Ends our side, and reads on for a while so that the last words arrive. */
void conn_linger(struct conn *conn);

/* For transport.c: its handshake is over; bytes of the peer; what was being written is written. */
void conn_opened(struct conn *conn);
void conn_received(struct conn *conn, struct slice input);
void conn_output_done(struct conn *conn, int error);

/* The connection is a session's from now on; its exchange is gone. */
void conn_attach(struct conn *conn, struct session *session);
/* The loop drains: whoever is between requests closes, the others after their answer; sessions are
 * told when to come back. */
void conn_drain_all(struct io_loop *loop);
void conn_close_all(struct io_loop *loop);

#endif
