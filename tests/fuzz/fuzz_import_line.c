/* Any bytes as a line of an import. A line that is read has the hashes of its event; a refused line
 * has a reason; and the request of a line has the event's id, its entity and its link. */
#include "authority/chain_hash.h"
#include "authority/import/import_check.h"
#include "fuzz.h"

#define BYTES_MAX       65536
#define ARENA_BYTES_MAX ((size_t)8 << 20)

static void check_event(const struct store_event *event, struct buffer *scratch) {
    uint8_t digest[SHA256_BYTES];
    require(event->seq > 0 && event->entity_kind < ENTITY_KIND_COUNT);
    require(event->entity_id.size > 0 && event->type.size > 0);
    require(uuid7_valid(&event->event_id) && uuid7_valid(&event->cursor));
    require(event->recorded_at_ms <= uuid7_timestamp_ms(&event->cursor));
    require(chain_hash(event, scratch, digest) == STATUS_OK);
    require(memcmp(digest, event->chain_hash, SHA256_BYTES) == 0);
}

static void check_request(struct json_value value, const struct import_line *line,
                          struct arena *arena) {
    struct append_parser parser;
    struct append_request request;
    append_parser_init(&parser, BYTES_MAX);
    enum status status = import_request_read(&parser, value, line, arena, &request);
    require(status == STATUS_OK || status == STATUS_IMPORT_REFUSED ||
            status == STATUS_OUT_OF_MEMORY);
    if (status == STATUS_OK) {
        require(request.import && request.import->seq == line->event.seq);
        require(request.has_event_id && !request.idempotency_key.data && !request.has_expected_seq);
        require(uuid_compare(&request.event_id, &line->event.event_id) == 0);
    }
    append_parser_release(&parser);
}

/* A line is checked as the first of its file, and must begin its entity. */
static void check_order(const struct import_line *line, struct slice text) {
    struct import_check order;
    const char *reason = NULL;
    import_check_init(&order);
    enum status status = import_check_line(&order, line, text, &reason);
    require(status == STATUS_OK || (status == STATUS_IMPORT_REFUSED && reason));
    import_check_begin_part(&order, 0);
    if (status == STATUS_OK && !line->is_manifest &&
        import_check_link(&order, &line->event, &reason) == STATUS_OK)
        require(line->event.seq == 1);
    import_check_release(&order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct json_limits limits = {BYTES_MAX, JSON_DEPTH_MAX};
    struct slice text = {(const char *)data, size};
    struct json_value value;
    struct import_line line;
    const char *reason = NULL;
    if (size > BYTES_MAX || json_parse(text, &limits, &value) != STATUS_OK)
        return 0;
    struct arena arena;
    struct buffer scratch;
    arena_init(&arena, ARENA_BYTES_MAX);
    buffer_init(&scratch, CHAIN_HASH_SCRATCH_BYTES);
    enum status status = import_line_read(value, &scratch, &arena, &line, &reason);
    if (status == STATUS_OK && !line.is_manifest) {
        check_event(&line.event, &scratch);
        check_request(value, &line, &arena);
    } else if (status != STATUS_OK) {
        require(status == STATUS_OUT_OF_MEMORY || reason);
    }
    if (status == STATUS_OK)
        check_order(&line, text);
    arena_release(&arena);
    buffer_release(&scratch);
    return 0;
}
