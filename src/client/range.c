#include "client/range.h"

#include <inttypes.h>
#include <stdio.h>

bool range_read_epoch(struct json_value value, struct topic_epoch *epoch) {
    struct slice text;
    return json_string_slice(value, &text) && text.size > 0 &&
           topic_epoch_read(text, epoch) == STATUS_OK;
}

bool range_read_seq(struct json_value value, uint64_t *seq) {
    return json_u64(value, JSON_INTEGER_MAX, seq);
}

bool range_read_position(struct json_value value, struct json_value epoch,
                         struct position *position) {
    struct position read = {.seq = 0};
    struct slice text;
    bool is_text = json_string_slice(value, &text) && memchr(text.data, '@', text.size);
    if (is_text ? position_read(text, &read) != STATUS_OK : !range_read_seq(value, &read.seq))
        return false;
    if (!range_read_epoch(epoch, &read.epoch) && !topic_epoch_is_known(&read.epoch))
        return false;
    *position = read;
    return true;
}

bool range_is_same_epoch(const struct topic_epoch *a, const struct topic_epoch *b) {
    return !topic_epoch_is_known(a) || !topic_epoch_is_known(b) || strcmp(a->text, b->text) == 0 ||
           topic_epoch_continues(a, b) || topic_epoch_continues(b, a);
}

static bool read_fold(struct json_value folded, struct frame_span *span) {
    struct json_field fields[] = {{.name = SLICE("from_seq")}, {.name = SLICE("count")}};
    uint64_t count;
    span->is_folded = true;
    return folded.kind == JSON_KIND_OBJECT && json_read_members(folded, fields, 2) == STATUS_OK &&
           range_read_seq(fields[0].value, &span->first) &&
           range_read_seq(fields[1].value, &count) && span->first <= span->seq &&
           count == span->seq - span->first + 1;
}

struct frame_span range_frame_span(struct json_value frame) {
    enum { SEQ, FOLDED, KIND, EVENT_ID, COUNT };
    struct json_field fields[COUNT] = {[SEQ] = {.name = SLICE("seq")},
                                       [FOLDED] = {.name = SLICE("folded")},
                                       [KIND] = {.name = SLICE("kind")},
                                       [EVENT_ID] = {.name = SLICE("event_id")}};
    struct frame_span span = {.first = 0};
    if (frame.kind != JSON_KIND_OBJECT || json_read_members(frame, fields, COUNT) != STATUS_OK ||
        !range_read_seq(fields[SEQ].value, &span.seq))
        return span;
    span.first = span.seq;
    if (fields[FOLDED].present && !read_fold(fields[FOLDED].value, &span))
        span.first = 0;
    span.has_id = fields[EVENT_ID].present || json_string_is(fields[KIND].value, SLICE("removed"));
    return span;
}

enum { EPOCH, AFTER, THROUGH, BOUNDS_COUNT };

static bool read_bounds(const struct json_field fields[BOUNDS_COUNT], struct range *range) {
    struct position after, through;
    if (!range_read_position(fields[AFTER].value, fields[EPOCH].value, &after) ||
        !range_read_position(fields[THROUGH].value, fields[EPOCH].value, &through))
        return false;
    range->epoch = through.epoch;
    range->after = after.seq;
    range->through = through.seq;
    return through.seq >= after.seq && strcmp(after.epoch.text, through.epoch.text) == 0;
}

struct range range_read_covered(struct json_value body) {
    struct json_field fields[BOUNDS_COUNT] = {
        {.name = SLICE("epoch")}, {.name = SLICE("after")}, {.name = SLICE("through")}};
    struct range range = {.frames = {JSON_KIND_ARRAY, SLICE("[]")}};
    range.is_valid =
        json_read_members(body, fields, BOUNDS_COUNT) == STATUS_OK && read_bounds(fields, &range);
    return range;
}

struct range range_read(struct json_value body) {
    enum { UPDATES = BOUNDS_COUNT, COMPLETE, COUNT };
    struct json_field fields[COUNT] = {{.name = SLICE("epoch")},
                                       {.name = SLICE("after")},
                                       {.name = SLICE("through")},
                                       {.name = SLICE("updates")},
                                       {.name = SLICE("replay_complete")}};
    struct range range = {.is_valid = false, .has_ids = true};
    if (json_read_members(body, fields, COUNT) != STATUS_OK)
        return range;
    range.is_complete = fields[COMPLETE].value.kind == JSON_KIND_TRUE;
    range.frames = fields[UPDATES].value;
    range.is_valid = read_bounds(fields, &range) && range.frames.kind == JSON_KIND_ARRAY;
    if (!range.is_valid)
        return range;
    struct json_iterator frames = json_iterate(range.frames);
    struct json_value frame;
    uint64_t last = range.after;
    while (range.is_valid && json_next_element(&frames, &frame)) {
        struct frame_span span = range_frame_span(frame);
        range.is_valid = span.first > last && span.seq <= range.through;
        range.has_ids = range.has_ids && span.has_id;
        last = span.seq;
    }
    return range;
}

struct snapshot_part range_read_part(struct json_value body) {
    enum { WATERMARK = 1, DOCUMENTS, PART, LAST, COUNT };
    struct json_field fields[COUNT] = {{.name = SLICE("epoch")},
                                       {.name = SLICE("watermark")},
                                       {.name = SLICE("documents")},
                                       {.name = SLICE("part")},
                                       {.name = SLICE("last")}};
    struct snapshot_part part = {.is_valid = false};
    if (json_read_members(body, fields, COUNT) != STATUS_OK)
        return part;
    part.is_last = fields[LAST].value.kind == JSON_KIND_TRUE;
    part.has_number = range_read_seq(fields[PART].value, &part.number);
    part.documents = fields[DOCUMENTS].value;
    part.is_valid =
        part.documents.kind == JSON_KIND_ARRAY &&
        range_read_position(fields[WATERMARK].value, fields[EPOCH].value, &part.position);
    return part;
}

bool stored_position_read(struct slice text, struct position *position) {
    const struct json_limits limits = {STORED_POSITION_BYTES_MAX, 4};
    struct json_field fields[] = {{.name = SLICE("epoch")}, {.name = SLICE("seq")}};
    struct position read = {.seq = 0};
    bool is_object = json_read_object(text, &limits, fields, 2) == STATUS_OK;
    bool has_epoch = is_object && fields[0].present && fields[0].value.kind != JSON_KIND_NULL;
    if (is_object ? !fields[1].present || !range_read_seq(fields[1].value, &read.seq) ||
                        (has_epoch && !range_read_epoch(fields[0].value, &read.epoch))
                  : position_read(text, &read) != STATUS_OK)
        return false;
    *position = read;
    return true;
}

size_t stored_position_write(const struct position *position,
                             char text[STORED_POSITION_BYTES_MAX]) {
    bool has_epoch = topic_epoch_is_known(&position->epoch);
    return (size_t)snprintf(text, STORED_POSITION_BYTES_MAX, "{%s%s%s\"seq\":%" PRIu64 "}",
                            has_epoch ? "\"epoch\":\"" : "", position->epoch.text,
                            has_epoch ? "\"," : "", position->seq);
}
