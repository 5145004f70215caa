/* The claims of a sync token: the members of its payload, checked for shape and bounds only.
 * Thread: any; reads no clock and no keys.
 * Memory: texts point into the payload, or into the caller's buffer if the payload escapes them.
 * Errors: every fault is STATUS_INVALID_TOKEN, so that a forger learns nothing about the fault.
 * Invariant: lists and texts are within their maximum. A claim that is given twice is refused. */
#ifndef AUTH_CLAIMS_H
#define AUTH_CLAIMS_H

#include "base/buffer.h"
#include "topic/owner.h"
#include "wire/json.h"

#define CLAIMS_VERSION        "oa_sync_claims_v1"
#define CLAIMS_BYTES_MAX      8192
#define CLAIMS_TEXT_BYTES_MAX 640
#define CLAIMS_LIST_MAX       256

struct claims_list {
    struct slice names[CLAIMS_LIST_MAX];
    size_t count;
};

/* Absent texts have data NULL; null is absent. Times are seconds since 1970. */
struct claims {
    struct slice issuer;
    struct slice subject;
    struct slice token_id;
    struct slice version;
    struct owner identity;
    struct slice session_id;
    struct slice device_id;
    struct claims_list audiences;
    struct claims_list scopes;
    struct claims_list topics;
    struct claims_list streams;
    bool has_issued_at;
    bool has_expires_at;
    uint64_t issued_at_s;
    uint64_t not_before_s; /* 0: from the start */
    uint64_t expires_at_s;
};

/* memory is empty, has room for CLAIMS_BYTES_MAX and outlives the claims. STATUS_INVALID_TOKEN with
 * the rule that failed, a static text. */
MUST_CHECK enum status claims_read(struct slice json, struct claims *claims, struct buffer *memory,
                                   const char **rule);

/* For requests that ask for claims: reads one member. False for a wrong member. An absent member
 * leaves the output unchanged. */
bool claims_given(const struct json_field *field);
bool claims_text(const struct json_field *field, struct buffer *memory, struct slice *text);
/* Text, or the digits of a whole number. */
bool claims_id(const struct json_field *field, struct buffer *memory, struct slice *text);
bool claims_names(const struct json_field *field, struct buffer *memory, struct claims_list *list);

#endif
