#include "authority/job/writer_property.h"

#include <pthread.h>

#include "base/list.h"

struct property_job {
    struct writer_job job;
    const struct store_property *property;
    enum status status;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done; /* under lock */
};

static void run_job(struct writer_job *job, struct store_session *session) {
    struct property_job *property_job = container_of(job, struct property_job, job);
    enum status status = store_put_properties(session, property_job->property, 1);
    pthread_mutex_lock(&property_job->lock);
    property_job->status = status;
    property_job->is_done = true;
    pthread_cond_signal(&property_job->changed);
    pthread_mutex_unlock(&property_job->lock);
}

enum status writer_put_property(struct writer *writer, const struct store_property *property) {
    struct property_job property_job = {.job.run = run_job, .property = property};
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
