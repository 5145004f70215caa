#include "delivery/snapshot/snapshot_owner.h"

#define TEXT_COUNT 3
#define ABSENT     UINT16_MAX

struct row_head {
    uint32_t document_bytes;
    uint16_t sizes[TEXT_COUNT];
    uint16_t unused; /* so that no padding is written */
};

enum status snapshot_owner_write(struct buffer *out, const struct snapshot_owner *row) {
    const struct slice texts[TEXT_COUNT] = {row->owner.user_id, row->owner.guest_scope,
                                            row->owner.org_id};
    struct row_head head = {.document_bytes = row->document_bytes};
    size_t size = sizeof(head);
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        if (texts[i].size >= ABSENT)
            return STATUS_INTERNAL_ERROR;
        head.sizes[i] = texts[i].data ? (uint16_t)texts[i].size : ABSENT;
        size += texts[i].size;
    }
    enum status status = buffer_reserve(out, size);
    if (status == STATUS_OK)
        status = buffer_append(out, &head, sizeof(head));
    for (size_t i = 0; status == STATUS_OK && i < TEXT_COUNT; i++)
        status = buffer_append_slice(out, texts[i]);
    return status;
}

bool snapshot_owner_read(struct slice *rows, struct snapshot_owner *row) {
    struct row_head head;
    struct slice *const texts[TEXT_COUNT] = {&row->owner.user_id, &row->owner.guest_scope,
                                             &row->owner.org_id};
    if (rows->size < sizeof(head))
        return false;
    memcpy(&head, rows->data, sizeof(head));
    *rows = slice_from(*rows, sizeof(head));
    row->document_bytes = head.document_bytes;
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        bool is_absent = head.sizes[i] == ABSENT;
        size_t size = is_absent ? 0 : head.sizes[i];
        if (size > rows->size)
            return false;
        *texts[i] = (struct slice){is_absent ? NULL : rows->data, size};
        *rows = slice_from(*rows, size);
    }
    return true;
}
