#include "delivery/repair.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "authority/projection.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "store/store_nodes.h"

struct repair_job {
    struct writer_job job;
    struct writer *writer;
    struct store_damage damage;
    enum status status;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
};

static void announce(void *user, const struct store_batch *batch) {
    writer_announce(user, batch, NULL);
}

static enum status repair_now(struct writer *writer, struct store_session *session,
                              const struct store_damage *damage) {
    const struct projection *projection = writer_projection(writer);
    const struct clock_reading now = clock_now();
    const struct projection_step step = {.session = session,
                                         .now_ms = now.wall_ms,
                                         .mono_ms = now.mono_ns / CLOCK_NS_PER_MS,
                                         .user = writer,
                                         .announce = announce};
    if (!projection)
        return STATUS_NOT_FOUND;
    enum status status = projection->repair(projection->user, &step, damage);
    /* A table itself may be damaged. */
    if (status == STATUS_INTERNAL_ERROR)
        status = store_heal(session, now.wall_ms);
    if (status != STATUS_NOT_FOUND && damage->kind == DOCUMENT_NONE)
        log_event(LOG_WARN, "journal.damaged", log_slice("topic", damage->topic),
                  log_int("seq", (int64_t)damage->seq), log_str("status", status_code(status)));
    else if (status != STATUS_NOT_FOUND)
        log_event(LOG_WARN, "document.damaged",
                  log_str("projection", document_kind_name(damage->kind)),
                  log_int("entity_ref", (int64_t)damage->entity_ref),
                  log_str("status", status_code(status)));
    return status;
}

static void finish(struct repair_job *job) {
    pthread_mutex_lock(&job->lock);
    job->is_done = true;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

static void run(struct writer_job *base, struct store_session *session) {
    struct repair_job *job = container_of(base, struct repair_job, job);
    job->status = repair_now(job->writer, session, &job->damage);
    finish(job);
}

/* With the side session of a node without the role. */
static void report(struct writer_job *base, struct store_session *session) {
    struct repair_job *job = container_of(base, struct repair_job, job);
    job->status = store_report_damage(session, &job->damage);
    finish(job);
}

static enum status run_job(struct repair_job *job) {
    job->is_done = false;
    enum status status = writer_post_job(job->writer, &job->job);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&job->lock);
    while (!job->is_done)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    return job->status;
}

bool repair_finds_missing(const struct writer *writer) {
    const struct projection *projection = writer_projection(writer);
    return projection && projection->has_documents;
}

enum status repair(struct writer *writer, const struct store_damage *damage) {
    struct repair_job job = {.job.run = run, .writer = writer, .damage = *damage};
    pthread_mutex_init(&job.lock, NULL);
    pthread_cond_init(&job.changed, NULL);
    enum status status = run_job(&job);
    if (status == STATUS_NOT_WRITER) {
        job.job = (struct writer_job){.run = report, .any_node = true};
        (void)run_job(&job);
    }
    pthread_cond_destroy(&job.changed);
    pthread_mutex_destroy(&job.lock);
    return status == STATUS_OK || status == STATUS_NOT_FOUND ? status : STATUS_STORE_UNAVAILABLE;
}

/* ---- without a wait ---- */

struct posted_repair {
    struct writer_job job;
    struct writer *writer;
    struct store_damage damage;
    char topic[];
};

static void run_posted(struct writer_job *base, struct store_session *session) {
    struct posted_repair *posted = container_of(base, struct posted_repair, job);
    (void)repair_now(posted->writer, session, &posted->damage);
    free(posted);
}

void repair_post(struct writer *writer, const struct store_damage *damage) {
    struct slice topic = damage->topic;
    struct posted_repair *posted = malloc(sizeof(*posted) + topic.size);
    if (!posted)
        return;
    *posted = (struct posted_repair){.job.run = run_posted, .writer = writer, .damage = *damage};
    if (topic.size > 0)
        memcpy(posted->topic, topic.data, topic.size);
    posted->damage.topic = (struct slice){posted->topic, topic.size};
    if (writer_post_job(writer, &posted->job) != STATUS_OK)
        free(posted);
}

enum status repair_load_document(struct writer *writer, struct store_session *session,
                                 const struct store_entity *entity, struct arena *arena,
                                 struct store_document *document) {
    enum document_kind kind = entity_row(entity->kind)->summary;
    const struct store_damage damage = {.kind = kind, .entity_ref = entity->ref};
    enum status status = store_load_document(session, kind, entity->ref, arena, document);
    bool is_lost = store_is_lost(status) && repair_finds_missing(writer);
    if (!is_lost && (status != STATUS_OK || store_document_is_whole(document)))
        return status;
    status = repair(writer, &damage);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    status = store_load_document(session, kind, entity->ref, arena, document);
    return status != STATUS_OK || store_document_is_whole(document) ? status
                                                                    : STATUS_STORE_UNAVAILABLE;
}
