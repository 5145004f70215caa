#include "server/nonces.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"

struct nonce {
    struct nonce *next;       /* used after it */
    uint64_t refused_from_ms; /* by its time, used or not */
    size_t size;
    char text[];
};

/* Uses come in order of the server's clock, their times only nearly so: the oldest use is looked at
 * first, and keeps those behind it at most twice the skew too long. */
struct nonces {
    pthread_mutex_t lock;
    struct map by_text;
    struct nonce *oldest;
    struct nonce *newest;
};

enum status nonces_open(struct nonces **nonces) {
    struct nonces *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    pthread_mutex_init(&made->lock, NULL);
    map_init(&made->by_text, NONCES_MAX);
    *nonces = made;
    return STATUS_OK;
}

static void forget_oldest(struct nonces *nonces) {
    struct nonce *nonce = nonces->oldest;
    nonces->oldest = nonce->next;
    if (!nonces->oldest)
        nonces->newest = NULL;
    (void)map_remove(&nonces->by_text, (struct slice){nonce->text, nonce->size});
    free(nonce);
}

void nonces_close(struct nonces *nonces) {
    while (nonces->oldest)
        forget_oldest(nonces);
    map_release(&nonces->by_text);
    pthread_mutex_destroy(&nonces->lock);
    free(nonces);
}

static enum status take(struct nonces *nonces, struct slice text, uint64_t at_ms) {
    struct nonce *nonce = malloc(sizeof(*nonce) + text.size);
    if (!nonce)
        return STATUS_OUT_OF_MEMORY;
    *nonce = (struct nonce){.refused_from_ms = at_ms + NONCE_SKEW_MS_MAX + 1, .size = text.size};
    memcpy(nonce->text, text.data, text.size);
    enum status status =
        map_insert(&nonces->by_text, (struct slice){nonce->text, nonce->size}, nonce);
    if (status != STATUS_OK) {
        free(nonce);
        if (status == STATUS_ALREADY_EXISTS)
            return STATUS_TOKEN_REPLAYED;
        return status == STATUS_LIMIT_REACHED ? STATUS_RATE_LIMITED : status;
    }
    *(nonces->newest ? &nonces->newest->next : &nonces->oldest) = nonce;
    nonces->newest = nonce;
    return STATUS_OK;
}

enum status nonces_use(struct nonces *nonces, struct slice nonce, uint64_t at_ms, uint64_t now_ms) {
    if (at_ms > now_ms + NONCE_SKEW_MS_MAX)
        return STATUS_TOKEN_NOT_YET_VALID;
    if (now_ms > at_ms + NONCE_SKEW_MS_MAX)
        return STATUS_TOKEN_EXPIRED;
    pthread_mutex_lock(&nonces->lock);
    while (nonces->oldest && now_ms >= nonces->oldest->refused_from_ms)
        forget_oldest(nonces);
    enum status status = take(nonces, nonce, at_ms);
    pthread_mutex_unlock(&nonces->lock);
    return status;
}
