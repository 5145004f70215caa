#include "api/batch_shares.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/metrics.h"

/* One part of this many belongs to the operator alone. */
#define RESERVE_PART 8

struct batch_holder {
    atomic_size_t bytes;
    size_t batch_count; /* the lock guards it */
    bool is_operator;
    struct slice key;
    struct slice owner; /* the owner that has the quota */
    char text[];
};

void batch_shares_init(struct batch_shares *shares) {
    pthread_mutex_init(&shares->lock, NULL);
    map_init(&shares->holders, MAP_COUNT_MAX);
}

void batch_shares_release(struct batch_shares *shares) {
    if (shares->bytes_max == 0)
        return;
    assert(shares->holders.count == 0 && atomic_load(&shares->bytes) == 0);
    map_release(&shares->holders);
    pthread_mutex_destroy(&shares->lock);
}

enum status batch_shares_join(struct batch_shares *shares, const struct principal *principal,
                              struct batch_holder **found) {
    char key_text[PRINCIPAL_KEY_BYTES_MAX];
    char owner_text[QUOTA_OWNER_BYTES_MAX];
    struct slice key = principal_key(principal, key_text);
    struct slice owner = quota_owner(&principal->identity, owner_text);
    struct batch_holder *made = NULL;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&shares->lock);
    struct batch_holder *holder = map_find(&shares->holders, key);
    if (!holder) {
        made = calloc(1, sizeof(*made) + key.size + owner.size);
        if (!made) {
            status = STATUS_OUT_OF_MEMORY;
            goto out;
        }
        memcpy(made->text, key.data, key.size);
        memcpy(made->text + key.size, owner.data, owner.size);
        made->key = (struct slice){made->text, key.size};
        made->owner = (struct slice){made->text + key.size, owner.size};
        made->is_operator = principal == &principal_operator;
        status = map_insert(&shares->holders, made->key, made);
        if (status != STATUS_OK)
            goto out;
        atomic_fetch_add_explicit(&shares->holder_count, 1, memory_order_relaxed);
        holder = made;
        made = NULL;
    }
    holder->batch_count++;
    *found = holder;
out:
    pthread_mutex_unlock(&shares->lock);
    free(made);
    return status;
}

void batch_shares_leave(struct batch_shares *shares, struct batch_holder *holder) {
    pthread_mutex_lock(&shares->lock);
    assert(holder->batch_count > 0);
    if (--holder->batch_count == 0) {
        assert(atomic_load(&holder->bytes) == 0);
        (void)map_remove(&shares->holders, holder->key);
        atomic_fetch_sub_explicit(&shares->holder_count, 1, memory_order_relaxed);
        free(holder);
    }
    pthread_mutex_unlock(&shares->lock);
}

void batch_shares_charge(struct batch_shares *shares, struct batch_holder *holder, size_t before,
                         size_t now) {
    if (before == now)
        return;
    /* A negative difference wraps around, and so do the sums. */
    size_t more = now - before;
    atomic_fetch_add_explicit(&holder->bytes, more, memory_order_relaxed);
    atomic_fetch_add_explicit(&shares->bytes, more, memory_order_relaxed);
    if (holder->is_operator)
        atomic_fetch_add_explicit(&shares->operator_bytes, more, memory_order_relaxed);
    if (now > before)
        metrics_add(METRIC_BATCHES_BYTES, METRIC_PLAIN, more);
    else
        metrics_sub(METRIC_BATCHES_BYTES, METRIC_PLAIN, before - now);
}

uint64_t batch_holder_bytes(const struct batch_holder *holder) {
    return atomic_load_explicit(&holder->bytes, memory_order_relaxed);
}

uint64_t batch_shares_quota(const struct batch_shares *shares, const struct batch_holder *holder) {
    return holder->is_operator ? UINT64_MAX
                               : quota_limit(shares->quotas, holder->owner, QUOTA_BATCH_BYTES);
}

/* What is divided, and how much of it is used and by whom. The loops change the counts meanwhile,
 * so the numbers are of about the same time. */
struct division {
    uint64_t divided;
    uint64_t used;
    uint64_t share; /* the share of each principal */
    uint64_t held;  /* divided bytes that this principal holds */
    bool has_reserve_left;
};

static uint64_t less(uint64_t from, uint64_t bytes) {
    return from > bytes ? from - bytes : 0;
}

static struct division divide(const struct batch_shares *shares, const struct batch_holder *holder,
                              size_t except) {
    uint64_t reserve = shares->bytes_max / RESERVE_PART;
    uint64_t all = atomic_load_explicit(&shares->bytes, memory_order_relaxed);
    uint64_t of_operator = atomic_load_explicit(&shares->operator_bytes, memory_order_relaxed);
    uint64_t count = atomic_load_explicit(&shares->holder_count, memory_order_relaxed);
    uint64_t held = less(batch_holder_bytes(holder), except);
    struct division division = {
        .divided = shares->bytes_max - reserve,
        .used = less(all, of_operator < reserve ? of_operator : reserve),
        .held = holder->is_operator ? less(held, reserve) : held,
        .has_reserve_left = holder->is_operator && held < reserve,
    };
    division.share = division.divided / (count + 1);
    return division;
}

static bool is_nearly_all(uint64_t used, uint64_t bytes) {
    return used >= bytes / 4 * 3;
}

enum status batch_shares_check(const struct batch_shares *shares, const struct batch_holder *holder,
                               size_t except) {
    if (less(batch_holder_bytes(holder), except) >= batch_shares_quota(shares, holder))
        return STATUS_QUOTA_EXCEEDED;
    struct division division = divide(shares, holder, except);
    bool is_within =
        division.held < division.share &&
        (!is_nearly_all(division.used, division.divided) ||
         (division.held < BATCH_SHARE_BYTES_MIN && division.used / 2 < division.divided));
    return is_within || division.has_reserve_left ? STATUS_OK : STATUS_LIMIT_REACHED;
}

bool batch_shares_is_short(const struct batch_shares *shares, const struct batch_holder *holder) {
    struct division division = divide(shares, holder, 0);
    return is_nearly_all(division.held, division.share) ||
           is_nearly_all(division.used, division.divided);
}
