#include "delivery/journal_mend.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"

struct mend_job {
    struct writer_job job;
    struct slice topic;
    uint64_t bad_seq;
    enum status status;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
};

static void run(struct writer_job *base, struct store_session *session) {
    struct mend_job *job = container_of(base, struct mend_job, job);
    uint64_t now_ms = clock_now().wall_ms;
    job->status = store_mend_journal(session, job->topic, job->bad_seq, now_ms);
    /* The table itself may be damaged. */
    if (job->status == STATUS_INTERNAL_ERROR)
        job->status = store_heal(session, now_ms);
    pthread_mutex_lock(&job->lock);
    job->is_done = true;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

enum status journal_mend(struct writer *writer, struct slice topic, uint64_t bad_seq) {
    struct mend_job job = {.job.run = run, .topic = topic, .bad_seq = bad_seq};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.changed, NULL);
    enum status status = writer_post_job(writer, &job.job);
    if (status == STATUS_OK) {
        pthread_mutex_lock(&job.lock);
        while (!job.is_done)
            pthread_cond_wait(&job.changed, &job.lock);
        pthread_mutex_unlock(&job.lock);
        status = job.status;
    }
    pthread_cond_destroy(&job.changed);
    pthread_mutex_destroy(&job.lock);
    log_event(LOG_WARN, "journal.damaged", log_slice("topic", topic),
              log_int("seq", (int64_t)bad_seq), log_str("status", status_code(status)));
    return status;
}
