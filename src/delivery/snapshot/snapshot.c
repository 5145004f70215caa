#include "delivery/snapshot/snapshot.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "delivery/snapshot/snapshot_owner.h"

struct snapshot *snapshot_ref(struct snapshot *snapshot) {
    atomic_fetch_add_explicit(&snapshot->references, 1, memory_order_relaxed);
    return snapshot;
}

void snapshot_unref(struct snapshot *snapshot) {
    if (!snapshot)
        return;
    unsigned before = atomic_fetch_sub_explicit(&snapshot->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    if (snapshot->fd >= 0)
        close(snapshot->fd);
    free(snapshot->owner_keys);
    free(snapshot->parts);
    free(snapshot);
}

/* The flag is set first: a read that finds the file empty must know why. */
void snapshot_withdraw(struct snapshot *snapshot) {
    atomic_store(&snapshot->is_withdrawn, true);
    (void)!ftruncate(snapshot->fd, 0);
}

/* Appends size bytes of the file, starting at offset. */
static enum status append_file(const struct snapshot *snapshot, uint64_t offset, size_t size,
                               struct buffer *out) {
    enum status status = buffer_reserve(out, size);
    size_t done = 0;
    if (status != STATUS_OK)
        return status;
    while (done < size) {
        ssize_t got =
            pread(snapshot->fd, out->data + out->size + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return atomic_load(&snapshot->is_withdrawn) ? STATUS_SLOW_CONSUMER
                                                        : STATUS_STORE_UNAVAILABLE;
        done += (size_t)got;
    }
    out->size += size;
    return STATUS_OK;
}

/* Copies the documents that the principal may read from the part's text. */
static enum status append_owned(struct slice text, struct slice owners,
                                const struct principal *principal, struct buffer *out) {
    struct snapshot_owner row;
    enum status status = STATUS_OK;
    bool is_first = true;
    while (status == STATUS_OK && owners.size > 0) {
        if (!snapshot_owner_read(&owners, &row) || row.document_bytes > text.size)
            return STATUS_INTERNAL_ERROR;
        struct slice document = {text.data, row.document_bytes};
        text = slice_from(text, row.document_bytes);
        if (text.size > 0)
            text = slice_from(text, 1);
        if (!principal_may_read(principal, &row.owner))
            continue;
        if (!is_first)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = buffer_append_slice(out, document);
        is_first = false;
    }
    return status;
}

static enum status count_owned(struct slice owners, const struct principal *principal,
                               size_t *count) {
    struct snapshot_owner row;
    *count = 0;
    while (owners.size > 0) {
        if (!snapshot_owner_read(&owners, &row))
            return STATUS_INTERNAL_ERROR;
        *count += principal_may_read(principal, &row.owner);
    }
    return STATUS_OK;
}

static enum status read_filtered(const struct snapshot *snapshot, const struct snapshot_part *part,
                                 const struct principal *principal, struct buffer *out,
                                 size_t *count) {
    struct buffer text, owners;
    buffer_init(&owners, part->owners_bytes);
    buffer_init(&text, part->text_bytes);
    enum status status =
        append_file(snapshot, part->offset + part->text_bytes, part->owners_bytes, &owners);
    if (status == STATUS_OK)
        status = count_owned(buffer_slice(&owners), principal, count);
    if (status == STATUS_OK && *count > 0)
        status = append_file(snapshot, part->offset, part->text_bytes, &text);
    if (status == STATUS_OK && *count > 0)
        status = append_owned(buffer_slice(&text), buffer_slice(&owners), principal, out);
    buffer_release(&text);
    buffer_release(&owners);
    return status;
}

static bool may_have(const struct snapshot *snapshot, const struct snapshot_part *part,
                     const uint32_t *keys, size_t key_count) {
    const uint32_t *owners = snapshot->owner_keys + part->first;
    for (size_t i = 0; i < part->count; i++)
        for (size_t key = 0; key < key_count; key++)
            if (owners[i] == keys[key])
                return true;
    return false;
}

size_t snapshot_part_next(const struct snapshot *snapshot, size_t part,
                          const struct principal *principal) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    size_t key_count = principal_keys(principal, keys);
    if (!principal->read_all)
        while (part < snapshot->part_count &&
               !may_have(snapshot, &snapshot->parts[part], keys, key_count))
            part++;
    return part;
}

enum status snapshot_part_read(const struct snapshot *snapshot, size_t index,
                               const struct principal *principal, struct buffer *out,
                               size_t *count) {
    assert(index < snapshot->part_count);
    const struct snapshot_part *part = &snapshot->parts[index];
    size_t begin = out->size;
    enum status status;
    if (principal->read_all) {
        *count = part->count;
        status = append_file(snapshot, part->offset, part->text_bytes, out);
    } else {
        status = read_filtered(snapshot, part, principal, out, count);
    }
    if (status != STATUS_OK) {
        buffer_truncate(out, begin);
        *count = 0;
    }
    return status;
}
