/* What holds for every engine: which session may make a call, what is repeated when the disk is
 * full, and which rows are whole. */
#include "store/store.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "store/store_engine.h"

/* The reserve is at most this part of the disk. */
#define RESERVE_DISK_SHARE 8
/* The reserve has fewer pieces. */
#define RESERVE_TRIES_MAX 12

void store_close(struct store *store) {
    if (store == NULL)
        return;
    store->engine->close(store);
}

enum status store_session_open(struct store *store, enum store_mode mode,
                               struct store_session **session) {
    return store->engine->session_open(store, mode, session);
}

void store_session_close(struct store_session *session) {
    if (session == NULL)
        return;
    assert(!session->in_read);
    session->engine->session_close(session);
}

const char *store_session_error(const struct store_session *session) {
    return session->engine->session_error(session);
}

enum reason store_session_reason(const struct store_session *session) {
    return session->engine->session_reason(session);
}

enum status store_check_location(const struct store *store, struct store_message *message) {
    return store->engine->check_location(store, message);
}

enum status store_measure(struct store_session *session, struct store_size *size) {
    return session->engine->measure(session, size);
}

enum status store_take_role(struct store_session *session) {
    assert(session->mode == STORE_WRITE);
    return session->engine->take_role ? session->engine->take_role(session) : STATUS_WRITER_LOST;
}

enum status store_keep_alive(struct store_session *session, int64_t *wait_ms) {
    assert(session->mode == STORE_WRITE);
    *wait_ms = -1;
    return session->engine->keep_alive ? session->engine->keep_alive(session, wait_ms) : STATUS_OK;
}

void store_set_reserve(struct store *store, uint64_t bytes) {
    if (store->engine->set_reserve)
        store->engine->set_reserve(store, bytes);
}

uint64_t store_reserve_half(uint64_t reserve_bytes, uint64_t disk_bytes) {
    uint64_t share = disk_bytes / RESERVE_DISK_SHARE;
    return (reserve_bytes < share ? reserve_bytes : share) / 2;
}

enum store_room store_check_room(struct store_session *session) {
    assert(session->mode == STORE_WRITE);
    return session->engine->check_room ? session->engine->check_room(session) : STORE_ROOM_FREE;
}

void store_disk(const struct store *store, struct store_disk *disk) {
    *disk = (struct store_disk){.is_stopped = false};
    if (store->engine->disk)
        store->engine->disk(store, disk);
}

/* Whether work that failed is repeated, because there is more room now. Each time gives back a
 * piece of the reserve or shortens the write-ahead log. */
static bool has_more_room(struct store_session *session, enum store_room room_least, unsigned tries,
                          enum status *status) {
    if (*status != STATUS_STORE_UNAVAILABLE || !session->engine->make_room ||
        tries >= RESERVE_TRIES_MAX)
        return false;
    enum status made = session->engine->make_room(session, room_least);
    if (made != STATUS_OK)
        *status = made;
    return made == STATUS_OK;
}

bool store_has_outbox(const struct store_session *session) {
    return session->engine->read_outbox != NULL;
}

enum status store_read_outbox(struct store_session *session, const struct store_outbox_query *query,
                              void *user, store_outbox_cb *callback) {
    assert(session->mode == STORE_WRITE && store_has_outbox(session));
    return session->engine->read_outbox(session, query, user, callback);
}

enum status store_outbox_state(struct store_session *session, struct store_outbox_state *state) {
    return session->engine->outbox_state ? session->engine->outbox_state(session, state)
                                         : STATUS_NOT_FOUND;
}

uint64_t store_session_rows_read(const struct store_session *session) {
    return atomic_load_explicit(&session->rows_read, memory_order_relaxed);
}

void store_session_cancel_by(struct store_session *session, const atomic_bool *is_cancelled) {
    assert(session->mode == STORE_READ);
    session->is_cancelled = is_cancelled;
}

enum status store_prefetch(struct store_session *session, struct store_prefetch *prefetch) {
    assert(session->mode == STORE_WRITE);
    return session->engine->prefetch(session, prefetch);
}

enum status store_commit(struct store_session *session, const struct store_batch *batch) {
    assert(session->mode == STORE_WRITE);
    assert(batch->outbox_count == 0 || store_has_outbox(session));
    assert(batch->rejection_count <= batch->outbox_count);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->commit(session, batch);
    } while ((batch->event_count > 0 || batch->room_least > STORE_ROOM_FREE) &&
             has_more_room(session, batch->room_least, tries++, &status));
    return status;
}

