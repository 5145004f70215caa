/* Any bytes as rows of owners: reading ends, stays inside, and what was read writes back to the
 * same bytes. */
#include "delivery/snapshot/snapshot.h"
#include "fuzz.h"

static bool is_inside(struct slice part, struct slice whole) {
    return part.data == NULL ||
           (part.data >= whole.data && part.data + part.size <= whole.data + whole.size);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice rows = {(const char *)data, size};
    struct slice rest = rows;
    struct snapshot_owner row;
    while (snapshot_owner_read(&rest, &row)) {
        struct buffer written;
        struct snapshot_owner again;
        require(is_inside(row.owner.user_id, rows) && is_inside(row.owner.guest_scope, rows) &&
                is_inside(row.owner.org_id, rows));
        buffer_init(&written, 1u << 20);
        require(snapshot_owner_write(&written, &row) == STATUS_OK);
        struct slice text = buffer_slice(&written);
        require(snapshot_owner_read(&text, &again) && text.size == 0);
        require(again.document_bytes == row.document_bytes);
        require((again.owner.user_id.data == NULL) == (row.owner.user_id.data == NULL));
        require(slice_equal(again.owner.user_id, row.owner.user_id));
        require(slice_equal(again.owner.guest_scope, row.owner.guest_scope));
        require(slice_equal(again.owner.org_id, row.owner.org_id));
        buffer_release(&written);
    }
    return 0;
}
