#include "net/loop.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"

#define BACKLOG 4096
/* A flood of connections must not delay those that are open. */
#define ACCEPTS_PER_TURN 16
/* How long a listener pauses that cannot accept. Descriptors that become free meanwhile do not end
 * the pause: in a flood they come one at a time, and the loop would do nothing but try. */
#define ACCEPT_RETRY_MS 50
/* A timer that is this late shows that the process was stopped, or that a turn took very long. */
#define TIMER_LATE_MS 100

static void timer_arm(struct io_loop *loop);
static void timer_start(struct io_loop *loop, uint64_t delay_ms);

/* ---- deadlines ---- */

static void on_timer(uv_timer_t *timer) {
    struct io_loop *loop = timer->data;
    clock_tick(&loop->clock);
    bool is_late = clock_mono_ms(&loop->clock) > loop->timer_due_ms + TIMER_LATE_MS;
    /* Peers have sent input during the pause. The loop reads it before it judges their silence,
     * once: a loop whose turns all take long must not put off its deadlines for ever. */
    loop->reads_before_deadlines = is_late && !loop->reads_before_deadlines;
    if (loop->reads_before_deadlines) {
        timer_start(loop, 1);
        return;
    }
    struct deadline *deadline;
    while ((deadline = deadline_expired(&loop->deadlines, clock_mono_ms(&loop->clock))))
        loop->deadlines.kinds[deadline->kind].expired(deadline);
    timer_arm(loop);
}

static void timer_arm(struct io_loop *loop) {
    uint64_t next_ms = deadline_next_ms(&loop->deadlines);
    uint64_t now_ms = clock_mono_ms(&loop->clock);
    if (next_ms == UINT64_MAX || loop->state == LOOP_ENDING)
        return;
    timer_start(loop, next_ms > now_ms ? next_ms - now_ms : 1);
}

static void timer_start(struct io_loop *loop, uint64_t delay_ms) {
    loop->timer_due_ms = clock_mono_ms(&loop->clock) + delay_ms;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->timer, on_timer, delay_ms, 0);
}

void io_loop_deadline(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind) {
    io_loop_deadline_in(loop, deadline, kind, loop->deadlines.kinds[kind].delay_ms);
}

