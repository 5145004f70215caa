/* A run of frames is found by their payloads (topic/delta.h). The text of the folded frame is that
 * of the last one, member by member, because the members around the payload stand in an order that
 * only hub/frame.c knows. Runs end where their seq is a multiple of FOLD_STEP, so that readers that
 * began at different positions come to the same frames. */
#include "hub/folded.h"

#include <inttypes.h>
#include <stdlib.h>

#include "topic/delta.h"
#include "wire/json.h"

#define FOLD_STEP 1024
/* The member "folded" with its numbers. */
#define FOLDED_BYTES_MAX 80

/* ---- folding ---- */

static struct delta_event event_of(const struct frame *frame) {
    return (struct delta_event){frame->first_seq, frame->content.seq, frame->content.kind,
                                frame->content.payload};
}

/* How many frames, from the first on, are one run. */
static size_t find_run(struct frame *const *frames, size_t count, size_t payload_bytes_max,
                       struct delta_run *run) {
    const struct frame_content *first = &frames[0]->content;
    struct delta_event event = event_of(frames[0]);
    size_t end = 1;
    if (count < 2 || !delta_run_begin(run, &event))
        return 1;
    for (; end < count && frames[end - 1]->content.seq % FOLD_STEP != 0; end++) {
        event = event_of(frames[end]);
        if (frames[end]->content.entity_ref != first->entity_ref ||
            !owner_equal(&frames[end]->content.owner, &first->owner) ||
            !delta_run_add(run, &event, payload_bytes_max))
            break;
    }
    return end;
}

/* Whether the member of the last event is not true of the run. */
static bool is_dropped(struct json_value name) {
    return json_string_is(name, SLICE("payload_hash")) || json_string_is(name, SLICE("doc_key")) ||
           json_string_is(name, SLICE("doc_version")) || json_string_is(name, SLICE("folded"));
}

/* NULL: there is no memory. */
static struct frame *join(struct frame *const *frames, size_t count, const struct delta_run *run) {
    const struct frame *last = frames[count - 1];
    const struct slice text = last->forms[FRAME_FULL];
    struct json_iterator members = {text.data, text.data + text.size};
    struct json_value name, value;
    struct frame_content content = last->content;
    struct frame_text parts = {.lean_begin = 0};
    struct frame *frame = NULL;
    struct buffer out;
    size_t payload_begin = 0;
    size_t payload_end = 0;
    buffer_init(&out, text.size + run->bytes + FOLDED_BYTES_MAX);
    enum status status = buffer_reserve(&out, text.size + run->bytes + FOLDED_BYTES_MAX);
    while (status == STATUS_OK && json_next_member(&members, &name, &value)) {
        bool is_payload = value.raw.data == content.payload.data;
        if (name.raw.data == last->forms[FRAME_LEAN].data)
            parts.lean_begin = out.size + (out.size > 0);
        if (is_dropped(name))
            continue;
        if (out.size > 0)
            buffer_append_byte(&out, ',');
        if (is_payload)
            buffer_printf(&out, "\"folded\":{\"from_seq\":%" PRIu64 ",\"count\":%" PRIu64 "},",
                          run->from_seq, run->seq - run->from_seq + 1);
        buffer_append_slice(&out, name.raw);
        buffer_append_byte(&out, ':');
        if (!is_payload) {
            buffer_append_slice(&out, value.raw);
            continue;
        }
        payload_begin = out.size;
        buffer_append_slice(&out, run->before);
        for (size_t i = 0; i < count; i++)
            buffer_append_slice(&out, delta_run_text(run, frames[i]->content.payload));
        buffer_append_slice(&out, run->after);
        payload_end = out.size;
    }
    if (status == STATUS_OK)
        status = buffer_status(&out);
    if (status == STATUS_OK) {
        parts.head = (struct slice){out.data, payload_begin};
        parts.tail = (struct slice){out.data + payload_end, out.size - payload_end};
        content.document_key = (struct slice){NULL, 0};
        content.payload = (struct slice){out.data + payload_begin, payload_end - payload_begin};
        status = frame_make(NULL, &content, &parts, &frame);
    }
    buffer_release(&out);
    if (status != STATUS_OK)
        return NULL;
    frame->first_seq = run->from_seq;
    return frame;
}

size_t frames_fold(struct frame **frames, size_t count, const struct fold_limits *limits,
                   size_t *made) {
    size_t used = 0;
    size_t bytes = 0;
    *made = 0;
    while (used < count && *made < limits->frames_max) {
        struct delta_run run;
        size_t run_count = find_run(frames + used, count - used, limits->payload_bytes_max, &run);
        size_t run_bytes = run_count > 1 ? run.bytes : frames[used]->content.payload.size;
        if (*made > 0 && bytes + run_bytes > limits->bytes_max)
            break;
        struct frame *frame = run_count > 1 ? join(frames + used, run_count, &run) : NULL;
        for (size_t i = 0; frame && i < run_count; i++)
            frame_unref(frames[used + i]);
        size_t frame_count = frame ? run_count : 1;
        frames[(*made)++] = frame ? frame : frames[used];
        used += frame_count;
        bytes += run_bytes;
    }
    return used;
}

