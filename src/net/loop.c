#include "net/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"

#define BACKLOG 4096
/* A flood of connections must not delay those that are open. */
#define ACCEPTS_PER_TURN 16
/* How long a listener pauses that cannot accept. Descriptors that become free meanwhile do not end
 * the pause: in a flood they come one at a time, and the loop would do nothing but try. */
#define ACCEPT_RETRY_MS  50
#define DEADLINE_LATE_MS 100

/* ---- deadlines ---- */

/* The input of the turn was read before. If the deadlines are long overdue, the process was stopped
 * or the turn took very long, and peers have sent more meanwhile: the next turn reads it before
 * their silence is judged. That happens once: a loop whose turns all take long must not put off its
 * deadlines for ever. */
static void pass_deadlines(struct io_loop *loop) {
    uint64_t now_ms = clock_mono_ms(&loop->clock), next_ms = deadline_next_ms(&loop->deadlines);
    if (next_ms > now_ms) {
        loop->reads_before_deadlines = false;
        return;
    }
    loop->reads_before_deadlines =
        now_ms - next_ms > DEADLINE_LATE_MS && !loop->reads_before_deadlines;
    if (loop->reads_before_deadlines)
        return;
    struct deadline *deadline;
    while ((deadline = deadline_expired(&loop->deadlines, clock_mono_ms(&loop->clock))))
        loop->deadlines.kinds[deadline->kind].expired(deadline);
}

void io_loop_deadline(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind) {
    io_loop_deadline_in(loop, deadline, kind, loop->deadlines.kinds[kind].delay_ms);
}

void io_loop_deadline_in(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind,
                         uint64_t delay_ms) {
    /* One that is due at once passes after the loop has slept. A notice that a token ends soon must
     * not go before the frames of the opening: a client would reconnect each time before it has
     * any. */
    uint64_t at_ms = clock_mono_ms(&loop->clock) + (delay_ms > 0 ? delay_ms : 1);
    deadline_set_at(&loop->deadlines, deadline, kind, at_ms);
}

/* ---- tasks ---- */

static void run_tasks(struct io_loop *loop) {
    struct mailbox_item *item = mailbox_take_all(&loop->mailbox);
    while (item) {
        struct loop_task *task = container_of(item, struct loop_task, item);
        item = item->next;
        task->run(task);
    }
}

static void on_wake(struct socket_watch *wake, uint32_t events) {
    (void)events;
    run_tasks(container_of(wake, struct io_loop, wake));
}

static void on_watch_closed(struct socket_watch *watch) {
    (void)watch;
}

static const struct socket_events wake_events = {on_wake, on_watch_closed};

/* The counter is never read: the set reports each write. A full counter is still readable. */
static void wake_loop(void *user) {
    struct io_loop *loop = user;
    const uint64_t one = 1;
    ssize_t written = write(loop->wake.fd, &one, sizeof(one));
    (void)written;
}

enum status io_loop_post(struct io_loop *loop, struct loop_task *task) {
    return mailbox_post(&loop->mailbox, &task->item);
}

/* ---- turns ---- */

void io_loop_at_turn_end(struct io_loop *loop, void (*run)(void *user), void *user) {
    assert(!loop->at_turn_end || loop->at_turn_end_user == user);
    loop->at_turn_end = run;
    loop->at_turn_end_user = user;
}

static void run_turn_end(struct io_loop *loop) {
    void (*run)(void *user) = loop->at_turn_end;
    loop->at_turn_end = NULL;
    if (run)
        run(loop->at_turn_end_user);
}

static int sleep_ms(struct io_loop *loop) {
    uint64_t next_ms = deadline_next_ms(&loop->deadlines);
    if (loop->has_work || next_ms == UINT64_MAX)
        return loop->has_work ? 0 : -1;
    clock_tick(&loop->clock);
    uint64_t now_ms = clock_mono_ms(&loop->clock);
    uint64_t left_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

void io_loop_turn(struct io_loop *loop, bool may_sleep) {
    pass_deadlines(loop);
    run_turn_end(loop);
    loop->has_work = loop->hooks->before_sleep(loop);
    /* A connection that is gone may be the last thing that the owner waits for. */
    loop->has_work = socket_set_run_closed(&loop->sockets) || loop->has_work;
    /* Again, for posts of the hook. */
    run_turn_end(loop);
    if (loop->state == LOOP_ENDING)
        return;
    loop->sockets.reads_all = loop->reads_before_deadlines;
    socket_set_wait(&loop->sockets, may_sleep ? sleep_ms(loop) : 0);
}

void io_loop_run(struct io_loop *loop) {
    while (loop->state != LOOP_ENDING)
        io_loop_turn(loop, true);
}

/* ---- accepting ---- */

static void on_accept_retry(struct deadline *retry) {
    struct io_listener *listener = container_of(retry, struct io_listener, retry);
    /* A socket that cannot be watched is tried again as one that cannot accept. */
    if (!socket_set_want(&listener->loop->sockets, &listener->watch, EPOLLIN))
        io_loop_deadline(listener->loop, retry, DEADLINE_ACCEPT);
}

/* Without a pause a listener that cannot accept would be ready in every turn, and the loop would do
 * nothing else. */
static void listener_pause(struct io_listener *listener, int error) {
    struct io_loop *loop = listener->loop;
    uint64_t held_count;
    if (log_gate_pass(&loop->accept_log, clock_mono_ms(&loop->clock), &held_count))
        log_event(LOG_WARN, "accept.failed", log_str("error", strerror(error)),
                  log_int("held_back", (int64_t)held_count));
    bool is_stopped = socket_set_want(&loop->sockets, &listener->watch, 0);
    assert(is_stopped); /* fewer bits never fail */
    (void)is_stopped;
    io_loop_deadline(loop, &listener->retry, DEADLINE_ACCEPT);
}

/* Whether accept failed for this connection only, or because none waits. */
static bool is_passing(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED ||
           error == EPROTO || error == EPERM;
}

static void on_connection(struct socket_watch *watch, uint32_t events) {
    struct io_listener *listener = container_of(watch, struct io_listener, watch);
    struct io_loop *loop = listener->loop;
    enum listener_kind kind = (enum listener_kind)(listener - loop->listeners);
    (void)events;
    clock_tick(&loop->clock);
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        int fd = accept4(watch->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && is_passing(errno))
            return;
        if (fd < 0) {
            listener_pause(listener, errno);
            return;
        }
        loop->hooks->accept(loop, kind, fd, (const struct sockaddr *)&peer);
    }
}