void io_loop_deadline_in(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind,
                         uint64_t delay_ms) {
    deadline_set_at(&loop->deadlines, deadline, kind, clock_mono_ms(&loop->clock) + delay_ms);
    /* An active timer fires no later than the earliest deadline so far. Only an earlier deadline
     * changes it. */
    if (!uv_is_active((uv_handle_t *)&loop->timer) || uv_timer_get_due_in(&loop->timer) > delay_ms)
        timer_arm(loop);
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

static void on_wake(uv_async_t *wake) {
    struct io_loop *loop = wake->data;
    clock_tick(&loop->clock);
    run_tasks(loop);
}

static void wake_loop(void *user) {
    struct io_loop *loop = user;
    uv_async_send(&loop->wake);
}

enum status io_loop_post(struct io_loop *loop, struct loop_task *task) {
    return mailbox_post(&loop->mailbox, &task->item);
}

/* ---- turns ---- */

static void on_idle(uv_idle_t *idle) {
    (void)idle;
}

void io_loop_announce_at_end(struct io_loop *loop, void (*announce)(void *user), void *user) {
    assert(!loop->announce || loop->announced == user);
    loop->announce = announce;
    loop->announced = user;
}

static void announce_posts(struct io_loop *loop) {
    void (*announce)(void *user) = loop->announce;
    loop->announce = NULL;
    if (announce)
        announce(loop->announced);
}

static void on_prepare(uv_prepare_t *prepare) {
    struct io_loop *loop = prepare->data;
    announce_posts(loop);
    bool has_work = loop->hooks->before_sleep(loop);
    /* A connection that is gone may be the last thing that the owner waits for. */
    has_work = socket_set_run_closed(&loop->sockets) || has_work;
    /* Again, for posts of the hook. */
    announce_posts(loop);
    if (loop->state == LOOP_ENDING)
        return;
    if (has_work)
        uv_idle_start(&loop->idle, on_idle);
    else
        uv_idle_stop(&loop->idle);
}

/* ---- accepting ---- */

static void on_connection(uv_poll_t *poll, int error, int events);

static void on_accept_retry(struct deadline *retry) {
    struct io_listener *listener = container_of(retry, struct io_listener, retry);
    listener->is_paused = false;
    uv_poll_start(&listener->poll, UV_READABLE, on_connection);
}

/* Without a pause a listener that cannot accept would be ready in every turn, and the loop would do
 * nothing else. */
static void listener_pause(struct io_loop *loop, struct io_listener *listener, int error) {
    uint64_t held_count;
    if (log_gate_pass(&loop->accept_log, clock_mono_ms(&loop->clock), &held_count))
        log_event(LOG_WARN, "accept.failed", log_str("error", strerror(error)),
                  log_int("held_back", (int64_t)held_count));
    listener->is_paused = true;
    uv_poll_stop(&listener->poll);
    io_loop_deadline(loop, &listener->retry, DEADLINE_ACCEPT);
}

/* Whether accept failed for this connection only, or because none waits. */
static bool is_passing(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED ||
           error == EPROTO || error == EPERM;
}

static void on_connection(uv_poll_t *poll, int error, int events) {
    struct io_listener *listener = container_of(poll, struct io_listener, poll);
    struct io_loop *loop = poll->loop->data;
    enum listener_kind kind = (enum listener_kind)(listener - loop->listeners);
    (void)events;
    clock_tick(&loop->clock);
    if (error != 0) {
        listener_pause(loop, listener, -error);
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        int fd =
            accept4(listener->fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && is_passing(errno))
            return;
        if (fd < 0) {
            listener_pause(loop, listener, errno);
            return;
        }
        loop->hooks->accept(loop, kind, fd, (const struct sockaddr *)&peer);
    }
}

uint64_t io_loop_forget_ms(struct io_loop *loop) {
    return step_guard_read(&loop->guard, loop->clock.reading).now_ms;
}

uint64_t io_loop_backoff_ms(struct io_loop *loop) {
    struct uuid random = uuid7_next(&loop->ids, clock_wall_ms(&loop->clock));
    uint64_t fraction = (uint64_t)random.bytes[14] << 8 | random.bytes[15];
    return loop->backoff->base_ms +
           fraction * atomic_load(&loop->backoff->spread_ms) / UINT64_C(65536);
}

static void listener_close(struct io_listener *listener) {
    if (listener->fd < 0)
        return;
    deadline_drop(&listener->retry);
    uv_close((uv_handle_t *)&listener->poll, NULL);
    close(listener->fd);
}

/* ---- the end ---- */

static void close_handles_when_free(struct io_loop *loop) {
    if (loop->state == LOOP_SERVING || loop->hold_count > 0 ||
        uv_is_closing((uv_handle_t *)&loop->wake))
        return;
    loop->state = LOOP_ENDING;
    /* The mailbox closes first, so that no thread wakes a handle that is closing. */
    mailbox_close(&loop->mailbox);
    uv_close((uv_handle_t *)&loop->timer, NULL);
    socket_set_close(&loop->sockets);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->idle, NULL);
    uv_close((uv_handle_t *)&loop->wake, NULL);
    /* Tasks posted since the last turn were accepted, and no wake-up comes for them. */
    run_tasks(loop);
}

void io_loop_hold(struct io_loop *loop) {
    loop->hold_count++;
}

void io_loop_release(struct io_loop *loop) {
    assert(loop->hold_count > 0);
    loop->hold_count--;
    close_handles_when_free(loop);
}

