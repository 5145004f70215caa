#include "authority/call.h"

#include <assert.h>
#include <pthread.h>

#include "base/list.h"

static void run_back(struct loop_task *task) {
    struct call *call = container_of(task, struct call, in.back);
    struct io_loop *loop = call->loop;
    call->pool = NULL;
    call->done(call);
    io_loop_release(loop);
}

void call_return_post(struct call *call) {
    call->in.back = (struct loop_task){.run = run_back};
    /* The loop waits for every call that began, so its mailbox is still open. */
    enum status status = io_loop_post(call->loop, &call->in.back);
    assert(status == STATUS_OK);
    (void)status;
}

static bool run_task(struct store_task *task, struct store_session *store) {
    struct call *call = container_of(task, struct call, task);
    call->has_more = false;
    call->run(call, store);
    if (call->has_more)
        return true;
    call_return_post(call);
    return false;
}

static void run_job(struct writer_job *job, struct store_session *store) {
    struct call *call = container_of(job, struct call, in.job);
    call->run(call, store);
    call_return_post(call);
}

void call_begin(struct call *call, struct io_loop *loop) {
    call->loop = loop;
    call->pool = NULL;
    call->status = STATUS_OK;
    io_loop_hold(loop);
}

void call_store(struct call *call, struct io_loop *loop, struct store_pool *pool,
                const struct store_client *client) {
    call_begin(call, loop);
    call->task.run = run_task;
    call->pool = pool;
    enum status status = store_pool_post(pool, &call->task, client);
    if (status == STATUS_OK)
        return;
    call->pool = NULL;
    call->status = status;
    call_return_post(call);
}

void call_cancel(struct call *call) {
    struct store_pool *pool = call->pool;
    call->pool = NULL;
    if (!pool || !store_pool_cancel(pool, &call->task))
        return;
    call->status = STATUS_STORE_UNAVAILABLE;
    call_return_post(call);
}

void call_writer(struct call *call, struct io_loop *loop, struct writer *writer) {
    call_begin(call, loop);
    call->in.job = (struct writer_job){.run = run_job, .any_node = call->any_node};
    enum status status = writer_post_job(writer, &call->in.job);
    if (status == STATUS_OK)
        return;
    call->status = status;
    call_return_post(call);
}

/* Once for all groups of the turn: the writer commits them together. */
static void wake_writer(void *writer) {
    writer_wake_for_posts(writer);
}

enum status call_post_group(struct call *call, struct writer *writer, struct append_group *group) {
    enum status status = writer_post_silently(writer, group);
    if (status == STATUS_OK)
        io_loop_at_turn_end(call->loop, wake_writer, writer);
    return status;
}

/* ---- without a loop ---- */

struct property_job {
    struct writer_job job;
    const struct store_property *property;
    enum status status;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done; /* under lock */
};

static void put_property(struct writer_job *job, struct store_session *session) {
    struct property_job *property_job = container_of(job, struct property_job, job);
    enum status status = store_put_properties(session, property_job->property, 1);
    pthread_mutex_lock(&property_job->lock);
    property_job->status = status;
    property_job->is_done = true;
    pthread_cond_signal(&property_job->changed);
    pthread_mutex_unlock(&property_job->lock);
}

enum status call_put_property(struct writer *writer, const struct store_property *property) {
    struct property_job property_job = {.job.run = put_property, .property = property};
    pthread_mutex_init(&property_job.lock, NULL);
    pthread_cond_init(&property_job.changed, NULL);
    enum status status = writer_post_job(writer, &property_job.job);
    if (status == STATUS_OK) {
        pthread_mutex_lock(&property_job.lock);
        while (!property_job.is_done)
            pthread_cond_wait(&property_job.changed, &property_job.lock);
        status = property_job.status;
        pthread_mutex_unlock(&property_job.lock);
    }
    pthread_cond_destroy(&property_job.changed);
    pthread_mutex_destroy(&property_job.lock);
    return status;
}
