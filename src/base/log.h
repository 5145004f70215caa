/* Structured log: one line per event, on standard error, as text or as JSON.
 * Thread: any; a line is one write(2) under one lock, so lines never mix.
 * Memory: none; a line longer than LOG_LINE_MAX is truncated and marked, so the important field
 * comes first.
 * Errors: never blocks and never fails. A line that the descriptor cannot take at once is lost, and
 * a log.lines_lost line precedes the next one.
 * Invariant: values are escaped: no input can forge a line. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

/* At most PIPE_BUF: a pipe takes a write of that size completely or not at all. */
#define LOG_LINE_MAX 4096

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };
enum log_format { LOG_TEXT, LOG_JSON };

enum log_field_type { LOG_FIELD_STRING, LOG_FIELD_INTEGER };

struct log_field {
    const char *name;
    enum log_field_type type;
    struct slice text;
    int64_t number;
};

/* Call once, before threads start; until then: LOG_INFO, LOG_TEXT, standard error. A process
 * that logs into a pipe or socket ignores SIGPIPE, as any server does. */
void log_configure(enum log_level level, enum log_format format, int fd);
/* Whether a line of that level would be written. Ask before computing expensive fields. */
bool log_wants(enum log_level level);
/* Keeps errno, so that an error can be logged before it is handled. Never log a secret. */
void log_emit(enum log_level level, const char *event, const struct log_field *fields,
              size_t field_count);

static inline struct log_field log_str(const char *name, const char *text) {
    return (struct log_field){name, LOG_FIELD_STRING, slice_of(text ? text : ""), 0};
}

static inline struct log_field log_slice(const char *name, struct slice text) {
    return (struct log_field){name, LOG_FIELD_STRING, text, 0};
}

static inline struct log_field log_int(const char *name, int64_t number) {
    return (struct log_field){name, LOG_FIELD_INTEGER, {NULL, 0}, number};
}

/* log_event(LOG_INFO, "listener.ready", log_str("address", address), log_int("loops", 2)); */
#define log_event(level, event, ...)                                                               \
    log_emit(level, event, (struct log_field[]){__VA_ARGS__},                                      \
             sizeof((struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

/* A log gate lets one line pass in a while, so that a flood of equal events does not fill the log.
 * It is a member of its owner, all zeroes before its first use, and belongs to its owner's thread.
 * The line that passes states how many were held back before it. */

#define LOG_GATE_MS 10000

struct log_gate {
    uint64_t next_ms; /* when the next line may pass */
    uint64_t held_count;
};

/* Whether a line may be written now. held_count: how many were not, since the last one. */
static inline bool log_gate_pass(struct log_gate *gate, uint64_t now_ms, uint64_t *held_count) {
    if (now_ms < gate->next_ms) {
        gate->held_count++;
        return false;
    }
    *held_count = gate->held_count;
    *gate = (struct log_gate){.next_ms = now_ms + LOG_GATE_MS};
    return true;
}

#endif
