#include "server/following.h"

#include <string.h>

#include "authority/quota.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "base/metrics.h"
#include "delivery/repair.h"
#include "hub/hub.h"
#include "server/shared_keys.h"

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

/* The loops may have ended meanwhile. */
static void post_sweep(struct revoked *revoked) {
    pthread_mutex_lock(&revoked->lock);
    if (atomic_load(&revoked->is_serving)) {
        atomic_store(&revoked->is_sweeping, true);
        sweep_post(&revoked->sweep, revoked->http);
    }
    pthread_mutex_unlock(&revoked->lock);
}

void revoked_check_keys(struct revoked *revoked) {
    if (atomic_load(&revoked->is_serving) && !atomic_load(&revoked->is_sweeping) &&
        operator_keys_take_ended(revoked->http->operator_keys, clock_now().wall_ms)) {
        revoked->sweep.done = sweep_done;
        post_sweep(revoked);
    }
}

/* Reads new revocations, and sweeps the loops for connections that they end, and for those of
 * operator keys that have ended. progress was read after boot_ms, by clock_boot_ms, with that
 * session. The operator keys were read after it. */
static void revoked_beat(struct revoked *revoked, struct store_session *session,
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
    bool has_ended = operator_keys_take_ended(revoked->http->operator_keys, clock_now().wall_ms);
    /* The sweep also wakes the loops, where deliveries have waited for this read. */
    if (!is_new && !has_ended && revocations_is_fresh(revocations)) {
        revocations_note_read(revocations, boot_ms);
        return;
    }
    revoked->sweep_serial = revoked->read_serial;
    revoked->sweep_boot_ms = boot_ms;
    revoked->sweep.done = sweep_done;
    post_sweep(revoked);
}

/* The writer of the commit sends the documents to the sinks. */
static void on_commit(void *user, const struct store_batch *batch,
                      const struct store_entity *states) {
    struct following *following = user;
    hub_publish(following->hub, batch, states);
    topic_activity_committed(following->activity, batch);
}

static bool is_watched(void *user) {
    struct following *following = user;
    return !hub_is_empty(following->hub);
}

static void on_head(void *user, struct slice topic, uint64_t head_seq) {
    struct following *following = user;
    hub_advance(following->hub, topic, head_seq);
}

static void on_pruned(void *user, struct slice topic, uint64_t oldest_seq) {
    struct following *following = user;
    hub_prune(following->hub, topic, oldest_seq);
}

/* The main thread restarts the server: everything in memory belongs to the old epoch. */
static void on_epoch(void *user, const char *epoch) {
    struct following *following = user;
    if (atomic_exchange(&following->end, FOLLOWING_EPOCH_OLD) == FOLLOWING_GOES_ON)
        log_event(LOG_WARN, "store.epoch_changed", log_str("epoch", epoch),
                  log_str("epoch_before", following->epoch),
                  log_str("effect", "all connections are closed, and the server starts again"));
}

/* A newer build has changed the schema. The store gives this node no role any more. */
static void check_schema(struct following *following, const struct store_progress *progress) {
    if (progress->schema_version <= following->schema_version)
        return;
    bool is_readable = following->schema_version >= progress->reader_version;
    if (!following->is_schema_newer)
        log_event(
            LOG_WARN, "store.schema_newer", log_int("schema", (int64_t)progress->schema_version),
            log_int("schema_of_build", (int64_t)following->schema_version),
            log_str("effect", is_readable ? "this node reads and forwards, and never becomes the "
                                            "writer: replace it by the newer khala"
                                          : "this khala cannot read the schema: the server ends"));
    following->is_schema_newer = true;
    enum following_end goes_on = FOLLOWING_GOES_ON;
    if (!is_readable)
        atomic_compare_exchange_strong(&following->end, &goes_on, FOLLOWING_SCHEMA_NEW);
}

static void on_damage(void *user, const struct store_damage *damage) {
    struct following *following = user;
    repair_post(following->writer, damage);
}

static uint64_t on_beat(void *user, struct store_session *side, const struct follow_beat *beat) {
    struct following *following = user;
    struct nodes *nodes = following->nodes;
    struct store_progress progress = {.log_id = 0};
    uint64_t boot_ms = clock_boot_ms();
    enum status status = beat->is_ending ? STATUS_OK : store_read_progress(side, 0, &progress);
    if (status != STATUS_OK) {
        nodes_note_failure(nodes, status, store_session_error(side));
        return nodes_beat_ms(nodes);
    }
    if (!beat->is_ending && strcmp(progress.epoch, following->epoch) != 0)
        on_epoch(following, progress.epoch);
    if (!beat->is_ending)
        check_schema(following, &progress);
    uint64_t behind = progress.log_id > beat->log_id ? progress.log_id - beat->log_id : 0;
    metrics_set(METRIC_CLUSTER_LAG_EVENTS, METRIC_PLAIN, behind);
    /* The row is written first: a node whose row is old has no fresh revocations either. */
    status = nodes_beat(nodes, side, beat, progress.term,
                        atomic_load(&following->revoked->swept_serial));
    /* The operator keys are read before the revocations: where those are fresh, a removed key is
     * gone, also when its revocation is forgotten. */
    bool has_keys = status == STATUS_OK && !beat->is_ending &&
                    operator_keys_read(following->operator_keys, side) == STATUS_OK;
    if (status == STATUS_OK && !beat->is_ending && !has_keys)
        log_event(LOG_WARN, "operator_keys.unread", log_str("error", store_session_error(side)),
                  log_str("effect", "the next beat reads them"));
    if (has_keys)
        revoked_beat(following->revoked, side, &progress, boot_ms);
    if (status == STATUS_OK && !beat->is_ending &&
        quota_table_read(following->quotas, side) != STATUS_OK)
        log_event(LOG_WARN, "quotas.unread", log_str("error", store_session_error(side)),
                  log_str("effect", "the next beat reads them"));
    /* keys_rotate waits longer than this before the new key signs, so every node knows it then. */
    if (status == STATUS_OK && !beat->is_ending &&
        boot_ms >= following->keys_read_ms + SHARED_KEYS_RENEW_MS) {
        following->keys_read_ms = boot_ms;
        enum status renewed = shared_keys_renew(side, following->folder);
        if (renewed != STATUS_OK)
            log_event(LOG_WARN, "signing_keys.unread", log_str("status", status_code(renewed)),
                      log_str("effect", "a rotated key is read later"));
    }
    if (status == STATUS_OK && role_is_writer(beat->role) && atomic_load(&following->writer) &&
        store_take_damages(side, following, on_damage) != STATUS_OK)
        log_event(LOG_WARN, "store.damages_unread", log_str("error", store_session_error(side)),
                  log_str("effect", "the next beat reads what other nodes found damaged"));
    return nodes_beat_ms(nodes);
}

struct follow_hooks following_hooks(struct following *following) {
    return (struct follow_hooks){.user = following,
                                 .epoch = following->epoch,
                                 .epoch_changed = on_epoch,
                                 .commit = on_commit,
                                 .is_watched = is_watched,
                                 .head = on_head,
                                 .pruned = on_pruned,
                                 .beat = on_beat};
}

enum following_end following_end(const struct following *following) {
    return atomic_load(&following->end);
}
