/* The request of a revocation: ids of sessions, devices and tokens, with a reason.
 * Any thread.
 * Memory: one buffer holds the decoded texts; revoke_request_release frees it.
 * Errors: STATUS_INVALID_REQUEST with a static message, or the status of the JSON parser.
 * A request with an unknown member is refused, because that member might matter. */
#ifndef API_REVOKE_REQUEST_H
#define API_REVOKE_REQUEST_H

#include "base/buffer.h"
#include "base/limits.h"
#include "store/store.h"

struct revoke_request {
    size_t count;
    size_t counts[REVOCATION_KIND_COUNT]; /* by kind */
    struct slice reason;                  /* absent: data NULL */
    struct buffer texts;
    struct store_revocation revocations[REVOKE_IDS_MAX]; /* kind, id and reason are set */
};

MUST_CHECK enum status revoke_request_read(struct slice text, struct revoke_request *request,
                                           const char **message);
void revoke_request_release(struct revoke_request *request);

#endif
