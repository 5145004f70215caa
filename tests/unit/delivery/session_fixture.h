/* Sessions over a fake connection: a real store, hub and store pool, an io loop that the test turns
 * by hand, an outlet that keeps what is pushed, and a dialect whose messages are short words. */
#ifndef SESSION_FIXTURE_H
#define SESSION_FIXTURE_H

#include "delivery/delivery.h"
#include "delivery/publisher.h"
#include "delivery/serving.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "delivery/session/session_events.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"

struct session_fixture {
    struct io_loop io;
    struct io_backoff backoff;
    struct hub *hub;
    struct publisher *publisher;
    struct store_pool *pool;
    struct policy_table policies;
    struct telemetry telemetry;
    struct delivery delivery;
    struct delivery_loop loop;
    struct outlet outlet;
    struct session *session;
    struct buffer written;
    struct push *blocked; /* being written, as far as the session knows */
    bool blocks;          /* the next push is not taken whole */
    bool has_unsent;
    bool is_lingering;
    bool is_reset;
    enum deadline_kind deadline;
};

static struct session_fixture fixture;

/* ---- the outlet ---- */

static inline enum outlet_result fake_push(struct outlet *outlet, struct slice before,
                                           struct push *push) {
    (void)outlet;
    assert_null(fixture.blocked);
    assert_ok(buffer_append_slice(&fixture.written, before));
    assert_ok(buffer_append_slice(&fixture.written, (struct slice){push->data, push->size}));
    if (fixture.blocks) {
        fixture.blocked = push;
        return OUTLET_BLOCKED;
    }
    push_unref(push);
    return OUTLET_SENT;
}

static inline enum outlet_result fake_push_bytes(struct outlet *outlet, struct slice bytes) {
    struct push *push;
    assert_ok(push_make(&push, bytes));
    return fake_push(outlet, (struct slice){NULL, 0}, push);
}

static inline bool fake_is_blocked(const struct outlet *outlet) {
    (void)outlet;
    return fixture.blocked != NULL;
}

static inline size_t fake_unsent_bytes(const struct outlet *outlet) {
    (void)outlet;
    return fixture.blocked ? fixture.blocked->size : 0;
}

static inline bool fake_has_unsent(const struct outlet *outlet) {
    (void)outlet;
    return fixture.has_unsent;
}

static inline void fake_nothing(struct outlet *outlet) {
    (void)outlet;
}

static inline enum status fake_admit(struct outlet *outlet, const struct principal *principal) {
    (void)outlet;
    (void)principal;
    return STATUS_OK;
}

static inline void fake_set_deadline(struct outlet *outlet, enum deadline_kind kind) {
    (void)outlet;
    fixture.deadline = kind;
}

static inline void fake_linger(struct outlet *outlet) {
    (void)outlet;
    fixture.is_lingering = true;
}

static inline void fake_close(struct outlet *outlet) {
    (void)outlet;
    session_disconnected(fixture.session);
}

static inline void fake_reset(struct outlet *outlet) {
    fixture.is_reset = true;
    fake_close(outlet);
}

static inline struct slice fake_peer(const struct outlet *outlet,
                                     char text[OUTLET_PEER_BYTES_MAX]) {
    (void)outlet;
    (void)text;
    return SLICE("192.0.2.1");
}

static const struct outlet_table fake_table = {
    .push = fake_push,
    .push_bytes = fake_push_bytes,
    .is_blocked = fake_is_blocked,
    .unsent_bytes = fake_unsent_bytes,
    .has_unsent = fake_has_unsent,
    .lift_unsent_limit = fake_nothing,
    .admit = fake_admit,
    .pause_reading = fake_nothing,
    .resume_reading = fake_nothing,
    .set_deadline = fake_set_deadline,
    .linger = fake_linger,
    .close = fake_close,
    .reset = fake_reset,
    .peer = fake_peer,
};

/* ---- the dialect ---- */

static inline enum status put_word(struct buffer *out, const char *word) {
    return buffer_append_slice(out, slice_of(word));
}

static inline void word_opened(struct session *session, struct session_opening *opening) {
    (void)session;
    for (size_t i = 0; i < opening->count; i++)
        subscriber_start(opening->subscribers[i]);
}

static inline enum status word_bootstrap(struct subscriber *subscriber, struct buffer *out) {
    (void)subscriber;
    return put_word(out, "bootstrap ");
}

static inline enum status word_caught_up(struct subscriber *subscriber, struct buffer *out) {
    (void)subscriber;
    return put_word(out, "caught_up ");
}

static inline enum status word_stale(struct subscriber *subscriber, struct buffer *out) {
    (void)subscriber;
    return put_word(out, "stale ");
}

static inline enum status word_failed(struct session *session, enum status why,
                                      struct buffer *out) {
    (void)session;
    return buffer_printf(out, "failed:%s ", status_code(why));
}

static inline enum status word_heartbeat(struct session *session, struct buffer *out) {
    (void)session;
    return put_word(out, "heartbeat ");
}

static inline enum status word_slow(struct session *session, struct buffer *out) {
    (void)session;
    return put_word(out, "slow ");
}

static inline enum status word_leaving(struct session *session, uint64_t retry_after_ms,
                                       struct buffer *out) {
    (void)session;
    (void)retry_after_ms;
    return put_word(out, "leaving ");
}

static const struct dialect word_dialect = {
    .label = LABEL_DIALECT_SSE,
    .opened = word_opened,
    .bootstrap = word_bootstrap,
    .caught_up = word_caught_up,
    .stale = word_stale,
    .restarts_stale = true,
    .failed = word_failed,
    .heartbeat = word_heartbeat,
    .slow = word_slow,
    .leaving = word_leaving,
};

