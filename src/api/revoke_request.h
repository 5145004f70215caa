/* What is asked to be revoked: sessions, devices and single tokens, with the reason.
 * Any thread; a pure reader. One block holds the decoded texts; revoke_request_release returns it.
 * STATUS_INVALID_REQUEST with why in a static sentence, or what the JSON reader answers.
 * All of it is understood or none: a member it does not know may be one that matters. */
#ifndef API_REVOKE_REQUEST_H
#define API_REVOKE_REQUEST_H

#include "base/buffer.h"
#include "store/store.h"

#define REVOKE_BYTES_MAX        (1u << 20)
#define REVOKE_IDS_MAX          1000
#define REVOKE_REASON_BYTES_MAX 512

struct revoke_request {
    size_t count;
    size_t counts[REVOCATION_KIND_COUNT]; /* by kind */
    struct slice reason;                  /* absent: data NULL */
    struct buffer texts;
    struct store_revocation revocations[REVOKE_IDS_MAX]; /* kind, id and reason are set */
};

MUST_CHECK enum status revoke_request_read(struct slice text, struct revoke_request *request,
                                           const char **why);
void revoke_request_release(struct revoke_request *request);

#endif
