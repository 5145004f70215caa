/* The state of a forwarded request, for forward.c and forward_answer.c only.
 * Belongs to the exchange's loop.
 * Memory: the forward is its exchange's work, and is freed with it.
 * Errors: none of its own.
 * forward.c has the way to the writer, forward_answer.c the way back. A forward whose exchange was
 * answered may be freed, so that an answer is the last thing that a function does. */
#ifndef HTTP_FORWARD_FORWARD_STATE_H
#define HTTP_FORWARD_FORWARD_STATE_H

#include "authority/call.h"
#include "authority/follow/follow.h"
#include "cluster/nodes.h"
#include "http/forward/forward_lines.h"
#include "http/forward/node_proof.h"
#include "net/outbound.h"
#include "spec/metrics.h"
#include "wire/http1_response.h"

struct exchange;
struct http;

struct forwards {
    struct http *http;
    struct nodes *nodes;
    struct io_loop *loop;
    struct outbound_group group; /* the connections to the writer */
    struct deadline idle;        /* when the kept connection that rested longest closes */
    struct list waiting;         /* forwards without a connection, in order */
    size_t waiting_count;
    size_t stream_count;  /* forwards of streamed bodies that have a connection */
    size_t request_bytes; /* of all single appends */
    uint64_t silence_ms;
    uint64_t warned_ms;      /* when a failure was last logged as a warning; 0: never */
    uint64_t unlogged_count; /* failures since then */
    char proof[NODE_PROOF_SIZE + 1];
};

enum forward_state {
    FORWARD_WAITING, /* for a connection */
    FORWARD_PAUSED,  /* until the next attempt */
    FORWARD_CONNECTING,
    FORWARD_EXCHANGING,    /* the request is sent, and the answer read */
    FORWARD_FOLLOWING,     /* a piece of the answer waits for a pass over the log */
    FORWARD_FOLLOW_PAUSED, /* that pass failed; another one is requested soon */
    FORWARD_PASSING,       /* the client takes a piece of the answer */
    FORWARD_DISCARDING,    /* the writer is lost; the rest of the body is dropped */
    FORWARD_OVER,
};

struct forward {
    struct exchange *exchange;
    struct forwards *all;
    enum forward_state state;
    struct list_node node; /* while it waits */
    struct deadline deadline;
    struct outbound *upstream; /* NULL: none, or no more */
    char writer[NODE_ID_SIZE + 1];
    uint64_t give_up_ms;      /* no attempt begins later */
    uint64_t silent_until_ms; /* a writer that sends nothing until then is given up */
    size_t charged_bytes;
    struct buffer request; /* head and body; of a stream the part under way */
    struct http1_answer answer;
    struct buffer body; /* of the answer, not passed on yet */
    struct forward_lines lines;
    struct call call; /* returns from the writer's thread */
    struct follow_wait wait;
    uint64_t follow_until_ms;
    bool is_stream;
    bool is_long;         /* the writer may be silent for minutes */
    bool is_chunked;      /* the request's body */
    bool can_repeat;      /* its event id or key makes sending it again safe */
    bool is_repeated;     /* it was sent again for that reason */
    bool may_have_effect; /* the writer may have the request, or a part that it acts on */
    bool is_body_open;    /* the writer accepts the body */
    bool is_body_over;    /* the client has sent it all */
    bool is_request_over; /* the socket has it all, or is taking the last of it */
    bool is_continued;    /* the client was asked for its body */
    bool has_lines;       /* the answer is a line for each item */
    bool is_broken;       /* the writer was lost within its answer */
    bool is_counted;
};

/* ---- forward.c ---- */

/* The client is gone, or the dispatcher has answered it: nothing more can be passed on. */
bool forward_is_over(const struct forward *forward);
/* Sets the deadline of the writer, or drops it if the client must act next. */
void forward_await(struct forward *forward);
/* The answer is complete, or the connection is of no more use. Does nothing without one. */
void forward_end_upstream(struct forward *forward, bool is_kept);
/* The connection failed. Tries again, answers the client, or ends the answer that was begun. */
void forward_trouble(struct forward *forward, const char *reason);
/* Nothing was stored: tries again for some time. */
void forward_retry(struct forward *forward, const char *reason);
/* The writer asks for the body. False: the exchange is gone. */
MUST_CHECK bool forward_open_body(struct forward *forward);
/* Counts and logs the outcome, once. */
void forward_count(struct forward *forward, enum label_forward_outcome outcome, const char *reason);

/* ---- forward_answer.c ---- */

void forward_received(void *user, struct slice input);
/* Waits for a pass over the log, then passes on what has arrived. */
void forward_follow(struct forward *forward);
/* The client has taken a piece. */
void forward_passed(struct forward *forward);
/* The rest of the body was dropped. */
void forward_discarded(struct forward *forward);
/* The writer did not answer, or its answer cannot be passed on in time. */
void forward_answer_unknown(struct forward *forward, const char *reason);

#endif
