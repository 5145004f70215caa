/* Shares of batches: how the memory of open batches is divided among the principals that have
 * some.
 * Thread: any: the counts are atomic, and a lock guards the table. init and release belong to the
 * main thread.
 * Memory: one holder for each principal with open batches, which its batches share.
 * Errors: STATUS_LIMIT_REACHED or STATUS_QUOTA_EXCEEDED for a principal that may take no more
 * memory now, STATUS_OUT_OF_MEMORY.
 *
 * The rule. An eighth of the memory is a reserve that only the operator uses. The other bytes are
 * divided by the number of principals with open batches and one more, so a newcomer finds a share.
 * A principal takes more memory only while it holds less than its share, and less than its quota.
 * While three quarters of the divided bytes are used, for example by principals that began when
 * shares were larger, only principals with less than BATCH_SHARE_BYTES_MIN take more. They may use
 * more than all divided bytes, up to twice as many, so that hundreds of greedy principals do not
 * keep a newcomer out. The operator has a share like the others, and the reserve besides.
 *
 * Memory is short for a principal that has used three quarters of its share, and for all while
 * three quarters of the divided bytes are used. A batch whose memory is short must move a part of
 * what it holds in each request timeout (unread_progress_min in http/unread_answers.h). Otherwise
 * it ends, and its memory is free. So a principal whose share has shrunk keeps what it holds for
 * as long as its clients make progress. */
#ifndef API_BATCH_SHARES_H
#define API_BATCH_SHARES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "auth/principal.h"
#include "authority/quota.h"
#include "base/map.h"

struct batch_holder;

struct batch_shares {
    uint64_t bytes_max;         /* the memory of all batches */
    struct quota_table *quotas; /* they limit the batches of one principal */
    pthread_mutex_t lock;
    struct map holders; /* the key is principal_key */
    atomic_size_t holder_count;
    atomic_size_t bytes;          /* held by all */
    atomic_size_t operator_bytes; /* the operator's part of these */
};

/* bytes_max and quotas are set. */
void batch_shares_init(struct batch_shares *shares);
/* Zeroed memory without init is fine: a server that cannot start has it. */
void batch_shares_release(struct batch_shares *shares);

/* A batch of the principal opens. */
MUST_CHECK enum status batch_shares_join(struct batch_shares *shares,
                                         const struct principal *principal,
                                         struct batch_holder **holder);
/* The batch holds nothing any more. */
void batch_shares_leave(struct batch_shares *shares, struct batch_holder *holder);

/* The batch has held before bytes, and holds now bytes. */
void batch_shares_charge(struct batch_shares *shares, struct batch_holder *holder, size_t before,
                         size_t now);
/* STATUS_OK: a batch of the principal may take more memory. except: bytes of the principal that do
 * not count, so that one item of any size fits for a batch that holds nothing else. */
MUST_CHECK enum status batch_shares_check(const struct batch_shares *shares,
                                          const struct batch_holder *holder, size_t except);
bool batch_shares_is_short(const struct batch_shares *shares, const struct batch_holder *holder);
/* For the answer to a principal beyond its quota. */
uint64_t batch_holder_bytes(const struct batch_holder *holder);
/* The quota of its owner. UINT64_MAX: the operator has none. */
uint64_t batch_shares_quota(const struct batch_shares *shares, const struct batch_holder *holder);

#endif
