#include "delivery/session_snapshot.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/session.h"
#include "delivery/stale.h"
#include "wire/json.h"

static void part_release(struct subscriber_snapshot *snapshot) {
    buffer_release(&snapshot->documents);
    snapshot->has_part = false;
}

static void snapshot_free(struct subscriber_snapshot *snapshot) {
    if (snapshot->snapshot)
        snapshot_unref(snapshot->snapshot);
    part_release(snapshot);
    free(snapshot);
}

static void wait_done(struct snapshot_wait *wait) {
    struct subscriber_snapshot *snapshot = (struct subscriber_snapshot *)wait;
    snapshot->is_waiting = false;
    snapshot->status = wait->status;
    snapshot->snapshot = wait->status == STATUS_OK ? wait->snapshot : NULL;
    if (snapshot->subscriber)
        subscriber_ready(snapshot->subscriber);
    else
        snapshot_free(snapshot);
}

enum status subscriber_snapshot_begin(struct subscriber *subscriber, enum policy_row row) {
    struct subscriber_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    assert(!subscriber->snapshot);
    if (!snapshot)
        return STATUS_OUT_OF_MEMORY;
    subscriber->snapshot = snapshot;
    snapshot->subscriber = subscriber;
    snapshot->is_waiting = true;
    buffer_init(&snapshot->documents, SESSION_PART_BYTES_MAX);
    snapshot->wait.done = wait_done;
    snapshot_wait_begin(&snapshot->wait, subscriber->session->loop, row);
    return STATUS_OK;
}

void subscriber_snapshot_drop(struct subscriber *subscriber) {
    struct subscriber_snapshot *snapshot = subscriber->snapshot;
    if (!snapshot)
        return;
    assert(!snapshot->is_reading);
    subscriber->snapshot = NULL;
    snapshot->subscriber = NULL;
    if (!snapshot->is_waiting)
        snapshot_free(snapshot);
}

void subscriber_snapshot_read_begin(struct subscriber_snapshot *snapshot,
                                    const struct principal *principal) {
    snapshot->is_reading = true;
    snapshot->principal = principal_ref(principal);
}

void subscriber_snapshot_read_end(struct subscriber_snapshot *snapshot) {
    snapshot->is_reading = false;
    snapshot->has_part = true;
    principal_unref(snapshot->principal);
    snapshot->principal = NULL;
}

void subscriber_snapshot_read(struct subscriber_snapshot *snapshot) {
    size_t count;
    /* A topic without documents has one empty part. */
    if (snapshot->snapshot->part_count > 0)
        snapshot->status = snapshot_part_read(snapshot->snapshot, snapshot->part,
                                              snapshot->principal, &snapshot->documents, &count);
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
                               SNAPSHOT_SCHEMA_VERSION, source->epoch, source->watermark,
                               snapshot->parts_told,
                               subscriber_snapshot_is_last(snapshot) ? "true" : "false");
    if (status == STATUS_OK)
        status = buffer_append_slice(out, buffer_slice(&snapshot->documents));
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("]}")) : status;
}
