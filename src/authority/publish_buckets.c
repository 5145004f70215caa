#include "authority/publish_buckets.h"

#include <assert.h>
#include <stdlib.h>

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

/* Two at most for each new one: the table shrinks to the principals of the last second, and no
 * take is slow. */
static void make_room(struct publish_buckets *buckets, uint64_t now_ns) {
    for (int i = 0; i < 2; i++) {
        struct shared_bucket *bucket = oldest(buckets);
        bool is_idle = bucket && bucket->bucket.full_at_ns <= now_ns;
        if (is_idle || buckets->by_key.count == buckets->count_max)
            evict(buckets, bucket);
    }
}

void publish_buckets_take(struct publish_buckets *buckets, const struct publish_key *key,
                          uint64_t rate_per_second, uint64_t now_ns) {
    struct shared_bucket *found = map_find(&buckets->by_key, key_text(key));
    if (found) {
        list_remove(&found->by_use);
    } else {
        make_room(buckets, now_ns);
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
