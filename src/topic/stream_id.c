#include "topic/stream_id.h"

#include "base/utf8.h"
#include "topic/topic_table.h"

static const char other_prefix[] = "runtime.topic.";

/* Appends the pattern with middle in the place of its '*'. */
static enum status append_filled(struct buffer *out, const char *pattern, struct slice middle) {
    size_t size = topic_pattern_size(pattern, middle);
    enum status status = buffer_reserve(out, size);
    if (status != STATUS_OK)
        return status;
    topic_pattern_fill(pattern, middle, out->data + out->size);
    out->size += size;
    return STATUS_OK;
}

static void append_replaced(struct buffer *out, struct slice text, char from, char to) {
    size_t begin = out->size;
    buffer_append_slice(out, text);
    for (size_t i = begin; i < out->size; i++)
        if (out->data[i] == from)
            out->data[i] = to;
}

enum status topic_to_stream(struct slice topic, struct buffer *out) {
    struct slice middle;
    const struct topic_row *row = topic_row(topic_kind_of(topic, &middle));
    if (row->stream)
        return append_filled(out, row->stream, middle);
    size_t begin = out->size;
    buffer_append(out, other_prefix, sizeof(other_prefix) - 1);
    append_replaced(out, topic, ':', '.');
    return buffer_end(out, begin);
}

enum status topic_stream(struct arena *arena, struct slice topic, struct slice *stream_id) {
    size_t size_max = topic.size + STREAM_ID_BYTES_MAX - TOPIC_NAME_BYTES_MAX;
    struct buffer out = buffer_over(arena_alloc(arena, size_max), size_max);
    if (!out.data)
        return STATUS_OUT_OF_MEMORY;
    enum status status = topic_to_stream(topic, &out);
    *stream_id = buffer_slice(&out);
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
    return topic_row(topic_kind_of(topic, NULL))->stream != NULL;
}

/* The built-in topics always exist, so their names come from the table and not from the guess about
 * colons: it would send a subscriber of runtime.run_summaries to a topic without a publisher. */
static bool is_built_in(struct slice topic) {
    const char *pattern = topic_row(topic_kind_of(topic, NULL))->pattern;
    return !strchr(pattern, '*') && slice_equal(topic, slice_of(pattern));
}

enum status stream_to_topic(struct slice stream_id, struct buffer *out) {
    struct slice middle;
    for (size_t kind = 0; kind < TOPIC_KIND_COUNT; kind++) {
        const struct topic_row *row = topic_row((enum topic_kind)kind);
        if (!row->stream || !topic_pattern_match(row->stream, stream_id, &middle))
            continue;
        if (strchr(row->stream, '*') && is_blank(middle))
            return STATUS_NOT_FOUND;
        return append_filled(out, row->pattern, middle);
    }
    const struct slice prefix = {other_prefix, sizeof(other_prefix) - 1};
    if (stream_id.size == 0 || !slice_starts(stream_id, prefix))
        return STATUS_NOT_FOUND;
    struct slice name = slice_from(stream_id, prefix.size);
    /* No stream id of this form has a colon. */
    if (is_blank(name) || memchr(name.data, ':', name.size))
        return STATUS_NOT_FOUND;
    if (is_built_in(name) && !has_retained_stream(name))
        return buffer_append_slice(out, name);
    size_t begin = out->size;
    append_replaced(out, name, '.', ':');
    enum status status = buffer_end(out, begin);
    /* A topic with a retained stream is not returned: its sequence belongs to that stream. */
    if (status == STATUS_OK && has_retained_stream(slice_from(buffer_slice(out), begin))) {
        buffer_truncate(out, begin);
        return STATUS_NOT_FOUND;
    }
    return status;
}

/* ---- addresses ---- */

/* The part behind "runtime.topic." of a stream id of that form; data NULL for others. */
static struct slice other_name(struct slice address) {
    const struct slice prefix = {other_prefix, sizeof(other_prefix) - 1};
    struct slice name = {NULL, 0};
    if (address.size > prefix.size && slice_starts(address, prefix))
        name = slice_from(address, prefix.size);
    return name;
}

enum address_kind address_kind(struct slice address) {
    struct slice middle;
    if (topic_kind_of(address, NULL) != TOPIC_RESERVED_RUNTIME)
        return ADDRESS_TOPIC;
    for (size_t kind = 0; kind < TOPIC_KIND_COUNT; kind++) {
        const struct topic_row *row = topic_row((enum topic_kind)kind);
        if (row->stream && topic_pattern_match(row->stream, address, &middle))
            return strchr(row->stream, '*') && is_blank(middle) ? ADDRESS_TOPIC : ADDRESS_STREAM;
    }
    struct slice name = other_name(address);
    if (!name.data || is_blank(name) || memchr(name.data, ':', name.size))
        return ADDRESS_TOPIC;
    return is_built_in(name) && !has_retained_stream(name) ? ADDRESS_STREAM : ADDRESS_STORED_STREAM;
}

enum status address_check(struct slice address) {
    struct slice name = other_name(address);
    return topic_name_check(name.data ? name : address);
}

enum status address_stream(struct slice address, struct buffer *out) {
    return address_kind(address) == ADDRESS_TOPIC ? topic_to_stream(address, out)
                                                  : buffer_append_slice(out, address);
}

enum status address_topic(struct slice address, struct buffer *out) {
    switch (address_kind(address)) {
    case ADDRESS_TOPIC:
        return buffer_append_slice(out, address);
    case ADDRESS_STREAM:
        return stream_to_topic(address, out);
    case ADDRESS_STORED_STREAM:
        break;
    }
    return STATUS_NOT_FOUND;
}