static inline enum status word_page(const struct page *page, const struct page_form *form,
                                    void *tools, struct buffer *out) {
    (void)form;
    enum status status = STATUS_OK;
    (void)tools;
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++)
        status =
            buffer_printf(out, "%llu ", (unsigned long long)page->batch.frames[i]->content.seq);
    return status;
}

static const struct page_form word_form = {.bytes_max = 1u << 20, .encode = word_page};

/* ---- the loop ---- */

static inline void fixture_ignore(struct io_loop *io) {
    (void)io;
}

static inline void fixture_accept(struct io_loop *io, enum listener_kind kind, int fd,
                                  const struct sockaddr *peer) {
    (void)io;
    (void)kind;
    (void)fd;
    (void)peer;
}

static inline bool fixture_serve(struct io_loop *io) {
    (void)io;
    return delivery_loop_serve(&fixture.loop);
}

static const struct io_loop_hooks fixture_hooks = {.accept = fixture_accept,
                                                   .drain = fixture_ignore,
                                                   .close_all = fixture_ignore,
                                                   .before_sleep = fixture_serve,
                                                   .ended = fixture_ignore};

/* Turns the loop until no call is under way, the session has no job and no subscriber has a turn.
 * While a call is under way the loop sleeps, because the call's return wakes it. */
static inline void fixture_settle(void) {
    /* The second idle turn takes commits that the hub announced through the loop's mailbox. */
    for (size_t idle_turns = 0; idle_turns < 2; idle_turns++) {
        io_loop_turn(&fixture.io, fixture.io.hold_count > 0);
        while (session_job(fixture.session) != SESSION_JOB_NONE || fixture.io.hold_count > 0 ||
               fixture.loop.scheduler.queued_count > 0) {
            idle_turns = 0;
            io_loop_turn(&fixture.io, fixture.io.hold_count > 0);
        }
    }
}

static inline void fixture_open(size_t committed) {
    memset(&fixture, 0, sizeof(fixture));
    policy_table_init(&fixture.policies);
    assert_ok(hub_open(&fixture.hub, &(struct hub_options){{8, 1u << 20}, 64u << 20}));
    fixture.publisher = publisher_open(fixture.hub);
    while (committed > 0) {
        size_t count = committed > PUBLISHER_BATCH_MAX ? PUBLISHER_BATCH_MAX : committed;
        publisher_commit(fixture.publisher, count);
        committed -= count;
    }
    assert_ok(store_pool_start(&fixture.pool, fixture.publisher->store,
                               &(struct store_pool_options){1, 100, 100}));
    fixture.telemetry.policies = &fixture.policies;
    assert_ok(causes_open(&fixture.telemetry.causes, 64));
    assert_ok(topic_activity_open(&fixture.telemetry.activity, 16));
    fixture.delivery = (struct delivery){.options = {.heartbeat_ms = 60000,
                                                     .strike_check_ms = 60000,
                                                     .lag_max = 10,
                                                     .strikes_max = 2,
                                                     .slice_frames = 100},
                                         .policies = &fixture.policies,
                                         .epoch = "e",
                                         .hub = fixture.hub,
                                         .store_pool = fixture.pool,
                                         .telemetry = &fixture.telemetry};
    assert_ok(io_loop_open(&fixture.io, &(struct io_loop_options){.hooks = &fixture_hooks,
                                                                  .backoff = &fixture.backoff,
                                                                  .fds = {-1, -1}}));
    delivery_loop_open(&fixture.loop, &fixture.delivery, &fixture.io);
    sessions_define_deadlines(&fixture.loop);
    buffer_init(&fixture.written, 1u << 20);
    fixture.outlet.table = &fake_table;
    fixture.session = session_new(&(struct session_options){.delivery = &fixture.loop,
                                                            .outlet = &fixture.outlet,
                                                            .name = SLICE("request-1"),
                                                            .dialect = &word_dialect,
                                                            .principal = &principal_operator,
                                                            .head = SLICE("head ")});
    assert_non_null(fixture.session);
    session_flush(fixture.session);
}

/* A subscriber of the topic, opened; after_seq UINT64_MAX: a bootstrap. */
static inline struct subscriber *fixture_subscribe(const char *topic, uint64_t after_seq) {
    struct subscriber *subscriber;
    bool has_cursor = after_seq != UINT64_MAX;
    const struct subscription_options options = {
        .view = GRANT_VIEW_OWN, .has_cursor = has_cursor, .after_seq = has_cursor ? after_seq : 0};
    assert_ok(subscriber_new(fixture.session, slice_of(topic), &options, &subscriber));
    subscriber->form = &word_form;
    assert_ok(session_open_one(fixture.session, subscriber));
    return subscriber;
}

/* Everything written so far, once. */
#define assert_written(text)                                                                       \
    do {                                                                                           \
        assert_slice(buffer_slice(&fixture.written), text);                                        \
        buffer_clear(&fixture.written);                                                            \
    } while (0)

/* The socket took the push that blocked. */
static inline void fixture_unblock(void) {
    push_unref(fixture.blocked);
    fixture.blocked = NULL;
    fixture.blocks = false;
    session_writable(fixture.session);
}

static inline void fixture_close(void) {
    session_disconnected(fixture.session);
    if (fixture.blocked)
        push_unref(fixture.blocked);
    session_free(fixture.session);
    io_loop_end_post(&fixture.io);
    io_loop_run(&fixture.io);
    io_loop_close(&fixture.io);
    delivery_loop_release(&fixture.loop);
    store_pool_stop(fixture.pool);
    topic_activity_close(fixture.telemetry.activity);
    causes_close(fixture.telemetry.causes);
    publisher_close(fixture.publisher);
    hub_close(fixture.hub);
    buffer_release(&fixture.written);
}

#endif
