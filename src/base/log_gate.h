/* A log gate: lets one line pass in a while, so that a flood of equal events does not fill the log.
 * Belongs to its owner's thread.
 * Memory: a member of its owner, all zeroes before its first use.
 * Errors: none.
 * The line that passes states how many were held back before it. */
#ifndef BASE_LOG_GATE_H
#define BASE_LOG_GATE_H

#include <stdbool.h>
#include <stdint.h>

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
