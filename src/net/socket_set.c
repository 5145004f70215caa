#include "net/socket_set.h"

#include <assert.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_PER_CALL 512
/* All ready sockets share what a turn reads, so that senders of large bodies delay the small
 * requests of others by about a millisecond. Smaller reads would cost more than they bring. */
#define TURN_READ_BYTES      (128 << 10)
#define TURN_READ_BYTES_EACH 2048
/* More sockets than a descriptor table usually has. Others are reported in the next turn. */
#define CALLS_PER_TURN 64
/* In registered only: the kernel reports each write once, so a report must not be left out. */
#define WATCH_EDGES 0x80

static bool set_registered(struct socket_set *set, struct socket_watch *watch, uint8_t bits) {
    struct epoll_event event = {.events = bits, .data.ptr = watch};
    int operation = bits == 0                ? EPOLL_CTL_DEL
                    : watch->registered == 0 ? EPOLL_CTL_ADD
                                             : EPOLL_CTL_MOD;
    if (bits == watch->registered)
        return true;
    if (epoll_ctl(set->epoll, operation, watch->fd, &event) != 0)
        return false;
    watch->registered = bits;
    return true;
}

bool socket_set_want(struct socket_set *set, struct socket_watch *watch, uint8_t wanted) {
    if (watch->fd < 0)
        return false;
    watch->wanted = wanted;
    return (wanted & ~watch->registered) == 0 || set_registered(set, watch, wanted);
}

bool socket_set_want_edges(struct socket_set *set, struct socket_watch *watch) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = watch};
    watch->wanted = EPOLLIN;
    watch->registered = EPOLLIN | WATCH_EDGES;
    return epoll_ctl(set->epoll, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

/* The kernel reports an end or an error also to those that want nothing, again and again. */
static void report(struct socket_set *set, struct socket_watch *watch, uint32_t events) {
    bool is_broken = events & (EPOLLHUP | EPOLLERR);
    uint32_t wanted = is_broken ? watch->wanted : events & watch->wanted;
    if (watch->fd < 0)
        return;
    if (wanted != 0)
        watch->events->ready(watch, events);
    else
        (void)set_registered(set, watch, watch->wanted);
}

static uint32_t read_share(int ready_count) {
    uint32_t share = TURN_READ_BYTES / (ready_count > 0 ? (uint32_t)ready_count : 1);
    return share > TURN_READ_BYTES_EACH ? share : TURN_READ_BYTES_EACH;
}

/* A turn must not leave out any socket: after a pause of the process all input is read before
 * deadlines are checked. A socket that is still ready when the next call reports it has had its
 * turn; the kernel reports it again after the others. */
void socket_set_wait(struct socket_set *set, int timeout_ms) {
    struct epoll_event ready[EVENTS_PER_CALL];
    int count = EVENTS_PER_CALL;
    set->turn++;
    for (int calls = 0; count == EVENTS_PER_CALL && calls < CALLS_PER_TURN; calls++) {
        bool has_new = calls == 0;
        count = epoll_wait(set->epoll, ready, EVENTS_PER_CALL, calls == 0 ? timeout_ms : 0);
        if (calls == 0)
            clock_tick(set->host->clock);
        set->read_share = set->reads_all ? UINT32_MAX : read_share(count);
        for (int i = 0; i < count; i++) {
            struct socket_watch *watch = ready[i].data.ptr;
            if (watch->turn == set->turn && !(watch->registered & WATCH_EDGES))
                continue;
            watch->turn = set->turn;
            has_new = true;
            report(set, watch, ready[i].events);
        }
        if (!has_new)
            break;
    }
}

void socket_set_forget(struct socket_set *set, struct socket_watch *watch) {
    /* A copy of the socket in a process that was forked would keep it in the set. */
    if (watch->fd >= 0) {
        (void)set_registered(set, watch, 0);
        close(watch->fd);
    }
    watch->fd = -1;
    watch->wanted = watch->registered = 0;
}

void socket_set_drop(struct socket_set *set, struct socket_watch *watch) {
    bool is_first = !set->closed;
    socket_set_forget(set, watch);
    watch->next_closed = set->closed;
    set->closed = watch;
    if (is_first && set->host->dropped)
        set->host->dropped(set->host);
}

bool socket_set_run_closed(struct socket_set *set) {
    bool has_any = set->closed;
    while (set->closed) {
        struct socket_watch *watch = set->closed;
        set->closed = watch->next_closed;
        watch->events->closed(watch);
    }
    return has_any;
}

enum status socket_set_open(struct socket_set *set, struct socket_host *host) {
    *set = (struct socket_set){.host = host, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    return set->epoll < 0 ? STATUS_SYSTEM_ERROR : STATUS_OK;
}

void socket_set_close(struct socket_set *set) {
    assert(!set->closed);
    close(set->epoll);
}
