#include "hub/window.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_FIRST 8
#define SLOT_BYTES     sizeof(void *)

void window_clear(struct window *window) {
    for (size_t i = 0; i < window->count; i++)
        frame_unref(window->ring[(window->begin + i) & (window->capacity - 1)]);
    free(window->ring);
    *window = (struct window){0};
}

static void drop_first(struct window *window) {
    struct frame *frame = window->ring[window->begin];
    window->begin = (window->begin + 1) & (window->capacity - 1);
    window->count--;
    window->first_seq++;
    window->bytes -= frame->bytes;
    frame_unref(frame);
}

/* Of the ring, after it has grown for one more frame. */
static size_t capacity_for_one_more(const struct window *window) {
    if (window->count < window->capacity)
        return window->capacity;
    return window->capacity > 0 ? 2 * window->capacity : CAPACITY_FIRST;
}

static bool grow(struct window *window) {
    size_t capacity = capacity_for_one_more(window);
    struct frame **ring = malloc(capacity * SLOT_BYTES);
    if (!ring)
        return false;
    for (size_t i = 0; i < window->count; i++)
        ring[i] = window->ring[(window->begin + i) & (window->capacity - 1)];
    free(window->ring);
    window->bytes += (capacity - window->capacity) * SLOT_BYTES;
    window->ring = ring;
    window->capacity = capacity;
    window->begin = 0;
    return true;
}

void window_trim(struct window *window, size_t bytes_max) {
    while (window->bytes > bytes_max && window->count > 1)
        drop_first(window);
}

void window_push(struct window *window, struct frame *frame, const struct window_limits *limits) {
    assert(limits->frames_max > 0);
    uint64_t seq = frame->content.seq;
    if (window->count > 0 && seq != window->first_seq + window->count)
        window_clear(window);
    if (window->count == limits->frames_max)
        drop_first(window);
    if (window->count == window->capacity && !grow(window)) {
        window_clear(window);
        frame_unref(frame);
        return;
    }
    if (window->count == 0)
        window->first_seq = seq;
    window->ring[(window->begin + window->count) & (window->capacity - 1)] = frame;
    window->count++;
    window->bytes += frame->bytes;
    window_trim(window, limits->bytes_max);
}

bool window_push_front(struct window *window, struct frame *frame,
                       const struct window_limits *limits) {
    assert(window->count == 0 || frame->content.seq + 1 == window->first_seq);
    size_t slots = capacity_for_one_more(window) - window->capacity;
    size_t bytes = window->bytes + slots * SLOT_BYTES + frame->bytes;
    if (window->count == limits->frames_max || bytes > limits->bytes_max ||
        (slots > 0 && !grow(window)))
        return false;
    window->begin = (window->begin - 1) & (window->capacity - 1);
    window->ring[window->begin] = frame;
    window->count++;
    window->first_seq = frame->content.seq;
    window->bytes += frame->bytes;
    return true;
}

void window_drop_below(struct window *window, uint64_t seq) {
    while (window->count > 0 && window->first_seq < seq)
        drop_first(window);
    if (window->count == 0)
        window_clear(window);
}

struct frame *window_at(const struct window *window, uint64_t seq) {
    if (seq < window->first_seq || seq - window->first_seq >= window->count)
        return NULL;
    size_t offset = (size_t)(seq - window->first_seq);
    return window->ring[(window->begin + offset) & (window->capacity - 1)];
}
