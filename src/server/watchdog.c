#include "server/watchdog.h"

#include "server/notify.h"

static void on_probe(struct loop_task *task) {
    struct watchdog_probe *probe = container_of(task, struct watchdog_probe, task);
    atomic_store(&probe->is_pending, false);
}

static void on_timer(uv_timer_t *timer) {
    struct watchdog *watchdog = timer->data;
    for (size_t i = 0; i < watchdog->loop_count; i++)
        if (atomic_load(&watchdog->probes[i].is_pending))
            return;
    notify_send("WATCHDOG=1");
    for (size_t i = 0; i < watchdog->loop_count; i++) {
        struct watchdog_probe *probe = &watchdog->probes[i];
        atomic_store(&probe->is_pending, true);
        /* A loop that has ended does not hang. */
        if (io_loop_post(watchdog->loops[i], &probe->task) != STATUS_OK)
            atomic_store(&probe->is_pending, false);
    }
}

void watchdog_init(struct watchdog *watchdog, uv_loop_t *control) {
    uv_timer_init(control, &watchdog->timer);
    watchdog->timer.data = watchdog;
    for (size_t i = 0; i < LISTEN_SOCKETS_MAX; i++)
        watchdog->probes[i].task.run = on_probe;
}

void watchdog_start(struct watchdog *watchdog, struct io_loop **loops, size_t loop_count) {
    uint64_t interval_ms = notify_watchdog_ms();
    watchdog->loops = loops;
    watchdog->loop_count = loop_count;
    /* Four reports in each interval, so that one late probe does not cause a restart. */
    if (interval_ms > 0)
        uv_timer_start(&watchdog->timer, on_timer, 0, interval_ms / 4 + 1);
}

void watchdog_close(struct watchdog *watchdog) {
    uv_close((uv_handle_t *)&watchdog->timer, NULL);
}
