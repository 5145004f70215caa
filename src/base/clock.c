#include "base/clock.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

static uint64_t read_ns(clockid_t id) {
    struct timespec now;
    int failed = clock_gettime(id, &now);
    assert(!failed);
    /* A clock before 1970 reads as 0 instead of wrapping to a date far ahead. */
    if (now.tv_sec < 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000u * CLOCK_NS_PER_MS + (uint64_t)now.tv_nsec;
}

static uint64_t wall_ahead_ms;

static struct clock_reading system_read(void *user) {
    (void)user;
    return (struct clock_reading){read_ns(CLOCK_REALTIME) / CLOCK_NS_PER_MS + wall_ahead_ms,
                                  read_ns(CLOCK_MONOTONIC)};
}

void clock_move_wall_ms(uint64_t ahead_ms) {
    wall_ahead_ms = ahead_ms;
}

struct clock_reading clock_now(void) {
    return system_read(NULL);
}

uint64_t clock_mono_now_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ms(void) {
    return read_ns(CLOCK_BOOTTIME) / CLOCK_NS_PER_MS;
}

void clock_init(struct clock *clock) {
    clock_init_source(clock, NULL, NULL);
}

void clock_init_source(struct clock *clock, void *user, clock_read_cb *read) {
    *clock = (struct clock){.user = user, .read = read ? read : system_read};
    clock_tick(clock);
}

void clock_tick(struct clock *clock) {
    struct clock_reading reading = clock->read(clock->user);
    if (reading.mono_ns < clock->reading.mono_ns)
        reading.mono_ns = clock->reading.mono_ns;
    clock->reading = reading;
}

struct clock_reading clock_manual_read(void *user) {
    const struct clock_manual *manual = user;
    return (struct clock_reading){
        .wall_ms = __atomic_load_n(&manual->reading.wall_ms, __ATOMIC_RELAXED),
        .mono_ns = __atomic_load_n(&manual->reading.mono_ns, __ATOMIC_RELAXED),
    };
}

void clock_manual_advance_ms(struct clock_manual *manual, uint64_t delta_ms) {
    __atomic_fetch_add(&manual->reading.wall_ms, delta_ms, __ATOMIC_RELAXED);
    __atomic_fetch_add(&manual->reading.mono_ns, delta_ms * CLOCK_NS_PER_MS, __ATOMIC_RELAXED);
}
