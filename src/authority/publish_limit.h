/* The publish limits of a topic: a token bucket of one second's rate, refilled continuously, and a
 * largest payload. A topic that several principals publish to has one bucket for each of them, so
 * that no producer uses up another's rate.
 * Thread: the bucket's owner's; time is an argument.
 * Memory: at most count_max shared buckets. A bucket that is full again says nothing, so idle ones
 * leave when others come. If more principals than count_max publish within a second, the bucket
 * used longest ago leaves before it is full: its principal may then publish one more burst of a
 * second.
 * Errors: STATUS_KHALA_PUBLISH_RATE_LIMITED and STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE, with the
 * details of the refusal. Taking cannot fail: without memory a token is not counted.
 * Invariant: checking takes nothing. Only publish_bucket_take and publish_buckets_take do, once
 * the append is certain. */
#ifndef AUTHORITY_PUBLISH_LIMIT_H
#define AUTHORITY_PUBLISH_LIMIT_H

#include "authority/append.h"
#include "base/list.h"
#include "base/map.h"
#include "topic/policy.h"

/* Zero is a full bucket. */
struct publish_bucket {
    uint64_t full_at_ns; /* the time at which it is full again if unused */
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

/* ---- buckets by topic and principal ---- */

/* A key holds a hash of the principal with a secret of the process. Two principals with one hash
 * would share a bucket, and lose nothing else. */
struct publish_key {
    uint64_t entity_ref; /* the topic's */
    uint64_t principal;
};

struct publish_buckets {
    struct map by_key;
    struct list by_use; /* the newest first */
    size_t count_max;
};

void publish_buckets_init(struct publish_buckets *buckets, size_t count_max);
/* Also releases; all buckets are full again. */
void publish_buckets_clear(struct publish_buckets *buckets);

/* The principal that produces the request. For the operator key it is the owner that the event
 * names.
 */
uint64_t publish_principal(const struct append_request *request);
/* A full bucket if the principal has used none recently. */
struct publish_bucket publish_buckets_get(const struct publish_buckets *buckets,
                                          const struct publish_key *key);
/* A token must be there. */
void publish_buckets_take(struct publish_buckets *buckets, const struct publish_key *key,
                          uint64_t rate_per_second, uint64_t now_ns);

#endif
