/* Requests that add or rotate an operator key.
 * Any thread; pure.
 * Memory: the caller's; a name is copied.
 * Errors: the fault, a static sentence for people.
 * A request with an unknown member is refused, because that member might matter. */
#ifndef API_KEY_REQUEST_H
#define API_KEY_REQUEST_H

#include "http/admit/operator_keys.h"

#define OPERATOR_KEY_BODY_BYTES_MAX 1024
/* How long the old key stays valid after a rotation. */
#define KEY_OVERLAP_S     86400
#define KEY_OVERLAP_S_MAX (30 * 86400)

struct key_request {
    char name[OPERATOR_KEY_NAME_BYTES_MAX];
    size_t name_size;
    enum key_role role;
    uint64_t overlap_s; /* of a rotation */
};

/* {"name":…,"role":…}. NULL: it was read. */
const char *key_request_read_new(struct slice body, struct key_request *request);
/* {"overlap_seconds"?:…}, or nothing. NULL: it was read. */
const char *key_request_read_rotation(struct slice body, struct key_request *request);

#endif
