/* The publish limits of a topic: a token bucket of one second's rate, refilled continuously, and a
 * largest payload.
 * The owner of the bucket calls; time is an argument. Allocates nothing.
 * STATUS_KHALA_PUBLISH_RATE_LIMITED and STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE, with the details of
 * the refusal. Checking takes nothing: only publish_bucket_take does, once the append is certain.
 */
#ifndef AUTHORITY_PUBLISH_LIMIT_H
#define AUTHORITY_PUBLISH_LIMIT_H

#include "authority/append.h"
#include "topic/policy.h"

/* Zero is a full bucket. */
struct publish_bucket {
    uint64_t full_at_ns; /* when it will be full again if nothing more is taken */
};

/* 0 when a token is there, otherwise how long until one is. */
uint64_t publish_bucket_wait_ns(const struct publish_bucket *bucket, uint64_t rate_per_second,
                                uint64_t now_ns);
/* A token must be there. */
void publish_bucket_take(struct publish_bucket *bucket, uint64_t rate_per_second, uint64_t now_ns);

/* The limits of one policy row for one payload. refusal's topic is the caller's to set. */
MUST_CHECK enum status publish_limit_check(const struct policy *policy,
                                           const struct publish_bucket *bucket,
                                           size_t payload_bytes, uint64_t now_ns,
                                           struct append_refusal *refusal);

#endif
