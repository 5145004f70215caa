/* A revocation under way: rows first, then memory, then every loop, then the other nodes. The
 * request names ids of sessions, devices and tokens, with a reason.
 * Thread: first belongs to the writer's; everything else to the exchange's loop. Any thread may
 * read a request.
 * Memory: the work is the exchange's, alone or at the beginning of a larger struct. One buffer
 * holds the decoded texts of a request; revoke_request_release frees it.
 * Errors: the status of the answer. revoke_request_read: STATUS_INVALID_REQUEST with a static
 * message, or the status of the JSON parser.
 * Invariant: a revocation that was stored is never taken back, and the answer survives a crash. No
 * revoked token is admitted after the sweep, and nothing is delivered to a revoked principal after
 * the answer. A request with an unknown member is refused, because that member might matter. */
#ifndef API_REVOKE_H
#define API_REVOKE_H

#include "authority/call.h"
#include "base/limits.h"
#include "cluster/nodes.h"
#include "http/conn_walk.h"
#include "http/exchange.h"
#include "store/store.h"

struct revoke_request {
    size_t count;
    size_t counts[REVOCATION_KIND_COUNT]; /* indexed by kind */
    struct slice reason;                  /* absent: data NULL */
    struct buffer texts;
    struct store_revocation revocations[REVOKE_IDS_MAX]; /* kind, id and reason are set */
};

MUST_CHECK enum status revoke_request_read(struct slice text, struct revoke_request *request,
                                           const char **message);
void revoke_request_release(struct revoke_request *request);

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
    enum status (*first)(struct revoke_work *work, struct store_session *store);
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
