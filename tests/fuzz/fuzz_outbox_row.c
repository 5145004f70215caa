/* The input is the texts of an outbox row, one after another, each behind a byte that tells whether
 * it is there, and ended by a zero byte. A row that is taken keeps the promises of its fields, and
 * only its payload can add members to the body. */
#include "authority/outbox.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "topic/topic_name.h"

#define ROW_BYTES_MAX   65536
#define ARENA_BYTES_MAX ((size_t)8 << 20)

/* PostgreSQL keeps only sound UTF-8 without zero bytes. */
static struct slice next_text(struct slice *input) {
    struct slice text = {0};
    if (input->size == 0)
        return text;
    bool is_there = (*input->data & 1) != 0;
    const char *begin = input->data + 1;
    size_t left = input->size - 1;
    const char *end = left > 0 ? memchr(begin, '\0', left) : NULL;
    size_t used = end ? (size_t)(end - begin) : left;
    *input = (struct slice){begin + used + (end ? 1 : 0), left - used - (end ? 1 : 0)};
    if (is_there && utf8_valid((struct slice){begin, used}))
        text = (struct slice){begin, used};
    return text;
}

static void check_same(struct slice stored, struct slice given) {
    require(!stored.data || slice_equal(stored, given));
}

static void check_taken(const struct append_request *request, const struct store_outbox_row *row) {
    require(request->status == STATUS_OK && request->payload.data);
    check_same(request->event_type, row->event_type);
    check_same(request->idempotency_key, row->idempotency_key);
    check_same(request->owner.user_id, row->owner.user_id);
    check_same(request->owner.guest_scope, row->owner.guest_scope);
    check_same(request->owner.org_id, row->owner.org_id);
    require(!(request->owner.user_id.data && request->owner.guest_scope.data));
    require(!request->has_event_id || uuid7_valid(&request->event_id));
    require(!request->has_expected_seq);
    if (request->kind == APPEND_TOPIC_EVENT)
        require(topic_name_check(request->entity_id) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > ROW_BYTES_MAX)
        return 0;
    struct slice input = {(const char *)data, size};
    struct store_outbox_row row = {.id = 1};
    row.kind = next_text(&input);
    row.target = next_text(&input);
    row.event_type = next_text(&input);
    row.payload = next_text(&input);
    row.event_id = next_text(&input);
    row.idempotency_key = next_text(&input);
    row.owner.user_id = next_text(&input);
    row.owner.guest_scope = next_text(&input);
    row.owner.org_id = next_text(&input);
    struct outbox_row_reader reader;
    struct arena arena;
    struct append_request request = {.kind = APPEND_KIND_COUNT};
    outbox_row_reader_init(&reader, ROW_BYTES_MAX);
    arena_init(&arena, ARENA_BYTES_MAX);
    enum status status = outbox_row_read(&reader, &row, &arena, &request);
    require(status != STATUS_OUT_OF_MEMORY);
    if (status == STATUS_OK)
        check_taken(&request, &row);
    arena_release(&arena);
    outbox_row_reader_release(&reader);
    return 0;
}
