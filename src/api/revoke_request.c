#include "api/revoke_request.h"

#include "wire/json.h"

#define DEPTH_MAX 4

/* The first fields are the lists, in the order of enum revocation_kind. */
enum field { FIELD_REASON = REVOCATION_KIND_COUNT, FIELD_COUNT };

static bool decode(struct revoke_request *request, struct json_value value, size_t bytes_max,
                   struct slice *text) {
    struct buffer *texts = &request->texts;
    size_t begin = texts->size;
    /* The buffer has room: a decoded text is never longer than the request. */
    if (value.kind != JSON_KIND_STRING || json_string_decode(value, texts) != STATUS_OK)
        return false;
    *text = (struct slice){texts->data + begin, texts->size - begin};
    return text->size > 0 && text->size <= bytes_max;
}

static bool read_list(struct revoke_request *request, enum revocation_kind kind,
                      struct json_value list) {
    struct json_value element;
    if (list.kind == JSON_KIND_NULL)
        return true;
    if (list.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator elements = json_iterate(list);
    while (json_next_element(&elements, &element)) {
        struct store_revocation *revocation = &request->revocations[request->count];
        if (request->count == REVOKE_IDS_MAX)
            return false;
        *revocation = (struct store_revocation){.kind = kind, .reason = request->reason};
        if (!decode(request, element, REVOCATION_ID_BYTES_MAX, &revocation->id))
            return false;
        request->count++;
        request->counts[kind]++;
    }
    return true;
}

static bool knows_all(struct slice text, const struct json_limits *limits,
                      const struct json_field *fields) {
    struct json_value object, name, value;
    size_t known = 0;
    size_t count = 0;
    if (json_parse(text, limits, &object) != STATUS_OK)
        return false;
    for (size_t i = 0; i < FIELD_COUNT; i++)
        known += fields[i].present;
    struct json_iterator members = json_iterate(object);
    while (json_next_member(&members, &name, &value))
        count++;
    return count == known;
}

static enum status read_fields(struct revoke_request *request, const struct json_field *fields,
                               const char **message) {
    const struct json_field *reason = &fields[FIELD_REASON];
    *message = "The reason is text of 1 to 512 bytes.";
    if (reason->present && reason->value.kind != JSON_KIND_NULL &&
        !decode(request, reason->value, REVOKE_REASON_BYTES_MAX, &request->reason))
        return STATUS_INVALID_REQUEST;
    *message =
        "Ids are texts of 1 to 640 bytes in the lists session_ids, device_ids and jtis, at most "
        "1000 of them.";
    for (size_t kind = 0; kind < REVOCATION_KIND_COUNT; kind++)
        if (fields[kind].present &&
            !read_list(request, (enum revocation_kind)kind, fields[kind].value))
            return STATUS_INVALID_REQUEST;
    *message = "Nothing is named that could be revoked: session_ids, device_ids or jtis.";
    return request->count > 0 ? STATUS_OK : STATUS_INVALID_REQUEST;
}

enum status revoke_request_read(struct slice text, struct revoke_request *request,
                                const char **message) {
    const struct json_limits limits = {REVOKE_BYTES_MAX, DEPTH_MAX};
    struct json_field fields[FIELD_COUNT] = {
        [REVOCATION_SESSION] = {.name = SLICE("session_ids")},
        [REVOCATION_DEVICE] = {.name = SLICE("device_ids")},
        [REVOCATION_TOKEN] = {.name = SLICE("jtis")},
        [FIELD_REASON] = {.name = SLICE("reason")},
    };
    request->count = 0;
    memset(request->counts, 0, sizeof(request->counts));
    request->reason = (struct slice){NULL, 0};
    buffer_init(&request->texts, text.size + 1);
    *message = NULL;
    enum status status = json_read_object(text, &limits, fields, FIELD_COUNT);
    if (status != STATUS_OK)
        return status;
    *message = "It has session_ids, device_ids, jtis and reason, and no other members.";
    if (!knows_all(text, &limits, fields))
        return STATUS_INVALID_REQUEST;
    status = buffer_reserve(&request->texts, text.size + 1);
    if (status == STATUS_OK)
        status = read_fields(request, fields, message);
    if (status != STATUS_OK)
        revoke_request_release(request);
    return status;
}

void revoke_request_release(struct revoke_request *request) {
    buffer_release(&request->texts);
}
