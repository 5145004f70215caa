/* Any bytes as a request for a token. What is minted is taken back, by its own server, for whom it
 * was minted. */
#include "api/mint.h"
#include "base/limits.h"
#include "fuzz.h"
#include "server/config.h"
#include "server/config_options.h"
#include "wire/json.h"

static const char *environment(const char *name) {
    return strcmp(name, "RUNTIME_SYNC_TOKEN_SIGNING_KEY") == 0 ? "0123456789abcdef0123456789abcdef"
                                                               : NULL;
}

static struct gate *make_gate(void) {
    static struct config config;
    static struct gate gate;
    struct config_error error;
    struct key_message message;
    require(config_load(&config, NULL, environment, NULL, 0, &error) == STATUS_OK);
    const struct gate_options options = config_gate_options(&config);
    require(gate_init(&gate, &options, &message) == STATUS_OK);
    return &gate;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct gate *gate;
    const struct json_limits limits = {1 << 20, 8};
    const struct mint_moment moment = {.now_ms = UINT64_C(1800000000000)};
    struct mint_reason reason;
    struct buffer out;
    if (!gate)
        gate = make_gate();
    struct buffer record;
    struct json_value event;
    buffer_init(&out, 1 << 20);
    buffer_init(&record, RECORD_EVENT_BYTES_MAX);
    struct object_writer writer = object_begin(&record);
    enum status status =
        mint(gate, (struct slice){(const char *)data, size}, &moment, &out, &reason, &writer);
    if (status == STATUS_OK) {
        /* Every token that is minted can be recorded. */
        require(object_end(&writer) == STATUS_OK);
        require(record.size <= RECORD_EVENT_BYTES_MAX / 2);
        require(json_parse(buffer_slice(&record), &limits, &event) == STATUS_OK);
        struct json_field token = {.name = SLICE("token")};
        struct slice text;
        const struct principal *who;
        require(json_read_object(buffer_slice(&out), &limits, &token, 1) == STATUS_OK);
        require(json_string_slice(token.value, &text));
        require(gate_admit_token(gate, text, moment.now_ms, &who, NULL) == STATUS_OK);
        principal_unref(who);
    } else {
        require(out.size == 0);
    }
    buffer_release(&out);
    buffer_release(&record);
    return 0;
}
