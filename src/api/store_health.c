#include "api/store_health.h"

#include "authority/writer.h"
#include "base/clock.h"

/* A failure is forgotten after this time, so that the next append can show that the store works. */
#define FAILED_MS 5000

static bool is_failure(enum status status) {
    return status == STATUS_STORE_UNAVAILABLE || status == STATUS_WRITER_LOST ||
           status == STATUS_APPEND_OUTCOME_UNKNOWN;
}

void store_health_note(struct store_health *health, enum status status) {
    store_health_note_at(health, status, is_failure(status) ? clock_mono_now_ms() : 0);
}

void store_health_note_at(struct store_health *health, enum status status, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&health->failed_at_ms);
    if (is_failure(status))
        atomic_store(&health->failed_at_ms, mono_ms);
    else if (status == STATUS_OK && failed_at_ms != 0)
        atomic_store(&health->failed_at_ms, 0);
}

bool store_health_is_good(const struct store_health *health, uint64_t mono_ms) {
    uint64_t failed_at_ms = atomic_load(&health->failed_at_ms);
    if (atomic_load(&health->is_moved))
        return false;
    /* A sum, because a difference could be negative: another loop with a later clock may have noted
     * the failure. */
    return failed_at_ms == 0 || mono_ms > failed_at_ms + FAILED_MS;
}

enum reason store_health_reason(const struct store_health *health, const struct writer *writer) {
    enum reason reason = REASON_STORE_FAILED;
    if (atomic_load(&health->is_moved))
        return REASON_STORE_MOVED;
    return writer_is_failing(writer, &reason) ? reason : REASON_STORE_FAILED;
}
