/* A ring holds references to consecutive frames and drops the oldest. A replay has up to
 * HUB_REPLAY_PLACES_MAX windows, each with the number of its subscribers. A page that was read
 * joins the place whose frames end before it, or opens a new one if a place is free. */
#include "hub/window.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"

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

/* ---- replays ---- */

struct place {
    struct window window;
    size_t member_count; /* subscribers that are here */
    uint64_t ahead_seq;  /* the frames from here on are being read ahead; 0: none are */
    bool is_used;        /* since a page last found no place */
};

struct replay {
    struct place places[HUB_REPLAY_PLACES_MAX];
};

static bool is_open(const struct place *place) {
    return place->member_count > 0;
}

static uint64_t end_of(const struct place *place) {
    return place->window.first_seq + place->window.count;
}

size_t replay_bytes(const struct replay *replay) {
    size_t bytes = replay ? sizeof(*replay) : 0;
    for (size_t i = 0; replay && i < HUB_REPLAY_PLACES_MAX; i++)
        bytes += replay->places[i].window.bytes;
    return bytes;
}

replay_place replay_find(const struct replay *replay, uint64_t seq) {
    for (size_t i = 0; replay && i < HUB_REPLAY_PLACES_MAX; i++)
        if (window_at(&replay->places[i].window, seq))
            return (replay_place)(i + 1);
    return 0;
}

const struct window *replay_window(const struct replay *replay, replay_place place) {
    return &replay->places[place - 1].window;
}

static void forget(struct place *place) {
    window_clear(&place->window);
    place->ahead_seq = 0;
}

void replay_join(struct replay **replay, replay_place *at, replay_place place) {
    struct place *joined = &(*replay)->places[place - 1];
    joined->is_used = true;
    if (*at == place)
        return;
    joined->member_count++;
    replay_leave(replay, at);
    *at = place;
}

void replay_leave(struct replay **replay, replay_place *at) {
    if (*at == 0)
        return;
    struct place *place = &(*replay)->places[*at - 1];
    bool is_last = true;
    *at = 0;
    assert(place->member_count > 0);
    if (--place->member_count == 0)
        forget(place);
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        is_last = is_last && !is_open(&(*replay)->places[i]);
    if (!is_last)
        return;
    replay_forget(*replay);
    free(*replay);
    *replay = NULL;
}

/* ---- adding ---- */

/* The place whose frames the page follows, or overlaps. */
static struct place *place_before(struct replay *replay, uint64_t first_seq) {
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++) {
        struct place *place = &replay->places[i];
        if (place->window.count > 0 && first_seq >= place->window.first_seq &&
            first_seq <= end_of(place))
            return place;
    }
    return NULL;
}

/* A place that no other subscriber uses: the reader's own, an empty one, or one that was not used
 * since a page last found no place. */
static struct place *place_for(struct replay *replay, replay_place at) {
    struct place *own = at > 0 ? &replay->places[at - 1] : NULL;
    if (own && own->member_count == 1)
        return own;
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        if (replay->places[i].window.count == 0)
            return &replay->places[i];
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        if (!replay->places[i].is_used)
            return &replay->places[i];
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        replay->places[i].is_used = false;
    return NULL;
}

static bool fill(struct replay *replay, struct place *place, const struct replay_page *page,
                 size_t bytes_max) {
    uint64_t first_seq = page->frames[0]->content.seq;
    size_t place_count = 0;
    size_t page_bytes = 0;
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        place_count += &replay->places[i] == place || replay->places[i].window.count > 0;
    size_t bytes = bytes_max > sizeof(*replay) ? bytes_max - sizeof(*replay) : 0;
    /* The limits of each place, when this one has frames too. */
    const struct window_limits limits = {SIZE_MAX, bytes / place_count};
    for (size_t i = 0; i < page->count; i++)
        page_bytes += page->frames[i]->bytes + 2 * sizeof(void *);
    /* A place that cannot hold a page would only take memory from the others. */
    if (page_bytes > limits.bytes_max)
        return false;
    if (place != place_before(replay, first_seq))
        forget(place);
    for (size_t i = 0; i < page->count; i++)
        if (place->window.count == 0 || page->frames[i]->content.seq >= end_of(place))
            window_push(&place->window, frame_ref(page->frames[i]), &limits);
    for (size_t i = 0; i < HUB_REPLAY_PLACES_MAX; i++)
        window_trim(&replay->places[i].window, limits.bytes_max);
    bool is_kept = window_at(&place->window, first_seq);
    /* A part of the page at a place without subscribers would stay for ever. */
    if (!is_kept && !is_open(place))
        forget(place);
    return is_kept;
}

bool replay_add(struct replay **replay, const struct replay_page *page, replay_place *at,
                bool may_open, size_t bytes_max) {
    bool is_new = !*replay;
    if (is_new && may_open)
        *replay = calloc(1, sizeof(**replay));
    if (!*replay)
        return false;
    struct place *place = place_before(*replay, page->frames[0]->content.seq);
    if (!place && may_open)
        place = place_for(*replay, *at);
    bool is_kept = place && fill(*replay, place, page, bytes_max);
    if (is_kept && may_open)
        replay_join(replay, at, (replay_place)(place - (*replay)->places + 1));
    if (is_new && !is_kept) {
        replay_forget(*replay);
        free(*replay);
        *replay = NULL;
    }
    return is_kept;
}

/* ---- reading ahead ---- */

bool replay_read_ahead(struct replay *replay, uint64_t next_seq, size_t near_count,
                       uint64_t *after_seq) {
    replay_place at = replay_find(replay, next_seq - 1);
    struct place *place = at > 0 ? &replay->places[at - 1] : NULL;
    if (!place || place->ahead_seq > 0 || end_of(place) - next_seq > near_count)
        return false;
    place->ahead_seq = end_of(place);
    *after_seq = place->ahead_seq - 1;
    return true;
}

void replay_read_ahead_end(struct replay *replay, uint64_t after_seq) {
    for (size_t i = 0; replay && i < HUB_REPLAY_PLACES_MAX; i++)
        if (replay->places[i].ahead_seq == after_seq + 1)
            replay->places[i].ahead_seq = 0;
}

/* ---- dropping ---- */

void replay_drop_below(struct replay *replay, uint64_t seq) {
    for (size_t i = 0; replay && i < HUB_REPLAY_PLACES_MAX; i++)
        window_drop_below(&replay->places[i].window, seq);
}

void replay_forget(struct replay *replay) {
    for (size_t i = 0; replay && i < HUB_REPLAY_PLACES_MAX; i++)
        forget(&replay->places[i]);
}
