#include "http/admit/single_use.h"

#include <assert.h>
#include <string.h>

#include "auth/token.h"
#include "base/limits.h"
#include "base/metrics.h"

#define MS_PER_S 1000

static void take_waiting(struct writer_job *job, struct store_session *store);

void single_uses_init(struct single_uses *uses, struct writer *writer) {
    static const struct rate_options options = {MS_PER_S / SINGLE_USES_PER_SECOND,
                                                SINGLE_USES_BURST, RATE_PRINCIPALS_MAX};
    *uses = (struct single_uses){.writer = writer, .job = {.any_node = true, .run = take_waiting}};
    pthread_mutex_init(&uses->lock, NULL);
    for (size_t i = 0; i < sizeof(uses->rates) / sizeof(uses->rates[0]); i++)
        rate_table_init(&uses->rates[i], &options);
}

void single_uses_release(struct single_uses *uses) {
    if (!uses->writer)
        return;
    assert(!uses->first);
    for (size_t i = 0; i < sizeof(uses->rates) / sizeof(uses->rates[0]); i++)
        rate_table_release(&uses->rates[i]);
    pthread_mutex_destroy(&uses->lock);
}

enum status single_use_init(struct single_use *use, enum single_use_kind kind, struct slice id) {
    if (id.size == 0 || id.size > sizeof(use->id))
        return STATUS_INVALID_TOKEN;
    use->kind = kind;
    memcpy(use->id, id.data, id.size);
    use->id_size = id.size;
    return STATUS_OK;
}

static void answer(struct single_use *use, enum status status) {
    use->call->status = status;
    call_return_post(use->call);
}

/* Has the writer take what waits, after the batches that it has now. */
static void post_job(struct single_uses *uses) {
    enum status status = writer_post_job(uses->writer, &uses->job);
    if (status == STATUS_OK)
        return;
    pthread_mutex_lock(&uses->lock);
    struct single_use *use = uses->first;
    uses->first = uses->last = NULL;
    uses->is_posted = false;
    pthread_mutex_unlock(&uses->lock);
    for (struct single_use *next; use; use = next) {
        next = use->next;
        answer(use, status);
    }
}

/* On the writer's thread. */
static void take_waiting(struct writer_job *job, struct store_session *store) {
    struct single_uses *uses = container_of(job, struct single_uses, job);
    struct single_use *taken[STORE_SINGLE_USES_MAX];
    struct store_single_use rows[STORE_SINGLE_USES_MAX];
    uint64_t forget_ms = UINT64_MAX;
    size_t count = 0;
    pthread_mutex_lock(&uses->lock);
    for (; uses->first && count < STORE_SINGLE_USES_MAX; uses->first = uses->first->next)
        taken[count++] = uses->first;
    pthread_mutex_unlock(&uses->lock);
    for (size_t i = 0; i < count; i++) {
        rows[i] = (struct store_single_use){
            taken[i]->kind, {taken[i]->id, taken[i]->id_size}, taken[i]->expires_at_ms, false};
        forget_ms = taken[i]->forget_ms < forget_ms ? taken[i]->forget_ms : forget_ms;
    }
    enum status status = store_use_once(store, rows, count, forget_ms);
    metrics_add(METRIC_SINGLE_USE_COMMITS, METRIC_PLAIN, 1);
    /* The caller may free a use once it is answered. */
    for (size_t i = 0; i < count; i++)
        answer(taken[i], status == STATUS_OK && rows[i].was_used ? STATUS_TOKEN_REPLAYED : status);
    pthread_mutex_lock(&uses->lock);
    bool has_more = uses->is_posted = uses->first;
    pthread_mutex_unlock(&uses->lock);
    if (has_more)
        post_job(uses);
}

void single_use_post(struct single_uses *uses, struct single_use *use, struct call *call,
                     const struct principal *principal) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    use->call = call;
    use->next = NULL;
    uint64_t wait_ms = rate_table_take(&uses->rates[use->kind], principal_key(principal, key),
                                       clock_mono_ms(&call->loop->clock));
    if (wait_ms > 0) {
        metrics_add(METRIC_SINGLE_USES_REFUSED, METRIC_LABELS(use->kind), 1);
        answer(use, STATUS_RATE_LIMITED);
        return;
    }
    pthread_mutex_lock(&uses->lock);
    if (uses->first)
        uses->last->next = use;
    else
        uses->first = use;
    uses->last = use;
    bool is_first = !uses->is_posted;
    uses->is_posted = true;
    pthread_mutex_unlock(&uses->lock);
    if (is_first)
        post_job(uses);
}

uint64_t single_use_token_until_ms(const struct principal *principal) {
    return principal->expires_at_ms + UINT64_C(2000) * TOKEN_SKEW_S;
}
