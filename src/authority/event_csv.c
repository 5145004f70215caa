#include "authority/event_csv.h"

#include "wire/canonical.h"
#include "wire/csv.h"

#define COLUMN_COUNT    15
#define NUMBER_SIZE_MAX 20

/* The texts that an event's columns are made of and that the row itself does not hold. */
struct columns {
    char event_id[UUID_TEXT_SIZE];
    char cursor[EVENT_CURSOR_SIZE_MAX];
    char payload_hash[PAYLOAD_HASH_SIZE];
    char prev_chain_hash[PAYLOAD_HASH_SIZE];
    char chain_hash[PAYLOAD_HASH_SIZE];
    struct buffer numbers;
    char number_memory[3 * NUMBER_SIZE_MAX];
};

static struct slice number(struct columns *columns, uint64_t value) {
    size_t begin = columns->numbers.size;
    enum status status = buffer_append_u64(&columns->numbers, value);
    (void)status; /* there is room for all three */
    return slice_from(buffer_slice(&columns->numbers), begin);
}

static enum status write_fields(struct buffer *out, const struct slice fields[COLUMN_COUNT]) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < COLUMN_COUNT; i++) {
        if (i > 0)
            status = csv_write_comma(out);
        if (status == STATUS_OK)
            status = csv_write_field(out, fields[i]);
    }
    return status == STATUS_OK ? csv_write_end(out) : status;
}

enum status event_write_csv(struct buffer *out, const struct store_event *event) {
    struct columns columns;
    struct event_cursor cursor = event_cursor_of(&event->cursor);
    size_t begin = out->size;
    columns.numbers = buffer_over(columns.number_memory, sizeof(columns.number_memory));
    uuid_format(&event->event_id, columns.event_id);
    payload_hash_text(event->payload_hash, columns.payload_hash);
    payload_hash_text(event->prev_chain_hash, columns.prev_chain_hash);
    payload_hash_text(event->chain_hash, columns.chain_hash);
    const struct slice fields[COLUMN_COUNT] = {
        {columns.event_id, UUID_TEXT_SIZE},
        {columns.cursor, event_cursor_encode(&cursor, columns.cursor)},
        slice_of(entity_kind_name(event->entity_kind)),
        event->entity_id,
        number(&columns, event->seq),
        event->type,
        event->payload,
        slice_of(columns.payload_hash),
        event->owner.user_id,
        event->owner.guest_scope,
        event->owner.org_id,
        number(&columns, event->recorded_at_ms),
        slice_of(columns.prev_chain_hash),
        slice_of(columns.chain_hash),
        number(&columns, event->chain_version),
    };
    enum status status = write_fields(out, fields);
    if (status != STATUS_OK)
        buffer_truncate(out, begin);
    return status;
}
