#include "server/revoked.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"

static enum status add_revocation(void *user, const struct store_revocation *revocation) {
    const struct revoked *revoked = user;
    return revocations_add(revoked->http->gate.revocations, revocation->kind, revocation->id,
                           revocation->expires_at_ms, revocation->revoked_at_ms);
}

/* Loads expired revocations too, because the clock may be wrong. */
enum status revoked_load(struct revoked *revoked, struct http *http, struct store *store) {
    struct store_session *session = NULL;
    struct store_progress progress = {.revocation_serial = 0};
    uint64_t boot_ms = clock_boot_ms();
    revoked->http = http;
    pthread_mutex_init(&revoked->lock, NULL);
    enum status status = store_session_open(store, STORE_READ, &session);
    if (status == STATUS_OK && store_is_shared(store))
        status = store_read_progress(session, 0, &progress);
    if (status == STATUS_OK)
        status = store_walk_revocations(session, 0, revoked, add_revocation);
    store_session_close(session);
    if (status != STATUS_OK || !store_is_shared(store))
        return status;
    revoked->read_serial = progress.revocation_serial;
    atomic_store(&revoked->swept_serial, progress.revocation_serial);
    revocations_note_read(http->gate.revocations, boot_ms);
    revocations_expire_after(http->gate.revocations, REVOCATIONS_AGE_MS_MAX);
    return STATUS_OK;
}

/* On the last loop. */
static void sweep_done(struct sweep *sweep) {
    struct revoked *revoked = container_of(sweep, struct revoked, sweep);
    revocations_note_read(revoked->http->gate.revocations, revoked->sweep_boot_ms);
    atomic_store(&revoked->swept_serial, revoked->sweep_serial);
    atomic_store(&revoked->is_sweeping, false);
    /* The next beat confirms the serial. */
    writer_beat_post(revoked->writer);
}

void revoked_serve(struct revoked *revoked) {
    atomic_store(&revoked->is_serving, true);
}

void revoked_stop(struct revoked *revoked) {
    pthread_mutex_lock(&revoked->lock);
    atomic_store(&revoked->is_serving, false);
    pthread_mutex_unlock(&revoked->lock);
}

static void sweep(struct revoked *revoked) {
    pthread_mutex_lock(&revoked->lock);
    if (atomic_load(&revoked->is_serving)) {
        atomic_store(&revoked->is_sweeping, true);
        sweep_post(&revoked->sweep, revoked->http);
    }
    pthread_mutex_unlock(&revoked->lock);
}

void revoked_beat(struct revoked *revoked, struct store_session *session,
                  const struct store_progress *progress, uint64_t boot_ms) {
    struct revocations *revocations = revoked->http->gate.revocations;
    /* A loop that is starting could admit a revoked token and miss the sweep. */
    if (!atomic_load(&revoked->is_serving) || atomic_load(&revoked->is_sweeping))
        return;
    bool is_new = progress->revocation_serial > revoked->read_serial;
    if (is_new && store_walk_new_revocations(session, revoked->read_serial, revoked,
                                             add_revocation) != STATUS_OK)
        return;
    if (is_new)
        revoked->read_serial = progress->revocation_serial;
    /* The sweep also wakes the loops, where deliveries have waited for this read. */
    if (!is_new && revocations_is_fresh(revocations)) {
        revocations_note_read(revocations, boot_ms);
        return;
    }
    revoked->sweep_serial = revoked->read_serial;
    revoked->sweep_boot_ms = boot_ms;
    revoked->sweep.done = sweep_done;
    sweep(revoked);
}

uint64_t revoked_seen(const struct revoked *revoked) {
    return atomic_load(&revoked->swept_serial);
}
