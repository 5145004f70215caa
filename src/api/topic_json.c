#include "api/topic_json.h"

#include "store/enforced_window.h"
#include "wire/object_writer.h"

#define WINDOW_BYTES_MAX 160

/* A built-in topic has its window before its first event. */
static bool has_window(const struct topic_address *address) {
    enum topic_kind kind =
        address->topic.data ? topic_kind_of(address->topic, NULL) : TOPIC_APPLICATION;
    return address->exists || topic_row(kind)->ownership == TOPIC_SHARED;
}

enum status topic_write_json(struct buffer *out, const struct policy_table *policies,
                             const struct topic_address *address) {
    const struct policy *policy =
        policy_of(policies, address->topic.data ? address->topic : address->stream_id);
    const struct store_topic empty = {.oldest_seq = 1};
    const struct topic_window enforced =
        enforced_window(address->exists ? &address->row : &empty, policy);
    char text[WINDOW_BYTES_MAX];
    struct buffer window = buffer_over(text, sizeof(text));
    enum status status = buffer_printf(
        &window, "{\"oldest_seq\":%llu,\"head_seq\":%llu,\"replay_budget_events\":%llu}",
        (unsigned long long)enforced.oldest_seq, (unsigned long long)enforced.head_seq,
        (unsigned long long)enforced.replay_budget_events);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), address->topic);
    object_text(&object, SLICE("stream_id"), address->stream_id);
    object_text(&object, SLICE("topic_class"), slice_of(topic_class_name(policy->topic_class)));
    object_text(&object, SLICE("qos_tier"), slice_of(qos_tier_name(policy->qos_tier)));
    object_json(&object, SLICE("window"),
                has_window(address) ? buffer_slice(&window) : SLICE("null"));
    enum status ended = object_end(&object);
    return status == STATUS_OK ? ended : status;
}
