#include "http/unread_answers.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"

struct holder {
    uint64_t bytes;
    struct slice key;
    char text[];
};

void unread_answers_init(struct unread_answers *answers, uint64_t bytes_max) {
    pthread_mutex_init(&answers->lock, NULL);
    map_init(&answers->principals, MAP_COUNT_MAX);
    answers->bytes_max = bytes_max;
}

void unread_answers_release(struct unread_answers *answers) {
    if (answers->bytes_max == 0)
        return;
    assert(answers->principals.count == 0);
    map_release(&answers->principals);
    pthread_mutex_destroy(&answers->lock);
}

enum status unread_answers_hold(struct unread_answers *answers, struct slice key, uint64_t bytes,
                                bool is_bounded) {
    struct holder *made = NULL;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&answers->lock);
    struct holder *holder = map_find(&answers->principals, key);
    if (holder && is_bounded && holder->bytes + bytes > answers->bytes_max) {
        status = STATUS_RATE_LIMITED;
        goto out;
    }
    if (!holder) {
        status = STATUS_OUT_OF_MEMORY;
        made = calloc(1, sizeof(*made) + key.size);
        if (!made)
            goto out;
        memcpy(made->text, key.data, key.size);
        made->key = (struct slice){made->text, key.size};
        if (map_insert(&answers->principals, made->key, made) != STATUS_OK)
            goto out;
        holder = made;
        made = NULL;
        status = STATUS_OK;
    }
    holder->bytes += bytes;
    atomic_fetch_add_explicit(&answers->bytes, bytes, memory_order_relaxed);
out:
    pthread_mutex_unlock(&answers->lock);
    free(made);
    return status;
}

void unread_answers_drop(struct unread_answers *answers, struct slice key, uint64_t bytes) {
    pthread_mutex_lock(&answers->lock);
    struct holder *holder = map_find(&answers->principals, key);
    assert(holder && holder->bytes >= bytes);
    holder->bytes -= bytes;
    atomic_fetch_sub_explicit(&answers->bytes, bytes, memory_order_relaxed);
    if (holder->bytes == 0) {
        (void)map_remove(&answers->principals, key);
        free(holder);
    }
    pthread_mutex_unlock(&answers->lock);
}

bool unread_answers_is_full(struct unread_answers *answers, struct slice key) {
    pthread_mutex_lock(&answers->lock);
    const struct holder *holder = map_find(&answers->principals, key);
    bool is_full = holder && holder->bytes >= answers->bytes_max;
    pthread_mutex_unlock(&answers->lock);
    return is_full;
}

bool unread_answers_is_short(const struct unread_answers *answers) {
    return atomic_load_explicit(&answers->bytes, memory_order_relaxed) / UNREAD_SHORT_PRINCIPALS >
           answers->bytes_max;
}

uint64_t unread_progress_min(uint64_t held_bytes, bool is_short) {
    uint64_t part = is_short ? held_bytes / UNREAD_PROGRESS_PART : 0;
    return part > UNREAD_PROGRESS_BYTES_MIN ? part : UNREAD_PROGRESS_BYTES_MIN;
}
