/* GET /healthz/live and /healthz/ready. */
#include <stdatomic.h>

#include "api/api.h"
#include "api/handlers.h"
#include "http/store_read.h"

void handle_live(struct exchange *exchange) {
    exchange_answer_json(exchange, 200, SLICE("{\"status\":\"live\"}\n"));
}

/* A server is ready if it accepts requests and appends, can read the store, and its last append did
 * not fail. */
static void read_ready(struct store_read *read, struct store_session *session) {
    struct store_state state;
    read->status = store_read_state(session, &state);
    if (read->status == STATUS_OK)
        read->status = buffer_append_slice(&read->out, SLICE("{\"status\":\"ready\"}\n"));
    else
        read->status = STATUS_STORE_UNAVAILABLE;
}

/* A follower is ready if it may deliver and knows a live writer. */
static enum status cluster_status(const struct api *api) {
    struct node_address writer;
    if (!revocations_is_fresh(api->http->gate.revocations))
        return STATUS_REVOCATIONS_UNKNOWN;
    if (!api->is_shared || writer_has_role(api->writer) || nodes_writer(api->nodes, &writer))
        return STATUS_OK;
    return STATUS_NOT_WRITER;
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
    enum status status = cluster_status(api);
    if (status != STATUS_OK) {
        exchange_answer_status(exchange, status);
        return;
    }
    struct store_read *read = store_read_new(exchange, ENTITY_AUDIT, read_ready);
    if (read)
        store_read_post(read);
}
