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

bool range_is_same_epoch(const struct topic_epoch *a, const struct topic_epoch *b) {
    return strcmp(a->text, b->text) == 0 || topic_epoch_continues(a, b) ||
           topic_epoch_continues(b, a);
}

uint64_t range_frame_seq(struct json_value frame) {
    struct json_field field = {.name = SLICE("seq")};
    uint64_t seq = 0;
    if (frame.kind == JSON_KIND_OBJECT && json_read_members(frame, &field, 1) == STATUS_OK)
        (void)range_read_seq(field.value, &seq);
    return seq;
}

static bool are_frames_valid(const struct range *range) {
    struct json_iterator frames = json_iterate(range->frames);
    struct json_value frame;
    uint64_t last = range->after;
    while (json_next_element(&frames, &frame)) {
        uint64_t seq = range_frame_seq(frame);
        if (seq <= last || seq > range->through)
            return false;
        last = seq;
    }
    return true;
}

enum { EPOCH, AFTER, THROUGH, BOUNDS_COUNT };

static bool read_bounds(const struct json_field fields[BOUNDS_COUNT], struct range *range) {
    return range_read_epoch(fields[EPOCH].value, &range->epoch) &&
           range_read_seq(fields[AFTER].value, &range->after) &&
           range_read_seq(fields[THROUGH].value, &range->through) && range->through >= range->after;
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
    struct range range = {.is_valid = false};
    if (json_read_members(body, fields, COUNT) != STATUS_OK)
        return range;
    range.is_complete = fields[COMPLETE].value.kind == JSON_KIND_TRUE;
    range.frames = fields[UPDATES].value;
    range.is_valid = read_bounds(fields, &range) && range.frames.kind == JSON_KIND_ARRAY &&
                     are_frames_valid(&range);
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
    part.is_valid = part.documents.kind == JSON_KIND_ARRAY &&
                    range_read_epoch(fields[EPOCH].value, &part.position.epoch) &&
                    range_read_seq(fields[WATERMARK].value, &part.position.seq);
    return part;
}

bool stored_position_read(struct slice text, struct position *position) {
    const struct json_limits limits = {STORED_POSITION_BYTES_MAX, 4};
    struct json_field fields[] = {{.name = SLICE("epoch")}, {.name = SLICE("seq")}};
    return json_read_object(text, &limits, fields, 2) == STATUS_OK && fields[0].present &&
           fields[1].present && range_read_epoch(fields[0].value, &position->epoch) &&
           range_read_seq(fields[1].value, &position->seq);
}

size_t stored_position_write(const struct position *position,
                             char text[STORED_POSITION_BYTES_MAX]) {
    return (size_t)snprintf(text, STORED_POSITION_BYTES_MAX,
                            "{\"epoch\":\"%s\",\"seq\":%" PRIu64 "}", position->epoch.text,
                            position->seq);
}
