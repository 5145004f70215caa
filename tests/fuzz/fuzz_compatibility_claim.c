/* Two lines: the query of a socket and the payload of its join. What comes out fits its maximum,
 * and the gate has one answer to it, the same each time; open, it lets everybody in. */
#include "auth/compatibility.h"
#include "fuzz.h"

static enum status ask(struct slice query, struct slice payload, bool is_enforced) {
    const struct json_limits limits = {1 << 16, 16};
    const struct compatibility_window window = {
        .is_enforced = is_enforced,
        .protocol_version = SLICE("khala.ws.v1"),
        .client_build_id_min = SLICE("20260101T000000Z"),
        .schema_version_min = 1,
        .schema_version_max = 2,
    };
    struct compatibility_claim claim = {.schema_version.size = 0};
    struct json_value value;
    compatibility_claim_query(&claim, query);
    if (json_parse(payload, &limits, &value) == STATUS_OK)
        compatibility_claim_json(&claim, value);
    struct compatibility_client client = compatibility_claim_client(&claim);
    require(client.client_build_id.size <= COMPATIBILITY_TEXT_BYTES_MAX);
    require(client.protocol_version.size <= COMPATIBILITY_TEXT_BYTES_MAX);
    enum status status = compatibility_check(&window, &client);
    if (is_enforced && status == STATUS_OK)
        require(client.has_schema_version && client.schema_version >= 1 &&
                client.schema_version <= 2 &&
                slice_equal(client.protocol_version, window.protocol_version));
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *line = size > 0 ? memchr(data, '\n', size) : NULL;
    if (!line)
        return 0;
    struct slice query = {(const char *)data, (size_t)(line - (const char *)data)};
    struct slice payload = {line + 1, size - query.size - 1};
    require(ask(query, payload, true) == ask(query, payload, true));
    require(ask(query, payload, false) == STATUS_OK);
    return 0;
}
