/* How many subscriptions each principal has on this node, over all its connections. The most that
 * it may have is a quota of its owner. A name that waits for its topic counts like any other.
 * Thread: any; a lock guards the table. A session's count belongs to its loop.
 * Memory: an entry for each principal with a subscription; it goes with the last one.
 * Errors: STATUS_QUOTA_EXCEEDED, with the numbers, for a count beyond the limit;
 * STATUS_OUT_OF_MEMORY.
 * Invariant: the sum of the counts of a principal's sessions is its use, and a refusal changes
 * nothing. */
#ifndef DELIVERY_SUBSCRIPTION_QUOTA_H
#define DELIVERY_SUBSCRIPTION_QUOTA_H

#include "auth/principal.h"
#include "authority/quota.h"
#include "base/buffer.h"

struct subscription_quota;
struct subscription_user;

#define QUOTA_REFUSAL_BYTES_MAX 96

/* What a refusal names. */
struct quota_refusal {
    uint64_t used; /* by the principal, before the request */
    uint64_t limit;
};

/* The count of one session; zeroes: it has none. */
struct subscription_count {
    struct subscription_user *user;
    size_t count;
};

/* The limits must outlive it. */
MUST_CHECK enum status subscription_quota_open(struct subscription_quota **quota,
                                               struct quota_table *limits);
/* After the last count was given back. NULL is fine. */
void subscription_quota_close(struct subscription_quota *quota);

/* The session has that many subscriptions from now on, of that principal. Fewer than before always
 * succeeds, if the principal is the same. The operator key has no limit and is not counted. refusal
 * may be NULL. */
MUST_CHECK enum status subscription_quota_set(struct subscription_quota *quota,
                                              struct subscription_count *count,
                                              const struct principal *principal, size_t wanted,
                                              struct quota_refusal *refusal);
/* The session has at most that many. Cannot fail. */
void subscription_quota_lower(struct subscription_quota *quota, struct subscription_count *count,
                              size_t count_max);
/* Appends at most QUOTA_REFUSAL_BYTES_MAX: {"quota":"subscriptions","used":…,"limit":…}. */
MUST_CHECK enum status quota_refusal_write(const struct quota_refusal *refusal, struct buffer *out);

#endif