static bool is_hash_of(struct slice payload, const uint8_t expected[SHA256_BYTES]) {
    uint8_t hash[SHA256_BYTES];
    sha256(payload.data, payload.size, hash);
    return memcmp(hash, expected, SHA256_BYTES) == 0;
}

bool store_document_is_whole(const struct store_document *document) {
    return document->payload.data && is_hash_of(document->payload, document->payload_hash);
}

bool store_row_is_whole(const struct store_journal_row *row, const struct store_event *event) {
    if (row->entity_ref != event->entity_ref)
        return false;
    return row->payload.data ? is_hash_of(row->payload, row->payload_hash)
                             : memcmp(row->payload_hash, event->payload_hash, SHA256_BYTES) == 0;
}

void store_report_drift(const struct store_drift *drift) {
    log_event(LOG_WARN, "projector.rows_altered",
              log_str("projection", document_kind_name(drift->kind)),
              log_int("entity_ref", (int64_t)drift->entity_ref),
              log_str("reason", reason_code(drift->reason)),
              log_str("effect", "the rows were written anew"));
    metrics_add(METRIC_KHALA_PROJECTION_DRIFT, METRIC_LABELS(drift->reason), 1);
}

const char *store_false_number(const struct store_state *state, uint64_t *number) {
    const struct {
        const char *name;
        uint64_t number;
    } rows[] = {{"the number of event", state->log_id},
                {"the number of entity", state->entity_ref},
                {"the number of topic", state->topic_ref}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].number > STORE_SEQ_MAX) {
            *number = rows[i].number;
            return rows[i].name;
        }
    return NULL;
}

enum status store_prune(struct store_session *session, uint64_t topic_ref, uint64_t below_seq,
                        uint64_t limit, uint64_t *pruned) {
    struct store_prune prune = {.topic_ref = topic_ref, .below_seq = below_seq, .limit = limit};
    enum status status = store_prune_topics(session, &prune, 1);
    *pruned = status == STATUS_OK ? prune.pruned : 0;
    return status;
}

enum status store_heal(struct store_session *session, uint64_t now_ms) {
    assert(session->mode == STORE_WRITE);
    return session->engine->heal(session, now_ms);
}

enum status store_repair_journal(struct store_session *session,
                                 const struct store_journal_repair *repair) {
    assert(session->mode == STORE_WRITE);
    return session->engine->repair_journal(session, repair);
}

enum status store_rebuild_journal(struct store_session *session, uint64_t events_max,
                                  uint64_t now_ms) {
    assert(session->mode == STORE_WRITE);
    return session->engine->rebuild_journal(session, events_max, now_ms);
}

enum status store_find_stray_row(struct store_session *session, uint64_t *topic_ref,
                                 uint64_t *seq) {
    return session->engine->find_stray_row(session, topic_ref, seq);
}

