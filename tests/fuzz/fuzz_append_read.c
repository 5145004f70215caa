/* What is read as a request keeps the promises of its fields; what is refused has a reason and a
 * message; and reading it through the two doors, alone or as a batch item, agrees. */
#include "authority/append_read.h"
#include "authority/run_report.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "topic/topic_name.h"

#define BYTES_MAX       65536
#define ARENA_BYTES_MAX ((size_t)8 << 20)

static void check_text(struct slice text, size_t bytes_max) {
    if (!text.data)
        return;
    require(text.size > 0 && text.size <= bytes_max);
    require(utf8_valid(text) && !utf8_has_control(text) && !utf8_has_outer_space(text));
}

/* Canonical: written again it is the same bytes, and it hashes to what the request says. */
static void check_object(struct slice text, const uint8_t *digest) {
    if (!text.data)
        return;
    struct json_limits limits = {6 * BYTES_MAX + 64, JSON_DEPTH_MAX};
    struct json_value value;
    require(json_parse(text, &limits, &value) == STATUS_OK && value.kind == JSON_KIND_OBJECT);
    struct canonical_scratch scratch;
    struct payload_hash hash;
    canonical_scratch_init(&scratch, text.size);
    require(payload_hash(value, &scratch, &hash) == STATUS_OK);
    require(slice_equal(buffer_slice(&scratch.text), text));
    require(!digest || memcmp(hash.digest, digest, SHA256_BYTES) == 0);
    canonical_scratch_release(&scratch);
}

static void check_taken(const struct append_request *request) {
    require(request->kind < APPEND_KIND_COUNT && !request->refusal.message);
    bool is_creation = request->kind == APPEND_RUN_CREATE || request->kind == APPEND_WORKER_CREATE;
    check_text(request->event_type, APPEND_TYPE_BYTES_MAX);
    check_text(request->idempotency_key, APPEND_IDEMPOTENCY_BYTES_MAX);
    check_text(request->owner.user_id, APPEND_ID_BYTES_MAX);
    check_text(request->owner.guest_scope, APPEND_ID_BYTES_MAX);
    check_text(request->owner.org_id, APPEND_ID_BYTES_MAX);
    check_text(request->worker_id, APPEND_ID_BYTES_MAX);
    check_text(request->thread_id, APPEND_ID_BYTES_MAX);
    check_text(request->parent_run_id, APPEND_ID_BYTES_MAX);
    check_text(request->title, RUN_TITLE_BYTES_MAX);
    check_text(request->adapter, APPEND_ID_BYTES_MAX);
    require(!(request->owner.user_id.data && request->owner.guest_scope.data));
    require(is_creation || request->event_type.data);
    require(!request->has_event_id || uuid7_valid(&request->event_id));
    require(!request->has_expected_seq || request->expected_previous_seq <= JSON_INTEGER_MAX);
    check_object(request->metadata, NULL);
    require(request->kind != APPEND_RUN_CREATE || request->metadata.size <= RUN_METADATA_BYTES_MAX);
    require(request->kind != APPEND_RUN_EVENT || request->metadata.size <= RUN_METADATA_BYTES_MAX);
    if (!is_creation && request->kind != APPEND_WORKER_STATUS) {
        require(request->payload.data != NULL);
        check_object(request->payload, request->payload_hash);
    }
    if (request->kind == APPEND_TOPIC_EVENT)
        require(topic_name_check(request->entity_id) == STATUS_OK);
    else
        check_text(request->entity_id, APPEND_ID_BYTES_MAX);
}

static void check_request(enum status status, const struct append_request *request) {
    require(status == request->status);
    if (status == STATUS_OK)
        check_taken(request);
    else if (status == STATUS_INVALID_REQUEST)
        require(request->refusal.message && *request->refusal.message);
    else
        require(status == STATUS_INVALID_TOPIC || status == STATUS_PAYLOAD_TOO_LARGE ||
                status == STATUS_JSON_DUPLICATE_KEY || status == STATUS_JSON_NUMBER_OUT_OF_RANGE);
}

/* An item read again as the body of its own endpoint is the same request. */
static void check_doors_agree(struct append_parser *reader, struct json_value value,
                              struct arena *arena, const struct append_request *item) {
    struct append_request alone;
    require(append_read(reader, item->kind, item->entity_id, value, arena, &alone) == STATUS_OK);
    require(slice_equal(alone.event_type, item->event_type));
    require(slice_equal(alone.payload, item->payload));
    require(slice_equal(alone.idempotency_key, item->idempotency_key));
    require(memcmp(alone.payload_hash, item->payload_hash, SHA256_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_limits limits = {BYTES_MAX, 64};
    struct json_value value;
    if (json_parse((struct slice){(const char *)data, size}, &limits, &value) != STATUS_OK)
        return 0;
    struct append_parser reader;
    struct arena arena;
    struct append_request request;
    append_parser_init(&reader, BYTES_MAX);
    arena_init(&arena, ARENA_BYTES_MAX);
    enum status status = append_read_item(&reader, value, &arena, &request);
    check_request(status, &request);
    if (status == STATUS_OK)
        check_doors_agree(&reader, value, &arena, &request);
    for (unsigned kind = 0; kind < APPEND_KIND_COUNT; kind++) {
        struct slice id = SLICE("some id");
        status = append_read(&reader, (enum append_kind)kind, id, value, &arena, &request);
        check_request(status, &request);
    }
    arena_release(&arena);
    append_parser_release(&reader);
    return 0;
}
