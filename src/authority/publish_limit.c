/* A bucket is one number: the moment it will be full again. Each token taken moves that moment on
 * by the time a token needs to come back; a token is there as long as the moment lies no further
 * away than the whole bucket needs to fill. */
#include "authority/publish_limit.h"

#include <assert.h>

#include "base/clock.h"

#define NS_PER_SECOND UINT64_C(1000000000)

static uint64_t token_ns(uint64_t rate_per_second) {
    assert(rate_per_second > 0 && rate_per_second <= NS_PER_SECOND);
    return NS_PER_SECOND / rate_per_second;
}

static uint64_t full_at_after_take(const struct publish_bucket *bucket, uint64_t rate_per_second,
                                   uint64_t now_ns) {
    uint64_t from = bucket->full_at_ns > now_ns ? bucket->full_at_ns : now_ns;
    return from + token_ns(rate_per_second);
}

uint64_t publish_bucket_wait_ns(const struct publish_bucket *bucket, uint64_t rate_per_second,
                                uint64_t now_ns) {
    uint64_t empty_ns = token_ns(rate_per_second) * rate_per_second;
    uint64_t missing_ns = full_at_after_take(bucket, rate_per_second, now_ns) - now_ns;
    return missing_ns > empty_ns ? missing_ns - empty_ns : 0;
}

void publish_bucket_take(struct publish_bucket *bucket, uint64_t rate_per_second, uint64_t now_ns) {
    assert(publish_bucket_wait_ns(bucket, rate_per_second, now_ns) == 0);
    bucket->full_at_ns = full_at_after_take(bucket, rate_per_second, now_ns);
}

enum status publish_limit_check(const struct policy *policy, const struct publish_bucket *bucket,
                                size_t payload_bytes, uint64_t now_ns,
                                struct append_refusal *refusal) {
    refusal->policy = policy;
    if (payload_bytes > policy->max_payload_bytes) {
        refusal->payload_bytes = payload_bytes;
        refusal->max_payload_bytes = policy->max_payload_bytes;
        return STATUS_KHALA_FRAME_PAYLOAD_TOO_LARGE;
    }
    uint64_t wait_ns = publish_bucket_wait_ns(bucket, policy->publish_rate_per_second, now_ns);
    if (wait_ns == 0)
        return STATUS_OK;
    refusal->retry_after_ms = (wait_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
    refusal->limit = policy->publish_rate_per_second;
    return STATUS_KHALA_PUBLISH_RATE_LIMITED;
}
