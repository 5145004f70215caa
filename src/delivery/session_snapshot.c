#include "delivery/session_snapshot.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "delivery/stale.h"
#include "delivery/session.h"
#include "wire/json.h"

#define PART_BYTES_MAX (160u << 20)

static void part_release(struct link_snapshot *snapshot) {
    buffer_release(&snapshot->documents);
    snapshot->has_part = false;
}

static void snapshot_free(struct link_snapshot *snapshot) {
    if (snapshot->snapshot)
        snapshot_unref(snapshot->snapshot);
    part_release(snapshot);
    free(snapshot);
}

static void wait_done(struct snapshot_wait *wait) {
    struct link_snapshot *snapshot = (struct link_snapshot *)wait;
    snapshot->is_waiting = false;
    snapshot->status = wait->status;
    snapshot->snapshot = wait->status == STATUS_OK ? wait->snapshot : NULL;
    if (snapshot->reader)
        link_reader_ready(snapshot->reader);
    else
        snapshot_free(snapshot);
}

enum status link_snapshot_begin(struct link_reader *reader, enum policy_row row) {
    struct link_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    assert(!reader->snapshot);
    if (!snapshot)
        return STATUS_OUT_OF_MEMORY;
    reader->snapshot = snapshot;
    snapshot->reader = reader;
    snapshot->is_waiting = true;
    buffer_init(&snapshot->documents, PART_BYTES_MAX);
    snapshot->wait.done = wait_done;
    snapshot_wait_begin(&snapshot->wait, reader->link->loop, row);
    return STATUS_OK;
}

void link_snapshot_drop(struct link_reader *reader) {
    struct link_snapshot *snapshot = reader->snapshot;
    if (!snapshot)
        return;
    assert(!snapshot->is_reading);
    reader->snapshot = NULL;
    snapshot->reader = NULL;
    if (!snapshot->is_waiting)
        snapshot_free(snapshot);
}

void link_snapshot_read_begin(struct link_snapshot *snapshot, const struct principal *principal) {
    snapshot->is_reading = true;
    snapshot->principal = principal_ref(principal);
}

void link_snapshot_read_end(struct link_snapshot *snapshot) {
    snapshot->is_reading = false;
    snapshot->has_part = true;
    principal_unref(snapshot->principal);
    snapshot->principal = NULL;
}

void link_snapshot_read(struct link_snapshot *snapshot) {
    size_t count;
    /* A topic without documents has one empty part. */
    if (snapshot->snapshot->part_count > 0)
        snapshot->status = snapshot_part_read(snapshot->snapshot, snapshot->part,
                                              snapshot->principal, &snapshot->documents, &count);
}

bool link_snapshot_is_last(const struct link_snapshot *snapshot) {
    return snapshot->part + 1 >= snapshot->snapshot->part_count;
}

enum status link_snapshot_write(const struct link_snapshot *snapshot, struct buffer *out) {
    const struct snapshot *source = snapshot->snapshot;
    enum status status = buffer_append_slice(out, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = json_write_string(out, source->topic);
    if (status == STATUS_OK)
        status =
            buffer_printf(out,
                          ",\"format\":\"" SNAPSHOT_FORMAT
                          "\",\"schema_version\":%d,\"epoch\":\"%s\",\"watermark\":%" PRIu64
                          ",\"part\":%zu,\"last\":%s,\"documents\":[",
                          SNAPSHOT_SCHEMA_VERSION, source->epoch, source->watermark,
                          snapshot->parts_told, link_snapshot_is_last(snapshot) ? "true" : "false");
    if (status == STATUS_OK)
        status = buffer_append_slice(out, buffer_slice(&snapshot->documents));
    return status == STATUS_OK ? buffer_append_slice(out, SLICE("]}")) : status;
}