/* ---- lists ---- */

void folded_release(struct folded_list *list) {
    for (size_t i = 0; i < list->count; i++)
        frame_unref(list->frames[i]);
    free(list->frames);
    *list = (struct folded_list){0};
}

size_t folded_find(const struct folded_list *list, uint64_t first_seq) {
    size_t begin = 0;
    size_t end = list->count;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (list->frames[middle]->first_seq < first_seq)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin < list->count && list->frames[begin]->first_seq == first_seq ? begin : list->count;
}

static uint64_t begin_of(const struct folded_list *list) {
    return list->frames[0]->first_seq;
}

static uint64_t end_of(const struct folded_list *list) {
    return list->frames[list->count - 1]->content.seq + 1;
}

static void drop_first(struct folded_list *list) {
    list->bytes -= list->frames[0]->bytes;
    frame_unref(list->frames[0]);
    memmove(list->frames, list->frames + 1, --list->count * sizeof(struct frame *));
}

/* Room for one more pointer. */
static bool grow(struct folded_list *list) {
    size_t capacity = list->capacity > 0 ? 2 * list->capacity : 8;
    if (list->count < list->capacity)
        return true;
    struct frame **frames = realloc(list->frames, capacity * sizeof(struct frame *));
    if (!frames)
        return false;
    list->bytes += (capacity - list->capacity) * sizeof(struct frame *);
    list->frames = frames;
    list->capacity = capacity;
    return true;
}

/* A frame that was read shares a block of memory, which the list would hold as long as it stays. */
static bool insert(struct folded_list *list, size_t index, struct frame *frame) {
    struct frame *kept = frame->block ? frame_copy(frame) : frame_ref(frame);
    if (!kept || !grow(list)) {
        if (kept)
            frame_unref(kept);
        return false;
    }
    memmove(list->frames + index + 1, list->frames + index,
            (list->count - index) * sizeof(struct frame *));
    list->frames[index] = kept;
    list->count++;
    list->bytes += kept->bytes;
    return true;
}

static bool is_full(const struct folded_list *list, size_t bytes_max) {
    return list->count >= HUB_FOLDED_FRAMES_MAX || list->bytes > bytes_max;
}

/* Folds two frames that follow each other. One of them is the list's at that index, which the
 * result replaces. */
static bool fold_at(struct folded_list *list, size_t index, struct frame *first,
                    struct frame *second, size_t payload_bytes_max) {
    const struct fold_limits limits = {1, SIZE_MAX, payload_bytes_max};
    struct frame *pair[] = {frame_ref(first), frame_ref(second)};
    size_t made;
    if (frames_fold(pair, 2, &limits, &made) < 2) {
        frame_unref(pair[0]);
        frame_unref(pair[1]);
        return false;
    }
    list->bytes += pair[0]->bytes - list->frames[index]->bytes;
    frame_unref(list->frames[index]);
    list->frames[index] = pair[0];
    return true;
}

void folded_add(struct folded_list *list, struct frame *const *frames, size_t count,
                size_t bytes_max, size_t payload_bytes_max) {
    uint64_t first_seq = frames[0]->first_seq;
    uint64_t end_seq = frames[count - 1]->content.seq + 1;
    bool is_behind = list->count > 0 && first_seq == end_of(list);
    bool is_before = list->count > 0 && end_seq == begin_of(list);
    if (!is_behind && !is_before) {
        bool is_inside = list->count > 0 && first_seq >= begin_of(list) && first_seq < end_of(list);
        /* A list of frames that are not folded would only take memory. */
        if (is_inside || list->is_used || 2 * count > end_seq - first_seq) {
            list->is_used = list->is_used && is_inside;
            return;
        }
        folded_release(list);
    }
    if (is_before) {
        size_t left = count;
        left -= fold_at(list, 0, frames[count - 1], list->frames[0], payload_bytes_max);
        for (size_t i = left; i > 0 && !is_full(list, bytes_max); i--)
            if (!insert(list, 0, frames[i - 1]))
                return;
        return;
    }
    size_t last = list->count - 1;
    size_t begin =
        is_behind && fold_at(list, last, list->frames[last], frames[0], payload_bytes_max);
    for (size_t i = begin; i < count; i++) {
        if (!insert(list, list->count, frames[i]))
            return;
        while (list->count > 1 && is_full(list, bytes_max))
            drop_first(list);
    }
}
