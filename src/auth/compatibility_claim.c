#include "auth/compatibility_claim.h"

#include "base/decimal.h"
#include "wire/http1_request.h"

#define FIELD_COUNT 3

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

static void take_value(struct compatibility_text *text, struct json_value value) {
    struct buffer decoded = buffer_over(text->text, COMPATIBILITY_TEXT_BYTES_MAX);
    enum status status = STATUS_INVALID_REQUEST;
    if (value.kind == JSON_KIND_STRING)
        status = json_string_decode(value, &decoded);
    else if (value.kind == JSON_KIND_NUMBER)
        status = buffer_append_slice(&decoded, value.raw);
    text->size = status == STATUS_OK ? decoded.size : 0;
}

void compatibility_claim_json(struct compatibility_claim *claim, struct json_value object) {
    struct json_field fields[FIELD_COUNT] = {
        {.name = names[0]}, {.name = names[1]}, {.name = names[2]}};
    if (object.kind != JSON_KIND_OBJECT)
        return;
    bool is_read = json_read_members(object, fields, FIELD_COUNT) == STATUS_OK;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!is_read)
            texts_of(claim, i)->size = 0;
        else if (fields[i].present && fields[i].value.kind != JSON_KIND_NULL)
            take_value(texts_of(claim, i), fields[i].value);
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
