/* Unread answers: how many bytes of large answers the server holds for each principal, because the
 * clients have not read them.
 * Thread: any: a lock protects the counts. init and release belong to the main thread.
 * Memory: a count for each principal that has such answers.
 * Errors: STATUS_RATE_LIMITED for an answer that the principal has no room for,
 * STATUS_OUT_OF_MEMORY.
 * Invariant: a principal without held answers may hold one of any size.
 *
 * The rule for clients that read slowly. In each request timeout (KHALA_REQUEST_TIMEOUT_MS) the
 * client of an answer, or of a batch, must make progress: it reads at least
 * UNREAD_PROGRESS_BYTES_MIN, which any phone does. While memory is short, an answer must also lose
 * one part in UNREAD_PROGRESS_PART of the bytes that the server holds for it. Otherwise the answer
 * ends as unread: the connection is reset, and the memory is free. Memory is short for all answers
 * while all principals together hold more than UNREAD_SHORT_PRINCIPALS of them may. For batches
 * api/batch_shares.h says when it is short; bytes of the body are progress of a batch too. */
#ifndef HTTP_UNREAD_ANSWERS_H
#define HTTP_UNREAD_ANSWERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/map.h"

struct unread_answers {
    pthread_mutex_t lock;
    struct map principals; /* the key is principal_key */
    uint64_t bytes_max;    /* the most for one principal */
    atomic_size_t bytes;   /* held for all principals */
};

void unread_answers_init(struct unread_answers *answers, uint64_t bytes_max);
/* Zeroed memory without init is fine: a server that cannot start has it. */
void unread_answers_release(struct unread_answers *answers);

/* is_bounded: false for an answer that must not be refused: of an append, or one that has started.
 */
MUST_CHECK enum status unread_answers_hold(struct unread_answers *answers, struct slice key,
                                           uint64_t bytes, bool is_bounded);
/* The bytes were held before. */
void unread_answers_drop(struct unread_answers *answers, struct slice key, uint64_t bytes);
/* Whether the principal holds as much as it may. */
bool unread_answers_is_full(struct unread_answers *answers, struct slice key);
/* Whether memory is short for all answers. */
bool unread_answers_is_short(const struct unread_answers *answers);
/* The progress that an answer must make in a request timeout if the server holds so many bytes for
 * it. */
uint64_t unread_progress_min(uint64_t held_bytes, bool is_short);

#endif
