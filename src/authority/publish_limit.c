/* A bucket is one number: the moment it will be full again. Each token taken moves that moment on
 * by the time a token needs to come back. A token is there as long as the moment lies no further
 * away than the whole bucket needs to fill. */
#include "authority/publish_limit.h"

#include <assert.h>
#include <stdlib.h>

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

/* ---- buckets by topic and principal ---- */

struct shared_bucket {
    struct list_node by_use;
    struct publish_key key;
    struct publish_bucket bucket;
};

static struct slice key_text(const struct publish_key *key) {
    return (struct slice){(const char *)key, sizeof(*key)};
}

void publish_buckets_init(struct publish_buckets *buckets, size_t count_max) {
    assert(count_max > 0);
    *buckets = (struct publish_buckets){.count_max = count_max};
    map_init(&buckets->by_key, count_max);
    list_init(&buckets->by_use);
}

static struct shared_bucket *oldest(const struct publish_buckets *buckets) {
    struct list_node *node = list_last(&buckets->by_use);
    return node ? container_of(node, struct shared_bucket, by_use) : NULL;
}

static void evict(struct publish_buckets *buckets, struct shared_bucket *bucket) {
    void *removed = map_remove(&buckets->by_key, key_text(&bucket->key));
    assert(removed == bucket);
    (void)removed;
    list_remove(&bucket->by_use);
    free(bucket);
}

void publish_buckets_clear(struct publish_buckets *buckets) {
    for (struct shared_bucket *bucket; (bucket = oldest(buckets));)
        evict(buckets, bucket);
    map_release(&buckets->by_key);
}

uint64_t publish_principal(const struct append_request *request) {
    char text[PRINCIPAL_KEY_BYTES_MAX];
    const struct principal named = {.identity = request->owner};
    const struct principal *principal = request->producer ? request->producer : &named;
    return siphash(siphash_process_key(), principal_key(principal, text));
}

struct publish_bucket publish_buckets_get(const struct publish_buckets *buckets,
                                          const struct publish_key *key) {
    const struct shared_bucket *found = map_find(&buckets->by_key, key_text(key));
    return found ? found->bucket : (struct publish_bucket){0};
}

void publish_buckets_take(struct publish_buckets *buckets, const struct publish_key *key,
                          uint64_t rate_per_second, uint64_t now_ns) {
    struct shared_bucket *found = map_find(&buckets->by_key, key_text(key));
    if (found) {
        list_remove(&found->by_use);
    } else {
        /* At most two leave for each new one: the table shrinks to the principals of the last
         * second, and no take is slow. */
        for (int i = 0; i < 2; i++) {
            struct shared_bucket *last = oldest(buckets);
            bool is_idle = last && last->bucket.full_at_ns <= now_ns;
            if (is_idle || buckets->by_key.count == buckets->count_max)
                evict(buckets, last);
        }
        found = malloc(sizeof(*found));
        if (!found)
            return;
        *found = (struct shared_bucket){.key = *key};
        if (map_insert(&buckets->by_key, key_text(&found->key), found) != STATUS_OK) {
            free(found);
            return;
        }
    }
    list_push_front(&buckets->by_use, &found->by_use);
    publish_bucket_take(&found->bucket, rate_per_second, now_ns);
}
