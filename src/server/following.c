#include "server/following.h"

#include <string.h>

#include "authority/quota.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "delivery/mend.h"
#include "hub/publish.h"
#include "server/shared_keys.h"

/* Its writer sends the documents to the sinks. */
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

/* The main thread starts the server again: everything in memory belongs to the old epoch. */
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

/* keys_rotate waits longer than this before the new key signs, so every node knows it then. */
static void renew_keys(struct following *following, struct store_session *side, uint64_t boot_ms) {
    if (boot_ms < following->keys_read_ms + SHARED_KEYS_RENEW_MS)
        return;
    following->keys_read_ms = boot_ms;
    enum status status = shared_keys_renew(side, following->folder);
    if (status != STATUS_OK)
        log_event(LOG_WARN, "signing_keys.unread", log_str("status", status_code(status)),
                  log_str("effect", "a rotated key is read later"));
}

static void on_damage(void *user, const struct store_damage *damage) {
    struct following *following = user;
    mend_post(following->writer, damage);
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
    status = nodes_beat(nodes, side, beat, progress.term, revoked_seen(following->revoked));
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
    if (status == STATUS_OK && !beat->is_ending)
        renew_keys(following, side, boot_ms);
    if (status == STATUS_OK && beat->has_role && atomic_load(&following->writer) &&
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
