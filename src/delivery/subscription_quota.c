#include "delivery/subscription_quota.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/metrics.h"

struct subscription_user {
    size_t used;
    size_t key_size;
    char key[];
};

struct subscription_quota {
    pthread_mutex_t lock;
    struct map users;
    struct quota_table *limits;
};

enum status subscription_quota_open(struct subscription_quota **quota, struct quota_table *limits) {
    struct subscription_quota *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return STATUS_OUT_OF_MEMORY;
    pthread_mutex_init(&opened->lock, NULL);
    map_init(&opened->users, MAP_COUNT_MAX);
    opened->limits = limits;
    *quota = opened;
    return STATUS_OK;
}

void subscription_quota_close(struct subscription_quota *quota) {
    if (!quota)
        return;
    assert(quota->users.count == 0);
    map_release(&quota->users);
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

static struct slice key_of(const struct subscription_user *user) {
    return (struct slice){user->key, user->key_size};
}

/* Under the lock, here and below. */
static void give(struct subscription_quota *quota, struct subscription_count *count, size_t fewer) {
    struct subscription_user *user = count->user;
    assert(user && fewer <= count->count && count->count <= user->used);
    user->used -= fewer;
    count->count -= fewer;
    if (count->count == 0)
        count->user = NULL;
    if (user->used > 0)
        return;
    (void)map_remove(&quota->users, key_of(user));
    free(user);
}

static struct subscription_user *user_make(struct subscription_quota *quota, struct slice key) {
    struct subscription_user *user = malloc(sizeof(*user) + key.size);
    if (!user)
        return NULL;
    user->used = 0;
    user->key_size = key.size;
    memcpy(user->key, key.data, key.size);
    if (map_insert(&quota->users, key_of(user), user) == STATUS_OK)
        return user;
    free(user);
    return NULL;
}

/* The refusal has the limit already. */
static enum status set(struct subscription_quota *quota, struct subscription_count *count,
                       struct slice key, size_t wanted, struct quota_refusal *refusal) {
    struct subscription_user *user = map_find(&quota->users, key);
    size_t before = count->user == user ? count->count : 0;
    refusal->used = user ? user->used : 0;
    if (wanted > before && refusal->used - before + wanted > refusal->limit)
        return STATUS_QUOTA_EXCEEDED;
    if (!user && wanted > 0)
        user = user_make(quota, key);
    if (!user && wanted > 0)
        return STATUS_OUT_OF_MEMORY;
    if (user)
        user->used += wanted;
    if (count->user)
        give(quota, count, count->count);
    *count = (struct subscription_count){wanted > 0 ? user : NULL, wanted};
    return STATUS_OK;
}

enum status subscription_quota_set(struct subscription_quota *quota,
                                   struct subscription_count *count,
                                   const struct principal *principal, size_t wanted,
                                   struct quota_refusal *refusal) {
    char text[PRINCIPAL_KEY_BYTES_MAX];
    char owner[QUOTA_OWNER_BYTES_MAX];
    struct quota_refusal unused;
    if (!quota || principal_is_operator(principal))
        return STATUS_OK;
    if (!refusal)
        refusal = &unused;
    struct slice key = principal_key(principal, text);
    refusal->limit =
        quota_limit(quota->limits, quota_owner(&principal->identity, owner), QUOTA_SUBSCRIPTIONS);
    pthread_mutex_lock(&quota->lock);
    enum status status = set(quota, count, key, wanted, refusal);
    pthread_mutex_unlock(&quota->lock);
    if (status == STATUS_QUOTA_EXCEEDED)
        metrics_add(METRIC_SUBSCRIPTIONS_REFUSED, METRIC_PLAIN, 1);
    return status;
}

void subscription_quota_lower(struct subscription_quota *quota, struct subscription_count *count,
                              size_t count_max) {
    if (count->count <= count_max)
        return;
    pthread_mutex_lock(&quota->lock);
    give(quota, count, count->count - count_max);
    pthread_mutex_unlock(&quota->lock);
}

enum status quota_refusal_write(const struct quota_refusal *refusal, struct buffer *out) {
    return buffer_printf(out,
                         "{\"quota\":\"subscriptions\",\"used\":%" PRIu64 ",\"limit\":%" PRIu64 "}",
                         refusal->used, refusal->limit);
}
