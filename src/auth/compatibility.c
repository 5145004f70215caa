#include "auth/compatibility.h"

#include <inttypes.h>

#include "wire/json.h"

static bool is_blank(struct slice text) {
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] != ' ' && text.data[i] != '\t')
            return false;
    return true;
}

static int compare(struct slice a, struct slice b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size > 0 ? memcmp(a.data, b.data, size) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

enum status compatibility_check(const struct compatibility_window *window,
                                const struct compatibility_client *client) {
    if (!window->is_enforced)
        return STATUS_OK;
    if (is_blank(client->client_build_id))
        return STATUS_INVALID_CLIENT_BUILD;
    if (!slice_equal(client->protocol_version, window->protocol_version))
        return STATUS_UNSUPPORTED_PROTOCOL_VERSION;
    if (!client->has_schema_version || client->schema_version < window->schema_version_min ||
        client->schema_version > window->schema_version_max)
        return STATUS_UNSUPPORTED_SCHEMA_VERSION;
    if (compare(client->client_build_id, window->client_build_id_min) < 0)
        return STATUS_UPGRADE_REQUIRED;
    if (window->client_build_id_max.size > 0 &&
        compare(client->client_build_id, window->client_build_id_max) > 0)
        return STATUS_UNSUPPORTED_CLIENT_BUILD;
    return STATUS_OK;
}

static enum status write_member(struct buffer *out, const char *name, struct slice text) {
    enum status status = buffer_printf(out, ",\"%s\":", name);
    if (status != STATUS_OK)
        return status;
    return text.size > 0 ? json_write_string(out, text) : buffer_append_slice(out, SLICE("null"));
}

bool compatibility_refuses(enum status status) {
    return status == STATUS_INVALID_CLIENT_BUILD || status == STATUS_UNSUPPORTED_PROTOCOL_VERSION ||
           status == STATUS_UNSUPPORTED_SCHEMA_VERSION || status == STATUS_UPGRADE_REQUIRED ||
           status == STATUS_UNSUPPORTED_CLIENT_BUILD;
}

enum status compatibility_write_json(const struct compatibility_window *window, enum status refusal,
                                     struct buffer *out) {
    size_t begin = out->size;
    enum status status = buffer_printf(out, "{\"code\":\"%s\"", status_code(refusal));
    if (status == STATUS_OK)
        status = write_member(out, "message", slice_of(status_message(refusal)));
    if (status == STATUS_OK)
        status = buffer_printf(out, ",\"retryable\":false,\"upgrade_required\":true,"
                                    "\"surface\":\"" COMPATIBILITY_SURFACE "\"");
    if (status == STATUS_OK)
        status = write_member(out, "protocol_version", window->protocol_version);
    if (status == STATUS_OK)
        status = write_member(out, "min_client_build_id", window->client_build_id_min);
    if (status == STATUS_OK)
        status = write_member(out, "max_client_build_id", window->client_build_id_max);
    if (status == STATUS_OK)
        status = buffer_printf(
            out, ",\"min_schema_version\":%" PRIu64 ",\"max_schema_version\":%" PRIu64 "}",
            window->schema_version_min, window->schema_version_max);
    if (status != STATUS_OK)
        buffer_truncate(out, begin);
    return status;
}
