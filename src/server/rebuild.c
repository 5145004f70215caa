#include "server/rebuild.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "authority/call.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "projector/reproject.h"

#define PATH_BYTES_MAX    4352
#define VERSION_BYTES_MAX 512
#define ROLE_POLL_MS      200

struct rebuild {
    struct rebuild_options options;
    pthread_t thread;
    atomic_bool is_ending;
    struct store_session *session;
    uint64_t rebuilt;
    uint64_t failed;
    /* The entity that the writer rebuilds. */
    struct writer_job job;
    struct store_entity entity;
    enum status status;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done; /* under lock */
};

/* ---- the version of all summaries ---- */

#define VERSION_NAME SLICE("projection_version")

/* Earlier versions kept it in a file. The file is removed when the store has the version. */
static bool path_of(const struct rebuild_options *options, char path[PATH_BYTES_MAX]) {
    int size = snprintf(path, PATH_BYTES_MAX, "%s/projection.version", options->folder);
    return size > 0 && size < PATH_BYTES_MAX;
}

static void save_version(const struct rebuild_options *options) {
    char path[PATH_BYTES_MAX];
    const struct store_property property = {VERSION_NAME, options->projection_version};
    enum status status = call_put_property(options->writer, &property);
    if (status == STATUS_OK && path_of(options, path))
        (void)unlink(path);
    if (status != STATUS_OK)
        log_event(LOG_WARN, "projection.version_not_saved", log_str("code", status_code(status)),
                  log_str("effect", "the next start looks at all summaries again"));
}

/* Whether the summaries of the store have the version of this server. */
static enum status read_version(struct store_session *session,
                                const struct rebuild_options *options, bool *is_current) {
    char path[PATH_BYTES_MAX];
    char text[VERSION_BYTES_MAX] = "";
    struct arena arena;
    struct slice version;
    arena_init(&arena, VERSION_BYTES_MAX * 2);
    enum status status = store_load_property(session, VERSION_NAME, &arena, &version);
    *is_current = status == STATUS_OK && slice_equal(version, options->projection_version);
    arena_release(&arena);
    if (status != STATUS_NOT_FOUND)
        return status;
    FILE *file = path_of(options, path) ? fopen(path, "re") : NULL;
    if (file) {
        size_t size = fread(text, 1, sizeof(text), file);
        fclose(file);
        *is_current = slice_equal((struct slice){text, size}, options->projection_version);
    }
    if (*is_current)
        save_version(options);
    return STATUS_OK;
}

/* ---- one entity, on the writer's thread ---- */

static void on_commit(void *user, const struct store_batch *batch) {
    struct rebuild *rebuild = user;
    writer_announce(rebuild->options.writer, batch, NULL);
}

static void run_job(struct writer_job *job, struct store_session *session) {
    struct rebuild *rebuild = container_of(job, struct rebuild, job);
    const struct reproject_options options = {
        .kind = rebuild->entity.kind,
        .id = rebuild->entity.id,
        .apply = true,
        .now_ms = clock_now().wall_ms,
        .projection_version = rebuild->options.projection_version,
        .user = rebuild,
        .on_commit = on_commit,
    };
    struct reproject_result result = {0};
    rebuild->status = reproject(session, &options, &result);
    if (result.drifted > 0)
        projector_forget(rebuild->options.projector, rebuild->entity.ref);
    pthread_mutex_lock(&rebuild->lock);
    rebuild->is_done = true;
    pthread_cond_signal(&rebuild->changed);
    pthread_mutex_unlock(&rebuild->lock);
}

/* ---- all entities ---- */

struct entity_page {
    struct rebuild *rebuild;
    struct arena arena;
    size_t count;
    struct store_entity entities[REBUILD_ENTITIES_MAX];
};

static enum status keep_entity(void *user, const struct store_entity *entity) {
    struct entity_page *page = user;
    struct slice id = arena_copy(&page->arena, entity->id);
    if (!id.data)
        return STATUS_OUT_OF_MEMORY;
    page->entities[page->count++] =
        (struct store_entity){.ref = entity->ref, .kind = entity->kind, .id = id};
    return STATUS_OK;
}

