#include "topic/stream_id.h"

#include "base/utf8.h"
#include "topic/policy.h"
#include "topic/topic_pattern.h"

static const struct {
    const char *topic;
    const char *stream_id;
} retained[] = {
    {"runtime.codex_worker_events", "runtime.codex.worker.events"},
    {"run:*:events", "runtime.run.*.events"},
    {"worker:*:lifecycle", "runtime.worker.*.lifecycle"},
    {"fleet:user:*:workers", "runtime.fleet.user.*.workers"},
    {"fleet:guest:*:workers", "runtime.fleet.guest.*.workers"},
};

#define RETAINED_COUNT (sizeof(retained) / sizeof(retained[0]))

static const char other_prefix[] = "runtime.topic.";

/* Appends the pattern with middle in the place of its '*'. */
static enum status append_filled(struct buffer *out, const char *pattern, struct slice middle) {
    enum status status = buffer_reserve(out, strlen(pattern) + middle.size);
    for (const char *next = pattern; status == STATUS_OK && *next; next++)
        status = *next == '*' ? buffer_append_slice(out, middle) : buffer_append_byte(out, *next);
    return status;
}

static enum status append_replaced(struct buffer *out, struct slice text, char from, char to) {
    size_t begin = out->size;
    enum status status = buffer_append_slice(out, text);
    if (status != STATUS_OK)
        return status;
    for (size_t i = begin; i < out->size; i++)
        if (out->data[i] == from)
            out->data[i] = to;
    return STATUS_OK;
}

enum status topic_to_stream(struct slice topic, struct buffer *out) {
    struct slice middle;
    for (size_t i = 0; i < RETAINED_COUNT; i++)
        if (topic_pattern_match(retained[i].topic, topic, &middle))
            return append_filled(out, retained[i].stream_id, middle);
    enum status status = buffer_reserve(out, sizeof(other_prefix) - 1 + topic.size);
    if (status == STATUS_OK)
        status = buffer_append(out, other_prefix, sizeof(other_prefix) - 1);
    if (status == STATUS_OK)
        status = append_replaced(out, topic, ':', '.');
    return status;
}

static bool is_blank(struct slice text) {
    while (text.size > 0) {
        size_t size = utf8_white_space_size(text);
        if (size == 0)
            return false;
        text = slice_from(text, size);
    }
    return true;
}

static bool has_retained_stream(struct slice topic) {
    for (size_t i = 0; i < RETAINED_COUNT; i++)
        if (topic_pattern_match(retained[i].topic, topic, NULL))
            return true;
    return false;
}

/* The fixed topics always exist, so the way back to them never depends on the guess about
 * colons: it would send a subscriber of runtime.run_summaries to a topic nobody writes. */
static bool is_fixed_topic(struct slice topic) {
    const char *pattern = policy_default(policy_row_of(topic))->patterns[0];
    return slice_equal(slice_of(pattern), topic);
}

/* A topic of the retained streams is no answer here: its numbers belong to another stream. Nor
 * is a name with a colon, which no stream id of this form has. */
static enum status other_to_topic(struct slice name, struct buffer *out) {
    if (is_blank(name) || memchr(name.data, ':', name.size))
        return STATUS_NOT_FOUND;
    if (is_fixed_topic(name) && !has_retained_stream(name))
        return buffer_append_slice(out, name);
    size_t begin = out->size;
    enum status status = append_replaced(out, name, '.', ':');
    if (status == STATUS_OK && has_retained_stream(slice_from(buffer_slice(out), begin))) {
        out->size = begin;
        return STATUS_NOT_FOUND;
    }
    return status;
}

enum status stream_to_topic(struct slice stream_id, struct buffer *out) {
    struct slice middle;
    for (size_t i = 0; i < RETAINED_COUNT; i++) {
        if (!topic_pattern_match(retained[i].stream_id, stream_id, &middle))
            continue;
        if (strchr(retained[i].stream_id, '*') && is_blank(middle))
            return STATUS_NOT_FOUND;
        return append_filled(out, retained[i].topic, middle);
    }
    if (topic_pattern_match("runtime.topic.*", stream_id, &middle))
        return other_to_topic(middle, out);
    return STATUS_NOT_FOUND;
}
