/* Single uses of tokens and nonces: the store decides whether a use is the first. Uses that wait
 * together share one transaction, and a principal has a rate.
 * Thread: single_use_post belongs to the loop of its call; the writer's thread decides, on any
 * node.
 * Memory: a use holds its own copy of the id, and is its caller's until the call has returned.
 * Errors: STATUS_INVALID_TOKEN for an id that is empty or too long, STATUS_TOKEN_REPLAYED for a
 * second use, STATUS_RATE_LIMITED; when the store fails, the use may or may not count.
 * Invariant: a use that was decided stays used across restarts, until it expires. */
#ifndef HTTP_ADMIT_SINGLE_USE_H
#define HTTP_ADMIT_SINGLE_USE_H

#include "auth/principal.h"
#include "authority/call.h"
#include "base/rate_table.h"

#define SINGLE_USE_ID_BYTES_MAX 640

/* Of one principal and one kind. A fleet that reconnects after a restart opens all its connections
 * at once, with a token or a nonce each; KHALA_CONNECTIONS_PER_PRINCIPAL_MAX is 256 by default. */
#define SINGLE_USES_PER_SECOND 20
#define SINGLE_USES_BURST      256

struct single_use {
    enum single_use_kind kind;
    char id[SINGLE_USE_ID_BYTES_MAX];
    size_t id_size;
    uint64_t expires_at_ms;
    uint64_t forget_ms;      /* uses that expired before this time may be forgotten */
    struct call *call;       /* returns with the result as its status */
    struct single_use *next; /* the next one that waits */
};

struct single_uses {
    struct writer *writer;
    struct rate_table rates[2]; /* one for each kind, so that one does not use up the other */
    struct writer_job job;
    pthread_mutex_t lock;
    struct single_use *first; /* these wait */
    struct single_use *last;
    bool is_posted; /* the job, which takes those that wait */
};

void single_uses_init(struct single_uses *uses, struct writer *writer);
/* Also for a struct of zeroes. After the writer has stopped. */
void single_uses_release(struct single_uses *uses);

MUST_CHECK enum status single_use_init(struct single_use *use, enum single_use_kind kind,
                                       struct slice id);
/* The call began. Its status becomes STATUS_OK once the first use is durable. */
void single_use_post(struct single_uses *uses, struct single_use *use, struct call *call,
                     const struct principal *principal);

/* Until when the use of a token must be remembered. Later every clock refuses the token. */
uint64_t single_use_token_until_ms(const struct principal *principal);

#endif