enum status store_prune_topics(struct store_session *session, struct store_prune *prunes,
                               size_t count) {
    assert(session->mode == STORE_WRITE);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->prune_topics(session, prunes, count);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_read_begin(struct store_session *session) {
    assert(session->mode == STORE_READ && !session->in_read);
    enum status status = session->engine->read_begin(session);
    session->in_read = status == STATUS_OK;
    return status;
}

void store_read_end(struct store_session *session) {
    assert(session->in_read);
    session->in_read = false;
    session->engine->read_end(session);
}

enum status store_put_revocations(struct store_session *session,
                                  const struct store_revocation *revocations, size_t count,
                                  uint64_t now_ms) {
    assert(session->mode != STORE_READ);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->put_revocations(session, revocations, count, now_ms);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_use_once(struct store_session *session, struct store_single_use *uses,
                           size_t count, uint64_t now_ms) {
    assert(session->mode != STORE_READ && count <= STORE_SINGLE_USES_MAX);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->use_once(session, uses, count, now_ms);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_put_quotas(struct store_session *session, const struct store_quota *quotas,
                             size_t count) {
    assert(session->mode == STORE_WRITE);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->put_quotas(session, quotas, count);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_load_usages(struct store_session *session, struct store_usage *usages,
                              size_t count) {
    return count > 0 ? session->engine->load_usages(session, usages, count) : STATUS_OK;
}

enum status store_check_usages(struct store_session *session, uint64_t limit, void *user,
                               store_usage_difference_cb *callback) {
    return session->engine->check_usages(session, limit, user, callback);
}

enum status store_put_operator_key(struct store_session *session,
                                   const struct store_operator_key *key) {
    assert(session->mode == STORE_WRITE);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->put_operator_key(session, key);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_drop_operator_key(struct store_session *session, struct slice name) {
    assert(session->mode == STORE_WRITE);
    enum status status;
    unsigned tries = 0;
    do {
        status = session->engine->drop_operator_key(session, name);
    } while (has_more_room(session, STORE_ROOM_LAST, tries++, &status));
    return status;
}

enum status store_leave_audit_event(struct store_session *session, struct slice type,
                                    struct slice payload) {
    assert(session->mode != STORE_READ);
    return session->engine->leave_audit_event
               ? session->engine->leave_audit_event(session, type, payload)
               : STATUS_NOT_WRITER;
}

bool store_has_secrets(const struct store *store) {
    return store->engine->keep_secret != NULL;
}

enum status store_lock_secrets(struct store_session *session) {
    assert(session->mode == STORE_SIDE && session->engine->lock_secrets);
    return session->engine->lock_secrets(session);
}

enum status store_commit_secrets(struct store_session *session) {
    assert(session->mode == STORE_SIDE && session->engine->commit_secrets);
    return session->engine->commit_secrets(session);
}

enum status store_keep_secret(struct store_session *session, struct slice name,
                              struct slice value) {
    assert(session->mode != STORE_READ && session->engine->keep_secret);
    return session->engine->keep_secret(session, name, value, false);
}

enum status store_replace_secret(struct store_session *session, struct slice name,
                                 struct slice value) {
    assert(session->mode != STORE_READ && session->engine->keep_secret);
    return session->engine->keep_secret(session, name, value, true);
}

enum status store_load_secret(struct store_session *session, struct slice name, struct arena *arena,
                              struct slice *value) {
    assert(session->engine->load_secret);
    return session->engine->load_secret(session, name, arena, value);
}

enum status store_note_fork(struct store_session *session) {
    assert(session->mode == STORE_WRITE);
    return session->engine->note_fork(session);
}

enum status store_lower_fork(struct store_session *session, uint64_t log_id) {
    assert(session->mode == STORE_WRITE);
    return session->engine->lower_fork(session, log_id);
}

enum status store_put_properties(struct store_session *session,
                                 const struct store_property *properties, size_t count) {
    assert(session->mode == STORE_WRITE);
    return session->engine->put_properties(session, properties, count, STORE_APPENDING_KEPT);
}

enum status store_load_property(struct store_session *session, struct slice name,
                                struct arena *arena, struct slice *value) {
    return session->engine->load_property(session, name, arena, value);
}

enum status store_read_state(struct store_session *session, struct store_state *state) {
    return session->engine->read_state(session, state);
}

enum status store_find_cursor(struct store_session *session, const struct event_cursor *cursor,
                              uint64_t *log_id) {
    return session->engine->find_cursor(session, cursor, log_id);
}

enum status store_measure_replay(struct store_session *session, const struct store_topic *topic,
                                 uint64_t after_seq, uint64_t limit, struct store_replay *replay) {
    return session->engine->measure_replay(session, topic, after_seq, limit, replay);
}

enum status store_find_expired(struct store_session *session, const struct store_topic *topic,
                               const struct store_expiry_query *query,
                               struct store_expiry *expiry) {
    return session->engine->find_expired(session, topic, query, expiry);
}

enum status store_put_node(struct store_session *session, const struct store_node *node) {
    assert(session->mode == STORE_SIDE);
    return session->engine->put_node(session, node);
}

enum status store_tidy_nodes(struct store_session *session) {
    assert(session->mode == STORE_SIDE);
    return session->engine->tidy_nodes(session);
}

enum status store_drop_node(struct store_session *session, struct slice id) {
    assert(session->mode == STORE_SIDE);
    return session->engine->drop_node(session, id);
}

enum status store_report_damage(struct store_session *session, const struct store_damage *damage) {
    assert(session->mode == STORE_SIDE);
    return session->engine->report_damage(session, damage);
}

enum status store_take_damages(struct store_session *session, void *user,
                               void (*callback)(void *user, const struct store_damage *damage)) {
    assert(session->mode == STORE_SIDE);
    return session->engine->take_damages(session, user, callback);
}

enum status store_walk_nodes(struct store_session *session, void *user, store_node_cb *callback) {
    return session->engine->walk_nodes(session, user, callback);
}

enum status store_read_progress(struct store_session *session, uint64_t after_commit_id,
                                struct store_progress *progress) {
    return session->engine->read_progress(session, after_commit_id, progress);
}
