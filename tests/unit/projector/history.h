/* Events for folding without a store. Times and seqs are assigned in order. */
#ifndef HISTORY_H
#define HISTORY_H

#include "base/limits.h"
#include "projector/fold.h"
#include "test.h"

#define HISTORY_TIME_MS UINT64_C(1700000000000)

/* An event of recorded_at HISTORY_TIME_MS + seq. */
static inline struct store_event history_event(uint64_t seq, const char *type,
                                               const char *payload) {
    struct store_event event = {
        .log_id = seq,
        .seq = seq,
        .type = slice_of(type),
        .payload = slice_of(payload),
        .recorded_at_ms = HISTORY_TIME_MS + seq,
    };
    uint64_t time_ms = HISTORY_TIME_MS + seq;
    for (int i = 0; i < 6; i++)
        event.cursor.bytes[i] = (uint8_t)(time_ms >> (40 - 8 * i));
    event.cursor.bytes[6] = 0x70;
    event.cursor.bytes[8] = 0x80;
    return event;
}

struct history {
    enum document_kind kind;
    union any_summary summary;
    struct arena arena;
};

static inline struct history history_begin(enum document_kind kind, const char *id) {
    struct history history = {.kind = kind};
    arena_init(&history.arena, (size_t)64 << 20);
    summary_init(fold_layout(kind), &history.summary.common, slice_of(id));
    return history;
}

static inline void history_add(struct history *history, const char *type, const char *payload) {
    struct store_event event = history_event(history->summary.common.latest_seq + 1, type, payload);
    assert_ok(fold_event(history->kind, &history->summary, &event, &history->arena));
}

/* The document with projected_at 1. The caller frees it. */
static inline char *history_document(const struct history *history) {
    const struct summary_stamp stamp = {
        .projection_version = SLICE(PROJECTION_VERSION_DEFAULT),
        .projected_at_ms = 1,
    };
    struct summary_marks marks;
    struct buffer out;
    buffer_init(&out, SUMMARY_BYTES_MAX);
    assert_ok(
        summary_write(fold_layout(history->kind), &history->summary.common, &stamp, &out, &marks));
    assert_ok(buffer_append_byte(&out, '\0'));
    return out.data;
}

static inline void history_expect(const struct history *history, const char *expected) {
    char *document = history_document(history);
    assert_string_equal(document, expected);
    free(document);
}

#endif