static const struct socket_events listener_events = {on_connection, on_watch_closed};

uint64_t io_loop_forget_ms(struct io_loop *loop) {
    return step_guard_read(&loop->guard, loop->clock.reading).now_ms;
}

uint64_t io_loop_backoff_ms(struct io_loop *loop) {
    struct uuid random = uuid7_next(&loop->ids, clock_wall_ms(&loop->clock));
    uint64_t fraction = (uint64_t)random.bytes[14] << 8 | random.bytes[15];
    return loop->backoff->base_ms +
           fraction * atomic_load(&loop->backoff->spread_ms) / UINT64_C(65536);
}

/* ---- the end ---- */

static void end_when_free(struct io_loop *loop) {
    if (loop->state != LOOP_DRAINING || loop->hold_count > 0)
        return;
    loop->state = LOOP_ENDING;
    mailbox_close(&loop->mailbox);
    /* Tasks posted since the last turn were accepted, and no wake-up comes for them. */
    run_tasks(loop);
}

void io_loop_hold(struct io_loop *loop) {
    loop->hold_count++;
}

void io_loop_release(struct io_loop *loop) {
    assert(loop->hold_count > 0);
    loop->hold_count--;
    end_when_free(loop);
}

static void run_drain(struct loop_task *task) {
    struct io_loop *loop = container_of(task, struct io_loop, drain);
    if (loop->state != LOOP_SERVING)
        return;
    loop->state = LOOP_DRAINING;
    for (size_t kind = 0; kind < LISTENER_COUNT; kind++)
        if (loop->listeners[kind].watch.fd >= 0) {
            deadline_drop(&loop->listeners[kind].retry);
            socket_set_drop(&loop->sockets, &loop->listeners[kind].watch);
        }
    loop->hooks->drain(loop);
    end_when_free(loop);
}

static void run_end(struct loop_task *task) {
    struct io_loop *loop = container_of(task, struct io_loop, end);
    if (loop->state == LOOP_SERVING)
        run_drain(&loop->drain);
    loop->hooks->close_all(loop);
    end_when_free(loop);
}

/* A loop that has ended refuses these tasks, and no longer needs them. One thread posts them, each
 * at most once, because a task that is in a mailbox must not be posted again. */
static void post_once(struct io_loop *loop, struct loop_task *task, bool *posted) {
    if (*posted)
        return;
    *posted = true;
    enum status status = io_loop_post(loop, task);
    assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
    (void)status;
}

void io_loop_drain_post(struct io_loop *loop) {
    post_once(loop, &loop->drain, &loop->drain_posted);
}

void io_loop_end_post(struct io_loop *loop) {
    post_once(loop, &loop->end, &loop->end_posted);
}

/* ---- life ---- */

static void loop_thread(void *user) {
    struct io_loop *loop = user;
    /* The limit of descriptors applies to one table. With its own table each loop has as many
     * connections as the process may have descriptors. A listening socket must be in one table
     * only, or it would keep listening after its loop has closed it. The main thread has already
     * closed the sockets of the loops that started before this one. */
    if (loop->has_own_descriptors && unshare(CLONE_FILES) != 0) {
        log_event(LOG_WARN, "loop.descriptors_shared", log_str("error", strerror(errno)));
        loop->has_own_descriptors = false;
    }
    for (size_t i = 0; loop->has_own_descriptors && i < loop->later_fd_count; i++)
        if (loop->later_fds[i] >= 0)
            close(loop->later_fds[i]);
    uv_sem_post(&loop->started);
    io_loop_run(loop);
    loop->hooks->ended(loop);
}