/* Rebuilds the entities of one kind whose summary has another version, one job of the writer each.
 */
static enum status walk_kind(struct rebuild *rebuild, struct entity_page *page,
                             enum entity_kind kind) {
    enum document_kind summary = entity_row(kind)->summary;
    uint64_t after_ref = 0;
    enum status status = STATUS_OK;
    do {
        arena_reset(&page->arena);
        page->count = 0;
        status = store_walk_entities(rebuild->session, kind, after_ref, REBUILD_ENTITIES_MAX, page,
                                     keep_entity);
        for (size_t i = 0; status == STATUS_OK && i < page->count; i++) {
            const struct store_entity *entity = &page->entities[i];
            struct store_checkpoint checkpoint;
            after_ref = entity->ref;
            if (atomic_load(&rebuild->is_ending))
                return STATUS_SHUTTING_DOWN;
            if (store_load_checkpoint(rebuild->session, summary, entity->ref, &page->arena,
                                      &checkpoint) == STATUS_OK &&
                slice_equal(checkpoint.projection_version, rebuild->options.projection_version))
                continue;
            rebuild->entity = *entity;
            rebuild->is_done = false;
            /* Once the job is posted, its status is the writer's until it is done. */
            enum status done = writer_post_job(rebuild->options.writer, &rebuild->job);
            if (done == STATUS_OK) {
                pthread_mutex_lock(&rebuild->lock);
                while (!rebuild->is_done)
                    pthread_cond_wait(&rebuild->changed, &rebuild->lock);
                done = rebuild->status;
                pthread_mutex_unlock(&rebuild->lock);
            }
            rebuild->rebuilt += done == STATUS_OK;
            rebuild->failed += done != STATUS_OK;
        }
    } while (status == STATUS_OK && page->count > 0);
    return status;
}

static void *rebuild_main(void *user) {
    struct rebuild *rebuild = user;
    struct entity_page *page = calloc(1, sizeof(*page));
    enum status status = page ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    if (page)
        arena_init(&page->arena, REBUILD_PAGE_BYTES_MAX);
    /* The writer rebuilds for all nodes. This node may become the writer at any time. */
    while (status == STATUS_OK && !writer_has_role(rebuild->options.writer)) {
        if (atomic_load(&rebuild->is_ending))
            status = STATUS_SHUTTING_DOWN;
        else
            poll(NULL, 0, ROLE_POLL_MS);
    }
    for (unsigned i = 0; status == STATUS_OK && i < DOCUMENT_KIND_COUNT; i++)
        status = walk_kind(rebuild, page, document_row((enum document_kind)i)->entity);
    if (page)
        arena_release(&page->arena);
    free(page);
    log_event(
        LOG_INFO, "projection.rebuilt", log_slice("version", rebuild->options.projection_version),
        log_str("status", status_code(status)), log_int("summaries", (int64_t)rebuild->rebuilt),
        log_int("failed", (int64_t)rebuild->failed));
    if (status == STATUS_OK && rebuild->failed == 0)
        save_version(&rebuild->options);
    return NULL;
}

static void rebuild_free(struct rebuild *rebuild) {
    store_session_close(rebuild->session);
    pthread_cond_destroy(&rebuild->changed);
    pthread_mutex_destroy(&rebuild->lock);
    free(rebuild);
}

enum status rebuild_start(struct rebuild **rebuild, const struct rebuild_options *options) {
    bool is_current = false;
    *rebuild = NULL;
    struct rebuild *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    made->job.run = run_job;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    enum status status = store_session_open(options->store, STORE_READ, &made->session);
    if (status == STATUS_OK)
        status = read_version(made->session, options, &is_current);
    if (status == STATUS_OK && !is_current &&
        pthread_create(&made->thread, NULL, rebuild_main, made) != 0)
        status = STATUS_SYSTEM_ERROR;
    if (status != STATUS_OK || is_current) {
        rebuild_free(made);
        return status;
    }
    *rebuild = made;
    return STATUS_OK;
}

void rebuild_stop(struct rebuild *rebuild) {
    if (!rebuild)
        return;
    atomic_store(&rebuild->is_ending, true);
    pthread_join(rebuild->thread, NULL);
    rebuild_free(rebuild);
}