static void run_drain(struct loop_task *task) {
    struct io_loop *loop = container_of(task, struct io_loop, drain);
    if (loop->state != LOOP_SERVING)
        return;
    loop->state = LOOP_DRAINING;
    for (size_t kind = 0; kind < LISTENER_COUNT; kind++)
        listener_close(&loop->listeners[kind]);
    loop->hooks->drain(loop);
    close_handles_when_free(loop);
}

static void run_end(struct loop_task *task) {
    struct io_loop *loop = container_of(task, struct io_loop, end);
    if (loop->state == LOOP_SERVING)
        run_drain(&loop->drain);
    loop->hooks->close_all(loop);
    close_handles_when_free(loop);
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

/* The limit of descriptors applies to one table. With its own table each loop has as many
 * connections as the process may have descriptors. A listening socket must be in one table only, or
 * it would keep listening after its loop has closed it. The main thread has already closed the
 * sockets of the loops that started before this one. */
static void take_own_descriptors(struct io_loop *loop) {
    if (unshare(CLONE_FILES) != 0) {
        log_event(LOG_WARN, "loop.descriptors_shared", log_str("error", strerror(errno)));
        loop->has_own_descriptors = false;
        return;
    }
    for (size_t i = 0; i < loop->later_fd_count; i++)
        if (loop->later_fds[i] >= 0)
            close(loop->later_fds[i]);
}

static void loop_thread(void *user) {
    struct io_loop *loop = user;
    if (loop->has_own_descriptors)
        take_own_descriptors(loop);
    uv_sem_post(&loop->started);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    loop->hooks->ended(loop);
}

static enum status listener_open(struct io_loop *loop, struct io_listener *listener, int fd) {
    listener->fd = fd;
    if (fd < 0)
        return STATUS_OK;
    if (listen(fd, BACKLOG) != 0 || uv_poll_init(&loop->uv, &listener->poll, fd) != 0 ||
        uv_poll_start(&listener->poll, UV_READABLE, on_connection) != 0)
        return STATUS_SYSTEM_ERROR;
    return STATUS_OK;
}

static enum status handles_init(struct io_loop *loop, const struct io_loop_options *options) {
    if (uv_loop_init(&loop->uv) != 0)
        return STATUS_SYSTEM_ERROR;
    loop->uv.data = loop;
    uv_timer_init(&loop->uv, &loop->timer);
    uv_async_init(&loop->uv, &loop->wake, on_wake);
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_idle_init(&loop->uv, &loop->idle);
    loop->timer.data = loop->wake.data = loop->prepare.data = loop;
    uv_prepare_start(&loop->prepare, on_prepare);
    enum status status = socket_set_open(&loop->sockets, &loop->uv);
    for (size_t kind = 0; status == STATUS_OK && kind < LISTENER_COUNT; kind++)
        status = listener_open(loop, &loop->listeners[kind], options->fds[kind]);
    return status;
}

/* The time of the last stored event is certain to have passed. The guard believes any later time
 * only after it has watched the clock for long enough. */
static void guard_init(struct io_loop *loop, uint64_t log_ms) {
    struct clock_reading first = loop->clock.reading;
    if (first.wall_ms > log_ms)
        first.wall_ms = log_ms;
    (void)step_guard_read(&loop->guard, first);
}

enum status io_loop_open(struct io_loop *loop, const struct io_loop_options *options) {
    loop->hooks = options->hooks;
    loop->transport_events = options->transport_events;
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
    guard_init(loop, options->log_ms);
    deadline_queue_init(&loop->deadlines);
    deadline_queue_define(&loop->deadlines, DEADLINE_ACCEPT, ACCEPT_RETRY_MS, on_accept_retry);
    mailbox_init(&loop->mailbox, LOOP_TASKS_MAX, loop, wake_loop);
    enum status status = uuid7_generator_init(&loop->ids, NULL);
    return status == STATUS_OK ? handles_init(loop, options) : status;
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
    int error = uv_loop_close(&loop->uv);
    assert(error == 0);
    (void)error;
    mailbox_release(&loop->mailbox);
}
