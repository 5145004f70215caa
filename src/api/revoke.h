/* A revocation under way: rows first, then memory, then every loop, then the other nodes.
 * first belongs to the writer's thread; everything else to the exchange's loop.
 * Memory: the work is the exchange's, alone or at the beginning of a larger struct.
 * Errors: the status of the answer. A revocation that was stored is never taken back.
 * The answer survives a crash, no revoked token is admitted after the sweep, and nothing is
 * delivered to a revoked principal after the answer. */
#ifndef API_REVOKE_H
#define API_REVOKE_H

#include "api/revoke_request.h"
#include "authority/call.h"
#include "cluster/nodes.h"
#include "http/exchange.h"
#include "http/sweep.h"

struct revoke_work {
    struct call call;
    struct writer_job job;
    struct sweep sweep;
    struct nodes_wait wait;
    struct exchange *exchange;
    uint64_t now_ms;
    uint64_t forget_ms;
    uint64_t expires_at_ms;
    enum status status;
    /* Before anything is revoked; may add to the request. NULL: nothing comes first, and the work
     * needs no writer role. */
    enum status (*first)(struct revoke_work *work, struct store_session *session);
    void (*answer)(struct revoke_work *work);
    struct revoke_request request;
};

/* False: the server is still starting, and the exchange was answered. */
MUST_CHECK bool revoke_is_possible(struct exchange *exchange);
/* The request, first and answer are set. */
void revoke_begin(struct revoke_work *work, struct exchange *exchange);
/* The work of the exchange began: does it, then answers. */
void revoke_post(struct exchange *exchange);
/* Adds an id that lives as long as the work. */
void revoke_add(struct revoke_work *work, enum revocation_kind kind, struct slice id);

#endif
