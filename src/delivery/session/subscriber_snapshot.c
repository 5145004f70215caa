#include "delivery/session/subscriber_snapshot.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/stale.h"
#include "wire/json.h"

static void snapshot_free(struct subscriber_snapshot *snapshot) {
    if (snapshot->snapshot)
        snapshot_unref(snapshot->snapshot);
    buffer_release(&snapshot->documents);
    free(snapshot);
}

static void fail(struct subscriber_snapshot *snapshot, enum status status) {
    snapshot->state = SUBSCRIBER_SNAPSHOT_FAILED;
    snapshot->status = status;
}

static void wait_done(struct snapshot_wait *wait) {
    struct subscriber_snapshot *snapshot = container_of(wait, struct subscriber_snapshot, wait);
    struct subscriber *subscriber = snapshot->subscriber;
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_WAITING);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
    if (wait->status == STATUS_OK)
        snapshot->snapshot = wait->snapshot;
    else
        fail(snapshot, wait->status);
    /* A subscriber that leaves has no turn any more. */
    if (!subscriber)
        snapshot_free(snapshot);
    else if (subscriber->turn.lane)
        scheduler_add(&subscriber->session->delivery->scheduler, &subscriber->turn);
}

enum status subscriber_snapshot_begin(struct subscriber *subscriber, enum policy_row row) {
    struct delivery_loop *delivery = subscriber->session->delivery;
    struct subscriber_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    char key[PRINCIPAL_KEY_BYTES_MAX];
    assert(!subscriber->snapshot);
    if (!snapshot)
        return STATUS_OUT_OF_MEMORY;
    subscriber->snapshot = snapshot;
    snapshot->subscriber = subscriber;
    buffer_init(&snapshot->documents, SESSION_PART_BYTES_MAX);
    snapshot->wait.done = wait_done;
    const struct store_client client = {.key = principal_key(subscriber->session->principal, key)};
    snapshot_wait_begin(&snapshot->wait, delivery->shared->snapshots, delivery->io, row, &client);
    return STATUS_OK;
}

void subscriber_snapshot_drop(struct subscriber *subscriber) {
    struct subscriber_snapshot *snapshot = subscriber->snapshot;
    if (!snapshot)
        return;
    assert(snapshot->state != SUBSCRIBER_SNAPSHOT_READING);
    subscriber->snapshot = NULL;
    snapshot->subscriber = NULL;
    if (snapshot->state != SUBSCRIBER_SNAPSHOT_WAITING)
        snapshot_free(snapshot);
}

void subscriber_snapshot_ask(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READY);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READING;
}

void subscriber_snapshot_cancel(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING && !snapshot->principal);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
}

void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING);
    snapshot->principal = principal_ref(principal);
}

void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot, enum status status) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_READING);
    snapshot->state = SUBSCRIBER_SNAPSHOT_PART;
    if (status == STATUS_OK)
        status = snapshot->status;
    if (status != STATUS_OK)
        fail(snapshot, status);
    principal_unref(snapshot->principal);
    snapshot->principal = NULL;
}

void subscriber_snapshot_read(struct subscriber_snapshot *snapshot) {
    size_t part_count = snapshot->snapshot->part_count;
    size_t part = snapshot_part_next(snapshot->snapshot, snapshot->part, snapshot->principal);
    /* The last part may be empty. A topic without documents has one empty part. */
    snapshot->part = part < part_count || part_count == 0 ? part : part_count - 1;
    snapshot->document_count = 0;
    if (part < part_count)
        snapshot->status =
            snapshot_part_read(snapshot->snapshot, snapshot->part, snapshot->principal,
                               &snapshot->documents, &snapshot->document_count);
}

void subscriber_snapshot_next(struct subscriber_snapshot *snapshot) {
    assert(snapshot->state == SUBSCRIBER_SNAPSHOT_PART);
    buffer_clear(&snapshot->documents);
    snapshot->state = SUBSCRIBER_SNAPSHOT_READY;
    snapshot->part++;
}

bool subscriber_snapshot_is_reading(const struct subscriber_snapshot *snapshot) {
    return snapshot->state == SUBSCRIBER_SNAPSHOT_READING;
}

bool subscriber_snapshot_is_last(const struct subscriber_snapshot *snapshot) {
    return snapshot->part + 1 >= snapshot->snapshot->part_count;
}

enum status subscriber_snapshot_write(const struct subscriber_snapshot *snapshot,
                                      struct buffer *out) {
    const struct snapshot *source = snapshot->snapshot;
    enum status status = buffer_append_slice(out, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = json_write_string(out, source->topic);
    if (status == STATUS_OK)
        status = buffer_printf(out,
                               ",\"format\":\"" SNAPSHOT_FORMAT
                               "\",\"schema_version\":%d,\"epoch\":\"%s\",\"watermark\":%" PRIu64
                               ",\"part\":%zu,\"last\":%s,\"documents\":[",
                               SNAPSHOT_SCHEMA_VERSION, source->epoch.text, source->watermark,
                               snapshot->parts_sent,
                               subscriber_snapshot_is_last(snapshot) ? "true" : "false");
    if (status == STATUS_OK)
        status = buffer_append_slice(out, buffer_slice(&snapshot->documents));
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("]}")) : status;
}
