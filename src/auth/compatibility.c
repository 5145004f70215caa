#include "auth/compatibility.h"

#include "base/decimal.h"
#include "wire/http1_request.h"
#include "wire/object_writer.h"

#define FIELD_COUNT 3

enum status compatibility_check(const struct compatibility_window *window,
                                const struct compatibility_client *client) {
    if (!window->is_enforced)
        return STATUS_OK;
    const struct slice build = client->client_build_id;
    size_t blanks = 0;
    while (blanks < build.size && (build.data[blanks] == ' ' || build.data[blanks] == '\t'))
        blanks++;
    if (blanks == build.size)
        return STATUS_INVALID_CLIENT_BUILD;
    if (!slice_equal(client->protocol_version, window->protocol_version))
        return STATUS_UNSUPPORTED_PROTOCOL_VERSION;
    if (!client->has_schema_version || client->schema_version < window->schema_version_min ||
        client->schema_version > window->schema_version_max)
        return STATUS_UNSUPPORTED_SCHEMA_VERSION;
    if (slice_compare(client->client_build_id, window->client_build_id_min) < 0)
        return STATUS_UPGRADE_REQUIRED;
    if (window->client_build_id_max.size > 0 &&
        slice_compare(client->client_build_id, window->client_build_id_max) > 0)
        return STATUS_UNSUPPORTED_CLIENT_BUILD;
    return STATUS_OK;
}

/* An empty text is written as null. */
static struct slice given(struct slice text) {
    return text.size > 0 ? text : (struct slice){NULL, 0};
}

bool compatibility_refuses(enum status status) {
    return status == STATUS_INVALID_CLIENT_BUILD || status == STATUS_UNSUPPORTED_PROTOCOL_VERSION ||
           status == STATUS_UNSUPPORTED_SCHEMA_VERSION || status == STATUS_UPGRADE_REQUIRED ||
           status == STATUS_UNSUPPORTED_CLIENT_BUILD;
}

enum status compatibility_write_json(const struct compatibility_window *window, enum status refusal,
                                     struct buffer *out) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(refusal)));
    object_text(&object, SLICE("message"), slice_of(status_message(refusal)));
    object_json(&object, SLICE("retryable"), SLICE("false"));
    object_json(&object, SLICE("upgrade_required"), SLICE("true"));
    object_text(&object, SLICE("surface"), SLICE(COMPATIBILITY_SURFACE));
    object_text(&object, SLICE("protocol_version"), given(window->protocol_version));
    object_text(&object, SLICE("min_client_build_id"), given(window->client_build_id_min));
    object_text(&object, SLICE("max_client_build_id"), given(window->client_build_id_max));
    object_number(&object, SLICE("min_schema_version"), window->schema_version_min);
    object_number(&object, SLICE("max_schema_version"), window->schema_version_max);
    return object_end(&object);
}

/* ---- claims ---- */

static struct compatibility_text *texts_of(struct compatibility_claim *claim, size_t index) {
    struct compatibility_text *texts[FIELD_COUNT] = {
        &claim->client_build_id, &claim->protocol_version, &claim->schema_version};
    return texts[index];
}

static const struct slice names[FIELD_COUNT] = {SLICE("client_build_id"), SLICE("protocol_version"),
                                                SLICE("schema_version")};

void compatibility_claim_query(struct compatibility_claim *claim, struct slice query) {
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        struct compatibility_text *text = texts_of(claim, i);
        struct buffer value = buffer_over(text->text, COMPATIBILITY_TEXT_BYTES_MAX);
        bool found = false;
        enum status status = http1_query_find(query, names[i], &value, &found);
        if (status != STATUS_OK)
            text->size = 0;
        else if (found)
            text->size = value.size;
    }
}

void compatibility_claim_json(struct compatibility_claim *claim, struct json_value object) {
    struct json_field fields[FIELD_COUNT] = {
        {.name = names[0]}, {.name = names[1]}, {.name = names[2]}};
    if (object.kind != JSON_KIND_OBJECT)
        return;
    bool is_read = json_read_members(object, fields, FIELD_COUNT) == STATUS_OK;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        struct compatibility_text *text = texts_of(claim, i);
        struct json_value value = fields[i].value;
        struct buffer decoded = buffer_over(text->text, COMPATIBILITY_TEXT_BYTES_MAX);
        enum status status = STATUS_INVALID_REQUEST;
        if (is_read && (!fields[i].present || value.kind == JSON_KIND_NULL))
            continue;
        if (is_read && value.kind == JSON_KIND_STRING)
            status = json_string_decode(value, &decoded);
        else if (is_read && value.kind == JSON_KIND_NUMBER)
            status = buffer_append_slice(&decoded, value.raw);
        text->size = status == STATUS_OK ? decoded.size : 0;
    }
}

static struct slice slice_of_text(const struct compatibility_text *text) {
    return (struct slice){text->text, text->size};
}

struct compatibility_client compatibility_claim_client(const struct compatibility_claim *claim) {
    struct compatibility_client client = {.client_build_id = slice_of_text(&claim->client_build_id),
                                          .protocol_version =
                                              slice_of_text(&claim->protocol_version)};
    client.has_schema_version =
        decimal_parse_u64(slice_of_text(&claim->schema_version), &client.schema_version);
    return client;
}
