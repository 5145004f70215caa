#include "api/key_request.h"

#include "wire/json.h"

_Static_assert(KEY_OVERLAP_S_MAX == 2592000, "the message below names the limit");

/* False: the body is no object with these members alone. */
static bool read_members(struct slice body, struct json_field *fields, size_t count) {
    const struct json_limits limits = {OPERATOR_KEY_BODY_BYTES_MAX, 4};
    struct json_value object, name, value;
    size_t present = 0, members = 0;
    if (json_parse(body, &limits, &object) != STATUS_OK || object.kind != JSON_KIND_OBJECT ||
        json_read_members(object, fields, count) != STATUS_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        present += fields[i].present;
    struct json_iterator iterator = json_iterate(object);
    while (json_next_member(&iterator, &name, &value))
        members++;
    return members == present;
}

const char *key_request_read_new(struct slice body, struct key_request *request) {
    struct json_field fields[] = {{.name = SLICE("name")}, {.name = SLICE("role")}};
    struct slice name, role;
    *request = (struct key_request){.role = KEY_ROLE_NONE};
    if (!read_members(body, fields, 2) || !fields[0].present || !fields[1].present ||
        !json_string_slice(fields[0].value, &name) || !json_string_slice(fields[1].value, &role))
        return "The body is {\"name\":…,\"role\":…}.";
    const char *problem = operator_key_name_problem(name);
    if (problem)
        return problem;
    if (!key_role_parse(role, &request->role))
        return "The role of a key is admin, append, mint, read or metrics.";
    memcpy(request->name, name.data, name.size);
    request->name_size = name.size;
    return NULL;
}

const char *key_request_read_rotation(struct slice body, struct key_request *request) {
    struct json_field field = {.name = SLICE("overlap_seconds")};
    *request = (struct key_request){.overlap_s = KEY_OVERLAP_S};
    if (body.size == 0)
        return NULL;
    if (!read_members(body, &field, 1))
        return "The body is empty or {\"overlap_seconds\":…}.";
    if (field.present && (!json_u64(field.value, KEY_OVERLAP_S_MAX, &request->overlap_s)))
        return "overlap_seconds is a whole number from 0 to 2592000.";
    return NULL;
}
