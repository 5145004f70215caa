#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/decimal.h"

bool notify_send(const char *lines) {
    const char *text = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = text ? strlen(text) : 0;
    if (size < 2 || size >= sizeof(address.sun_path) || (text[0] != '/' && text[0] != '@'))
        return false;
    memcpy(address.sun_path, text, size);
    bool is_abstract = text[0] == '@';
    if (is_abstract)
        address.sun_path[0] = '\0';
    /* The size must not include a NUL at the end of an abstract name: it would be part of the name.
     */
    socklen_t address_size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + !is_abstract);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    ssize_t sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                          address_size);
    close(fd);
    return sent == (ssize_t)strlen(lines);
}

uint64_t notify_watchdog_ms(void) {
    const char *interval = getenv("WATCHDOG_USEC");
    const char *wanted_pid = getenv("WATCHDOG_PID");
    uint64_t interval_us = 0;
    uint64_t pid = (uint64_t)getpid();
    if (!interval || !decimal_parse_u64(slice_of(interval), &interval_us))
        return 0;
    if (wanted_pid && (!decimal_parse_u64(slice_of(wanted_pid), &pid) || pid != (uint64_t)getpid()))
        return 0;
    return interval_us / 1000;
}

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
