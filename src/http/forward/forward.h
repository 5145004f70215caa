/* Forwarding: a node without the writer role passes requests that need it to the writer.
 * Thread: the exchange's loop.
 * Memory: bounded by the FORWARD_… limits, for each loop. Bodies and answers are streamed with
 * backpressure; a single append is held until it is answered.
 * Errors: 503 not_writer when no writer could be reached and nothing was stored; 503
 * append_outcome_unknown when the writer got the request and its answer was lost; 503
 * limit_reached when too many requests wait.
 * Invariant: a request is sent again only if nothing of it could take effect, or if its event id
 * makes that safe. A piece of the answer is passed on after a pass over the log that began later.
 */
#ifndef HTTP_FORWARD_FORWARD_H
#define HTTP_FORWARD_FORWARD_H

#include "http/exchange.h"

struct forwards;
struct nodes;
struct tls_context;

struct forwards_options {
    struct http *http;
    struct io_loop *loop;
    struct nodes *nodes;
    struct tls_context *tls; /* client side; NULL: no writer is reached by https */
    uint64_t silence_ms;     /* after which a writer that sends nothing is given up */
};

/* The requests of one loop. */
MUST_CHECK enum status forwards_open(struct forwards **forwards,
                                     const struct forwards_options *options);
/* When the loop has ended. NULL is none. */
void forwards_free(struct forwards *forwards);
/* The loop drains: kept connections close. Those of requests close with them. NULL is none. */
void forwards_drain(struct forwards *forwards);

enum forward_choice {
    FORWARD_HERE,   /* this node handles the request */
    FORWARD_PASS,   /* the writer does */
    FORWARD_REFUSE, /* another node sent it here, and this one is not the writer: not_writer */
};

enum forward_choice forward_choose(const struct exchange *exchange);
/* Passes an admitted request on. A route that streams its body: at the head; others: with the
 * whole body. */
void forward_begin(struct exchange *exchange);

#endif
