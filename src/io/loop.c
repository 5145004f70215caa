#include "io/loop.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "delivery/session.h"
#include "delivery/topic_reader.h"
#include "http/conn.h"
#include "server/server.h"

#define TASKS_MAX 1000000
#define BACKLOG   4096
/* Long enough for an answer to cross the world, short enough for a shutdown to wait for. */
#define LINGER_MS 2000

static void timer_arm(struct io_loop *loop);

static void expired(struct deadline *deadline) {
    if (deadline->kind == DEADLINE_WAIT) {
        topic_reader_expired(topic_reader_of_deadline(deadline));
        return;
    }
    if (deadline->kind == DEADLINE_HEARTBEAT) {
        session_expired(session_of_heartbeat(deadline), deadline->kind);
        return;
    }
    if (deadline->kind == DEADLINE_EXPIRY) {
        session_expired(session_of_expiry(deadline), deadline->kind);
        return;
    }
    if (deadline->kind == DEADLINE_STRIKE_CHECK) {
        session_expired(session_of_strike_check(deadline), deadline->kind);
        return;
    }
    conn_expired(conn_of_deadline(deadline));
}

static void on_timer(uv_timer_t *timer) {
    struct io_loop *loop = timer->data;
    clock_tick(&loop->clock);
    struct deadline *deadline;
    while ((deadline = deadline_expired(&loop->deadlines, clock_mono_ms(&loop->clock))))
        expired(deadline);
    timer_arm(loop);
}

static void timer_arm(struct io_loop *loop) {
    uint64_t next_ms = deadline_next_ms(&loop->deadlines);
    uint64_t now_ms = clock_mono_ms(&loop->clock);
    if (next_ms == UINT64_MAX || loop->state == LOOP_ENDING)
        return;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->timer, on_timer, next_ms > now_ms ? next_ms - now_ms : 1, 0);
}

void io_loop_deadline(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind) {
    io_loop_deadline_in(loop, deadline, kind, loop->deadlines.delays_ms[kind]);
}

void io_loop_deadline_in(struct io_loop *loop, struct deadline *deadline, enum deadline_kind kind,
                         uint64_t delay_ms) {
    deadline_set_at(&loop->deadlines, deadline, kind, clock_mono_ms(&loop->clock) + delay_ms);
    /* A timer under way fires no later than the earliest deadline there was; only an earlier one
     * needs it moved. */
    if (!uv_is_active((uv_handle_t *)&loop->timer) || uv_timer_get_due_in(&loop->timer) > delay_ms)
        timer_arm(loop);
}

static void run_tasks(struct io_loop *loop) {
    struct mailbox_item *item = mailbox_take_all(&loop->mailbox);
    while (item) {
        struct loop_task *task = (struct loop_task *)item;
        item = item->next;
        task->run(task);
    }
}

static void close_handles_when_empty(struct io_loop *loop) {
    if (loop->state != LOOP_ENDING && (loop->state != LOOP_DRAINING || loop->conn_count > 0))
        return;
    loop->state = LOOP_ENDING;
    /* Whoever owes an answer still posts it here. */
    if (loop->conn_count > 0 || loop->owed_count > 0 || uv_is_closing((uv_handle_t *)&loop->wake))
        return;
    /* Closed first, so that nobody wakes a handle that is going. */
    mailbox_close(&loop->mailbox);
    uv_close((uv_handle_t *)&loop->timer, NULL);
    uv_close((uv_handle_t *)&loop->serve, NULL);
    uv_close((uv_handle_t *)&loop->busy, NULL);
    uv_close((uv_handle_t *)&loop->wake, NULL);
    /* What was posted since the last turn was promised to run, and nothing wakes us for it. */
    run_tasks(loop);
}

void io_loop_conn_closed(struct io_loop *loop) {
    assert(loop->conn_count > 0);
    loop->conn_count--;
    if (loop->accept_owed && loop->state == LOOP_SERVING)
        conn_accept(loop);
    if (loop->operator_accept_owed && loop->state == LOOP_SERVING)
        conn_accept_operator(loop);
    close_handles_when_empty(loop);
}

void io_loop_owed_back(struct io_loop *loop) {
    assert(loop->owed_count > 0);
    loop->owed_count--;
    close_handles_when_empty(loop);
}