static enum status listener_open(struct io_loop *loop, struct io_listener *listener, int fd) {
    listener->loop = loop;
    listener->watch = (struct socket_watch){.events = &listener_events, .fd = fd};
    if (fd < 0)
        return STATUS_OK;
    if (listen(fd, BACKLOG) != 0 || !socket_set_want(&loop->sockets, &listener->watch, EPOLLIN))
        return STATUS_SYSTEM_ERROR;
    return STATUS_OK;
}

static void on_lookup_done(struct socket_watch *watch, uint32_t events) {
    (void)events;
    (void)uv_run(&container_of(watch, struct io_loop, lookup_watch)->lookups, UV_RUN_NOWAIT);
}

static void on_first_turn(uv_idle_t *idle) {
    uv_close((uv_handle_t *)idle, NULL);
}

/* Libuv watches the descriptor that its threads wake it by from its first turn on, and has a turn
 * only with a handle. */
static void on_prepare(uv_prepare_t *keep) {
    (void)keep;
}

static enum status lookups_open(struct io_loop *loop) {
    uv_idle_t idle;
    if (uv_loop_init(&loop->lookups) != 0)
        return STATUS_SYSTEM_ERROR;
    uv_idle_init(&loop->lookups, &idle);
    uv_idle_start(&idle, on_first_turn);
    (void)uv_run(&loop->lookups, UV_RUN_DEFAULT);
    uv_prepare_init(&loop->lookups, &loop->lookups_keep);
    uv_prepare_start(&loop->lookups_keep, on_prepare);
    return STATUS_OK;
}

static enum status sockets_open(struct io_loop *loop, const struct io_loop_options *options) {
    static const struct socket_events lookup_events = {on_lookup_done, on_watch_closed};
    enum status status = lookups_open(loop);
    if (status != STATUS_OK)
        return status;
    loop->host = (struct socket_host){.clock = &loop->clock,
                                      .input = loop->read_memory,
                                      .plaintext = loop->plain_memory,
                                      .lookups = &loop->lookups};
    loop->wake =
        (struct socket_watch){.events = &wake_events, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    loop->lookup_watch =
        (struct socket_watch){.events = &lookup_events, .fd = uv_backend_fd(&loop->lookups)};
    status = socket_set_open(&loop->sockets, &loop->host);
    if (status == STATUS_OK &&
        (loop->wake.fd < 0 || !socket_set_want_edges(&loop->sockets, &loop->wake) ||
         !socket_set_want(&loop->sockets, &loop->lookup_watch, EPOLLIN)))
        status = STATUS_SYSTEM_ERROR;
    for (size_t kind = 0; status == STATUS_OK && kind < LISTENER_COUNT; kind++)
        status = listener_open(loop, &loop->listeners[kind], options->fds[kind]);
    return status;
}

enum status io_loop_open(struct io_loop *loop, const struct io_loop_options *options) {
    loop->hooks = options->hooks;
    loop->owner = options->owner;
    loop->backoff = options->backoff;
    loop->index = options->index;
    loop->has_own_descriptors = options->has_own_descriptors;
    loop->later_fds = options->later_fds;
    loop->later_fd_count = options->later_fd_count;
    loop->state = LOOP_SERVING;
    loop->drain.run = run_drain;
    loop->end.run = run_end;
    clock_init(&loop->clock);
    /* The time of the last stored event is certain to have passed. The guard believes any later
     * time only after it has watched the clock for long enough. */
    struct clock_reading first = loop->clock.reading;
    if (first.wall_ms > options->log_ms)
        first.wall_ms = options->log_ms;
    (void)step_guard_read(&loop->guard, first);
    deadline_queue_init(&loop->deadlines);
    deadline_queue_define(&loop->deadlines, DEADLINE_ACCEPT, ACCEPT_RETRY_MS, on_accept_retry);
    mailbox_init(&loop->mailbox, LOOP_TASKS_MAX, loop, wake_loop);
    enum status status = uuid7_generator_init(&loop->ids, NULL);
    return status == STATUS_OK ? sockets_open(loop, options) : status;
}

enum status io_loop_start(struct io_loop *loop) {
    if (uv_sem_init(&loop->started, 0) != 0)
        return STATUS_SYSTEM_ERROR;
    bool started = uv_thread_create(&loop->thread, loop_thread, loop) == 0;
    if (started)
        uv_sem_wait(&loop->started);
    uv_sem_destroy(&loop->started);
    return started ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

void io_loop_join(struct io_loop *loop) {
    uv_thread_join(&loop->thread);
    io_loop_close(loop);
}

void io_loop_close(struct io_loop *loop) {
    assert(loop->state == LOOP_ENDING);
    (void)socket_set_run_closed(&loop->sockets);
    socket_set_close(&loop->sockets);
    close(loop->wake.fd);
    uv_close((uv_handle_t *)&loop->lookups_keep, NULL);
    (void)uv_run(&loop->lookups, UV_RUN_DEFAULT);
    int error = uv_loop_close(&loop->lookups);
    assert(error == 0);
    (void)error;
    mailbox_release(&loop->mailbox);
}
