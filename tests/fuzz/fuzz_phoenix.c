/* A message that decodes has parts within their limits, and encodes to a text that decodes to
 * the same parts and encodes to itself. */
#include "base/utf8.h"
#include "fuzz.h"
#include "wire/phoenix.h"

#define BYTES_MAX 65536

static const struct json_limits input_limits = {BYTES_MAX, 64};
static const struct json_limits output_limits = {2 * BYTES_MAX, 66};

static bool same_reference(struct slice a, struct slice b) {
    return (a.data == NULL) == (b.data == NULL) && slice_equal(a, b);
}

static void within_limits(const struct phoenix_message *message) {
    require(message->join_ref.size <= PHOENIX_REF_BYTES_MAX);
    require(message->ref.size <= PHOENIX_REF_BYTES_MAX);
    require(message->topic.size <= PHOENIX_TOPIC_BYTES_MAX && message->topic.data);
    require(message->event.size <= PHOENIX_EVENT_BYTES_MAX && message->event.data);
    require(utf8_valid(message->topic) && utf8_valid(message->event));
}

static void message_round_trip(const struct phoenix_message *message) {
    struct phoenix_address address = {message->join_ref, message->ref, message->topic};
    struct buffer out, again;
    buffer_init(&out, 2 * BYTES_MAX);
    buffer_init(&again, 2 * BYTES_MAX);
    require(phoenix_write(&out, &address, message->event, message->payload.raw) == STATUS_OK);
    struct phoenix_message back;
    require(phoenix_decode(buffer_slice(&out), &output_limits, &back) == STATUS_OK);
    require(same_reference(back.join_ref, message->join_ref));
    require(same_reference(back.ref, message->ref));
    require(slice_equal(back.topic, message->topic) && slice_equal(back.event, message->event));
    require(back.payload.kind == message->payload.kind);
    require(slice_equal(back.payload.raw, message->payload.raw));
    struct phoenix_address back_address = {back.join_ref, back.ref, back.topic};
    require(phoenix_write(&again, &back_address, back.event, back.payload.raw) == STATUS_OK);
    require(slice_equal(buffer_slice(&again), buffer_slice(&out)));
    buffer_release(&out);
    buffer_release(&again);
}

static void reply_round_trip(const struct phoenix_message *message, bool ok) {
    struct phoenix_address address = {message->join_ref, message->ref, message->topic};
    struct buffer out;
    buffer_init(&out, 2 * BYTES_MAX);
    require(phoenix_write_reply(&out, &address, ok, message->payload.raw) == STATUS_OK);
    struct phoenix_message back;
    require(phoenix_decode(buffer_slice(&out), &output_limits, &back) == STATUS_OK);
    require(same_reference(back.ref, message->ref) && slice_equal(back.topic, message->topic));
    struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("response")}};
    require(json_read_members(back.payload, fields, 2) == STATUS_OK);
    require(json_string_is(fields[0].value, ok ? SLICE("ok") : SLICE("error")));
    require(slice_equal(fields[1].value.raw, message->payload.raw));
    buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct phoenix_message message;
    struct json_value value;
    enum status status = phoenix_decode(text, &input_limits, &message);
    enum status json_status = json_parse(text, &input_limits, &value);
    if (json_status != STATUS_OK)
        require(status == json_status);
    else
        require(status == STATUS_OK || status == STATUS_INVALID_MESSAGE);
    if (status != STATUS_OK)
        return 0;
    within_limits(&message);
    message_round_trip(&message);
    reply_round_trip(&message, true);
    reply_round_trip(&message, false);
    return 0;
}
