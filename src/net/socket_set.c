#include "net/socket_set.h"

#include <assert.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_PER_CALL 512
/* More sockets than a descriptor table usually has. Others are reported in the next turn. */
#define CALLS_PER_TURN 64

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

/* False: the socket was reported in this turn already. The kernel reports a socket that is still
 * ready again, after the others. */
static bool report_once(struct socket_set *set, struct socket_watch *watch, uint32_t events) {
    if (watch->turn == set->turn)
        return false;
    watch->turn = set->turn;
    report(set, watch, events);
    return true;
}

/* After a pause of the process all input is read before deadlines are checked, so a turn must not
 * leave out any socket. */
static void on_ready(uv_poll_t *poll, int error, int events) {
    struct socket_set *set = poll->data;
    struct epoll_event ready[EVENTS_PER_CALL];
    int count = error == 0 ? EVENTS_PER_CALL : 0;
    (void)events;
    set->turn++;
    for (int calls = 0; count == EVENTS_PER_CALL && calls < CALLS_PER_TURN; calls++) {
        bool has_new = false;
        count = epoll_wait(set->epoll, ready, EVENTS_PER_CALL, 0);
        for (int i = 0; i < count; i++)
            has_new = report_once(set, ready[i].data.ptr, ready[i].events) || has_new;
        if (!has_new)
            break;
    }
}

void socket_set_drop(struct socket_set *set, struct socket_watch *watch) {
    /* A copy of the socket in a process that was forked would keep it in the set. */
    if (watch->fd >= 0) {
        (void)set_registered(set, watch, 0);
        close(watch->fd);
    }
    watch->fd = -1;
    watch->wanted = watch->registered = 0;
    watch->next_closed = set->closed;
    set->closed = watch;
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

enum status socket_set_open(struct socket_set *set, uv_loop_t *loop) {
    set->closed = NULL;
    set->turn = 0;
    set->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (set->epoll < 0)
        return STATUS_SYSTEM_ERROR;
    set->poll.data = set;
    if (uv_poll_init(loop, &set->poll, set->epoll) == 0 &&
        uv_poll_start(&set->poll, UV_READABLE, on_ready) == 0)
        return STATUS_OK;
    return STATUS_SYSTEM_ERROR;
}

void socket_set_close(struct socket_set *set) {
    assert(!set->closed);
    uv_close((uv_handle_t *)&set->poll, NULL);
    close(set->epoll);
}
