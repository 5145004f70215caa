/* GET /healthz/live and /healthz/ready, and the health of the store. */
#include "api/health.h"

#include <stdatomic.h>

#include "api/handlers.h"
#include "authority/writer.h"
#include "base/clock.h"
#include "http/store_read.h"

/* ---- the health of the store -------------------------------------------------------------- */

/* A failure is forgotten after this time, so that the next append can show that the store works. */
#define FAILED_MS 5000

static bool is_failure(enum status status) {
    return status == STATUS_STORE_UNAVAILABLE || status == STATUS_WRITER_LOST ||
           status == STATUS_APPEND_OUTCOME_UNKNOWN;
}

void store_health_note(struct store_health *health, enum status status) {
    store_health_note_at(health, status, is_failure(status) ? clock_mono_now_ms() : 0);
}

void store_health_note_at(struct store_health *health, enum status status, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&health->failed_at_ms);
    if (is_failure(status))
        atomic_store(&health->failed_at_ms, mono_ms);
    else if (status == STATUS_OK && failed_at_ms != 0)
        atomic_store(&health->failed_at_ms, 0);
}

bool store_health_is_good(const struct store_health *health, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&health->failed_at_ms);
    if (atomic_load(&health->is_moved))
        return false;
    /* A sum, because a difference could be negative: another loop with a later clock may have noted
     * the failure. */
    return failed_at_ms == 0 || mono_ms > failed_at_ms + FAILED_MS;
}

enum reason store_health_reason(const struct store_health *health, const struct writer *writer) {
    enum reason reason = REASON_STORE_FAILED;
    if (atomic_load(&health->is_moved))
        return REASON_STORE_MOVED;
    return writer_is_failing(writer, &reason) ? reason : REASON_STORE_FAILED;
}

/* ---- the checks --------------------------------------------------------------------------- */

void handle_live(struct exchange *exchange) {
    exchange_answer_json(exchange, 200, SLICE("{\"status\":\"live\"}\n"));
}

/* A server is ready if it accepts requests and appends, can read the store, and its last append did
 * not fail. */
static void read_ready(struct store_read *read, struct store_session *store) {
    struct store_state state;
    read->status = store_read_state(store, &state);
    if (read->status != STATUS_OK)
        read->status = STATUS_STORE_UNAVAILABLE;
    buffer_append_slice(&read->out, SLICE("{\"status\":\"ready\"}\n"));
}

void handle_ready(struct exchange *exchange) {
    struct api *api = api_of(exchange);
    if (atomic_load(&api->is_ending)) {
        exchange_answer_status(exchange, STATUS_SHUTTING_DOWN);
        return;
    }
    if (!store_health_is_good(&api->health, clock_mono_ms(&exchange->loop->clock))) {
        exchange_answer_error(
            exchange, &(struct exchange_error){.status = STATUS_STORE_UNAVAILABLE,
                                               .reason_code = reason_code(store_health_reason(
                                                   &api->health, api->writer))});
        return;
    }
    struct store_disk disk;
    store_disk(api->store, &disk);
    if (disk.is_stopped) {
        exchange_answer_error(
            exchange, &(struct exchange_error){.status = STATUS_DISK_RESERVE,
                                               .reason_code = reason_code(REASON_STORE_FULL)});
        return;
    }
    /* A follower is ready if it may deliver and knows a live writer. */
    struct node_address writer;
    if (!revocations_is_fresh(api->http->gate.revocations)) {
        exchange_answer_status(exchange, STATUS_REVOCATIONS_UNKNOWN);
        return;
    }
    if (api->is_shared && !writer_has_role(api->writer) && !nodes_writer(api->nodes, &writer)) {
        exchange_answer_status(exchange, STATUS_NOT_WRITER);
        return;
    }
    struct store_read *read = store_read_new(exchange, ENTITY_AUDIT, read_ready);
    if (read)
        store_read_post(read);
}
