/* The publish rates of topics that several principals publish to: one bucket for each topic and
 * producing principal, so that no producer uses up another's rate.
 * Owned by the writer's thread; time is an argument.
 * Memory: at most count_max buckets. A bucket that is full again says nothing, so idle ones leave
 * when others come. If more principals than count_max publish within a second, the bucket used
 * longest ago leaves before it is full: its principal may then publish one more burst of a second.
 * Cannot fail: without memory a token is not counted.
 * A key holds a hash of the principal with a secret of the process. Two principals with one hash
 * would share a bucket, and lose nothing else. */
#ifndef AUTHORITY_PUBLISH_BUCKETS_H
#define AUTHORITY_PUBLISH_BUCKETS_H

#include "authority/publish_limit.h"
#include "base/list.h"
#include "base/map.h"

struct publish_key {
    uint64_t entity_ref; /* of the topic */
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

/* The principal that produces the request: by the operator key the owner that the event names. */
uint64_t publish_principal(const struct append_request *request);
/* A full one where none was used lately. */
struct publish_bucket publish_buckets_get(const struct publish_buckets *buckets,
                                          const struct publish_key *key);
/* A token must be there. */
void publish_buckets_take(struct publish_buckets *buckets, const struct publish_key *key,
                          uint64_t rate_per_second, uint64_t now_ns);

#endif