static void on_connection(uv_stream_t *listener, int error) {
    struct io_loop *loop = listener->data;
    clock_tick(&loop->clock);
    if (error != 0) {
        /* One line for a flood of them, which no descriptor is left for. */
        if (!loop->accept_fails)
            log_event(LOG_WARN, "accept.failed", log_str("error", uv_strerror(error)));
        loop->accept_fails = true;
        metrics_add(METRIC_HTTP_CONNECTIONS_REFUSED, METRIC_PLAIN, 1);
        return;
    }
    loop->accept_fails = false;
    if (listener == (uv_stream_t *)&loop->operator_listener)
        conn_accept_operator(loop);
    else
        conn_accept(loop);
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

static void run_advanced(struct loop_task *task) {
    struct io_loop *loop = (struct io_loop *)((char *)task - offsetof(struct io_loop, advanced));
    feeds_run(&loop->feeds);
}

static void on_busy(uv_idle_t *busy) {
    (void)busy;
}

static void on_serve(uv_prepare_t *serve) {
    struct io_loop *loop = serve->data;
    sessions_serve(loop);
    /* Also when everybody left since: the loop would turn for nothing. */
    if (loop->scheduler.line_count > 0)
        uv_idle_start(&loop->busy, on_busy);
    else
        uv_idle_stop(&loop->busy);
}

uint64_t io_loop_forget_ms(struct io_loop *loop) {
    return step_guard_read(&loop->guard, loop->clock.reading).now_ms;
}

uint64_t io_loop_backoff_ms(struct io_loop *loop) {
    struct uuid chance = uuid7_next(&loop->ids, clock_wall_ms(&loop->clock));
    uint64_t part = (uint64_t)chance.bytes[14] << 8 | chance.bytes[15];
    return loop->config->reconnect_base_backoff_ms +
           part * atomic_load(&loop->server->return_spread_ms) / UINT64_C(65536);
}

static void run_drain(struct loop_task *task) {
    struct io_loop *loop = (struct io_loop *)((char *)task - offsetof(struct io_loop, drain));
    if (loop->state != LOOP_SERVING)
        return;
    loop->state = LOOP_DRAINING;
    uv_close((uv_handle_t *)&loop->listener, NULL);
    if (loop->has_operator_listener)
        uv_close((uv_handle_t *)&loop->operator_listener, NULL);
    conn_drain_all(loop);
    close_handles_when_empty(loop);
}

static void run_end(struct loop_task *task) {
    struct io_loop *loop = (struct io_loop *)((char *)task - offsetof(struct io_loop, end));
    if (loop->state == LOOP_SERVING)
        run_drain(&loop->drain);
    conn_close_all(loop);
    loop->state = LOOP_ENDING;
    close_handles_when_empty(loop);
}

/* A descriptor table is as large as a process may have descriptors; with one of its own each loop
 * has that many connections. What listens must be in one table only, or it would go on after its
 * loop has closed it. */
static void take_own_descriptors(struct io_loop *loop) {
    const struct server *server = loop->server;
    if (unshare(CLONE_FILES) != 0) {
        log_event(LOG_WARN, "loop.descriptors_shared", log_str("error", strerror(errno)));
        return;
    }
    loop->has_own_descriptors = true;
    for (size_t i = 0; i < server->loop_count; i++) {
        const struct io_loop *other = &server->loops[i];
        /* Those before have closed theirs in the table this one was copied from. */
        if (other <= loop)
            continue;
        close(other->listen_fd);
        if (other->operator_fd >= 0)
            close(other->operator_fd);
    }
}

static void loop_thread(void *user) {
    struct io_loop *loop = user;
    if (loop->config->own_descriptors)
        take_own_descriptors(loop);
    uv_sem_post(&loop->begun);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    server_loop_ended_post(loop->server);
}

static enum status listener_open(struct io_loop *loop, uv_tcp_t *listener, int fd) {
    uv_tcp_init(&loop->uv, listener);
    listener->data = loop;
    if (uv_tcp_open(listener, fd) != 0 ||
        uv_listen((uv_stream_t *)listener, BACKLOG, on_connection) != 0)
        return STATUS_SYSTEM_ERROR;
    return STATUS_OK;
}

static enum status handles_init(struct io_loop *loop, int listen_fd, int operator_fd) {
    if (uv_loop_init(&loop->uv) != 0)
        return STATUS_SYSTEM_ERROR;
    uv_timer_init(&loop->uv, &loop->timer);
    uv_async_init(&loop->uv, &loop->wake, on_wake);
    uv_prepare_init(&loop->uv, &loop->serve);
    uv_idle_init(&loop->uv, &loop->busy);
    loop->serve.data = loop;
    uv_prepare_start(&loop->serve, on_serve);
    loop->timer.data = loop->wake.data = loop;
    enum status status = listener_open(loop, &loop->listener, listen_fd);
    if (status != STATUS_OK || operator_fd < 0)
        return status;
    loop->has_operator_listener = true;
    return listener_open(loop, &loop->operator_listener, operator_fd);
}

/* Time went on from the last event at least, and for how long after is for the clock to prove. */
static void guard_init(struct io_loop *loop) {
    struct clock_reading begun = loop->clock.reading;
    if (begun.wall_ms > loop->server->log_ms)
        begun.wall_ms = loop->server->log_ms;
    (void)step_guard_read(&loop->guard, begun);
}

enum status io_loop_open(struct io_loop *loop, struct server *server, int listen_fd,
                         int operator_fd) {
    const struct config *config = &server->config;
    loop->server = server;
    loop->config = config;
    loop->state = LOOP_SERVING;
    loop->listen_fd = listen_fd;
    loop->operator_fd = operator_fd;
    loop->limits = HTTP1_LIMITS_DEFAULT;
    loop->limits.line_bytes_max = CONFIG_LINE_BYTES_MAX;
    loop->limits.head_bytes_max = config->request_head_bytes_max;
    loop->advanced.run = run_advanced;
    loop->drain.run = run_drain;
    loop->end.run = run_end;
    clock_init(&loop->clock);
    guard_init(loop);
    append_parser_init(&loop->reader, server->body_bytes_max);
    deadline_queue_init(&loop->deadlines);
    loop->deadlines.delays_ms[DEADLINE_REQUEST] = config->request_timeout_ms;
    loop->deadlines.delays_ms[DEADLINE_IDLE] = config->idle_timeout_ms;
    loop->deadlines.delays_ms[DEADLINE_LINGER] = LINGER_MS;
    loop->deadlines.delays_ms[DEADLINE_HEARTBEAT] = config->heartbeat_ms;
    loop->deadlines.delays_ms[DEADLINE_SILENCE] = config->silence_timeout_ms;
    loop->deadlines.delays_ms[DEADLINE_STRIKE_CHECK] = config->slow_consumer_check_ms;
    scheduler_init(&loop->scheduler, &(struct scheduler_options){config->fair_topic_slice_limit,
                                                                 DELIVERY_FRAMES_MAX});
    page_tools_init(&loop->page_tools, loop);
    ws_shared_init(&loop->websockets);
    mailbox_init(&loop->mailbox, TASKS_MAX, loop, wake_loop);
    enum status status = uuid7_generator_init(&loop->ids, NULL);
    if (status == STATUS_OK)
        status = handles_init(loop, listen_fd, operator_fd);
    if (status == STATUS_OK)
        feeds_open(&loop->feeds, loop, server->hub);
    return status;
}

enum status io_loop_start(struct io_loop *loop) {
    if (uv_sem_init(&loop->begun, 0) != 0)
        return STATUS_SYSTEM_ERROR;
    bool started = uv_thread_create(&loop->thread, loop_thread, loop) == 0;
    if (started)
        uv_sem_wait(&loop->begun);
    uv_sem_destroy(&loop->begun);
    return started ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

enum status io_loop_post(struct io_loop *loop, struct loop_task *task) {
    return mailbox_post(&loop->mailbox, &task->item);
}

/* A loop that has ended already refuses these, which is as good as done. Each is posted by the
 * control loop only, and not again before it has run: a linked item must not be posted twice. */
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

void io_loop_join(struct io_loop *loop) {
    uv_thread_join(&loop->thread);
    int error = uv_loop_close(&loop->uv);
    assert(error == 0);
    (void)error;
    feeds_close(&loop->feeds);
    scheduler_release(&loop->scheduler);
    page_tools_release(&loop->page_tools);
    ws_shared_release(&loop->websockets);
    if (loop->deflater)
        ws_deflater_release(loop->deflater);
    free(loop->deflater);
    append_parser_release(&loop->reader);
    mailbox_release(&loop->mailbox);
}
