#include "cluster/fanout.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/visible.h"

#define DELAY_MS_MIN 100
#define DELAY_MS_MAX 5000
#define PING_MS      5000
/* Commits that follow each other faster share a hint. The first of them does not wait. */
#define HINT_INTERVAL_MS 5

struct fanout {
    const struct fanout_driver *driver; /* NULL: memory */
    char *url;
    struct fanout_port port;
    void *user;
    fanout_hint_cb *on_hint;
    pthread_t thread;
    pthread_mutex_t hint_lock; /* one call of on_hint at a time */
    pthread_mutex_t lock;
    /* Under lock. */
    struct hint announced; /* log_id 0: none */
    struct hint nudge;     /* log_id 0: none is to be sent */
    bool has_unsent;       /* announced is newer than the last hint sent */
    bool is_ending;
    uint64_t sent_log_id;
    struct fanout_status status;
};

static const char *const kind_names[FANOUT_KIND_COUNT] = {
    [FANOUT_MEMORY] = "memory",
    [FANOUT_POSTGRES_NOTIFY] = "postgres_notify",
    [FANOUT_NATS] = "nats",
    [FANOUT_REDIS] = "redis",
};
static const char *const state_names[FANOUT_STATE_COUNT] = {
    [FANOUT_ACTIVE] = "active",       [FANOUT_CONNECTING] = "connecting",
    [FANOUT_CONNECTED] = "connected", [FANOUT_RECONNECTING] = "reconnecting",
    [FANOUT_DOWN] = "down",
};
static const struct fanout_driver *const drivers[FANOUT_KIND_COUNT] = {
    [FANOUT_MEMORY] = NULL,
    [FANOUT_POSTGRES_NOTIFY] = &fanout_driver_postgres,
    [FANOUT_NATS] = &fanout_driver_nats,
    [FANOUT_REDIS] = &fanout_driver_redis,
};

const char *fanout_kind_name(enum fanout_kind kind) {
    assert(kind < FANOUT_KIND_COUNT);
    return kind_names[kind];
}

const char *fanout_state_name(enum fanout_state state) {
    assert(state < FANOUT_STATE_COUNT);
    return state_names[state];
}

const char *fanout_check_url(enum fanout_kind kind, const char *url) {
    assert(kind < FANOUT_KIND_COUNT);
    return drivers[kind] ? drivers[kind]->check_url(url) : NULL;
}

/* ---- the text of a hint ---- */

#define VERSION_BYTES 2
#define EPOCH_END     (VERSION_BYTES + UUID_TEXT_SIZE)

static const char version[VERSION_BYTES] = {'1', ' '};

void hint_write(const struct hint *hint, char text[HINT_BYTES]) {
    assert(hint->log_id > 0 && hint->log_id <= HINT_LOG_ID_MAX);
    memcpy(text, version, VERSION_BYTES);
    memcpy(text + VERSION_BYTES, hint->epoch, UUID_TEXT_SIZE);
    text[EPOCH_END] = ' ';
    uint64_t left = hint->log_id;
    for (size_t i = HINT_BYTES; i > EPOCH_END + 1; i--) {
        text[i - 1] = (char)('0' + left % 10);
        left /= 10;
    }
}

static bool parse_log_id(const char *digits, uint64_t *log_id) {
    uint64_t number = 0;
    for (size_t i = 0; i < HINT_LOG_ID_BYTES; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (number > (HINT_LOG_ID_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *log_id = number;
    return number > 0;
}

enum status hint_parse(struct slice text, struct hint *hint) {
    struct uuid epoch;
    struct hint made = {.log_id = 0};
    if (text.size != HINT_BYTES || memcmp(text.data, version, VERSION_BYTES) != 0 ||
        text.data[EPOCH_END] != ' ')
        return STATUS_INVALID_REQUEST;
    memcpy(made.epoch, text.data + VERSION_BYTES, UUID_TEXT_SIZE);
    if (uuid7_parse((struct slice){made.epoch, UUID_TEXT_SIZE}, &epoch) != STATUS_OK ||
        !parse_log_id(text.data + EPOCH_END + 1, &made.log_id))
        return STATUS_INVALID_REQUEST;
    *hint = made;
    return STATUS_OK;
}

/* ---- hints ---- */

static void wake(void *user) {
    struct fanout *fanout = user;
    uint64_t one = 1;
    /* It fails only where the counter is full, and then wake_fd can be read. */
    if (write(fanout->port.wake_fd, &one, sizeof(one)) < 0)
        return;
}

void fanout_announce(struct fanout *fanout, const char *epoch, uint64_t log_id) {
    if (!fanout->driver)
        return;
    assert(strlen(epoch) == UUID_TEXT_SIZE);
    pthread_mutex_lock(&fanout->lock);
    bool was_unsent = fanout->has_unsent;
    memcpy(fanout->announced.epoch, epoch, UUID_TEXT_SIZE);
    fanout->announced.log_id = log_id;
    fanout->has_unsent = true;
    pthread_mutex_unlock(&fanout->lock);
    if (!was_unsent)
        wake(fanout);
}

/* No node announces that position, so that no node takes the hint for its own. */
void fanout_nudge(struct fanout *fanout, const char *epoch) {
    if (!fanout->driver)
        return;
    assert(strlen(epoch) == UUID_TEXT_SIZE);
    pthread_mutex_lock(&fanout->lock);
    memcpy(fanout->nudge.epoch, epoch, UUID_TEXT_SIZE);
    fanout->nudge.log_id = HINT_LOG_ID_MAX;
    pthread_mutex_unlock(&fanout->lock);
    wake(fanout);
}

static void pass_on(struct fanout *fanout, const struct hint *hint) {
    pthread_mutex_lock(&fanout->hint_lock);
    if (fanout->on_hint)
        fanout->on_hint(fanout->user, hint);
    pthread_mutex_unlock(&fanout->hint_lock);
}

void fanout_listen(struct fanout *fanout, void *user, fanout_hint_cb *on_hint) {
    pthread_mutex_lock(&fanout->hint_lock);
    fanout->user = user;
    fanout->on_hint = on_hint;
    pthread_mutex_unlock(&fanout->hint_lock);
}

static void on_loss(void *user) {
    pass_on(user, NULL);
}

/* The highest hint is not remembered: a forged one would hide all true hints below it. */
static void on_text(void *user, struct slice text) {
    struct fanout *fanout = user;
    struct hint hint;
    bool is_hint = hint_parse(text, &hint) == STATUS_OK;
    pthread_mutex_lock(&fanout->lock);
    /* An echo: the node announced this position itself, or a later one. */
    bool is_echo = is_hint && hint.log_id <= fanout->announced.log_id &&
                   memcmp(hint.epoch, fanout->announced.epoch, UUID_TEXT_SIZE) == 0;
    bool is_new = is_hint && !is_echo;
    fanout->status.received += is_new;
    fanout->status.ignored += !is_hint;
    pthread_mutex_unlock(&fanout->lock);
    if (!is_hint)
        metrics_add(METRIC_FANOUT_HINTS_IGNORED, METRIC_PLAIN, 1);
    if (!is_new)
        return;
    metrics_add(METRIC_FANOUT_HINTS_RECEIVED, METRIC_PLAIN, 1);
    pass_on(fanout, &hint);
}

/* ---- the thread ---- */

static bool is_ending(struct fanout *fanout) {
    pthread_mutex_lock(&fanout->lock);
    bool answer = fanout->is_ending;
    pthread_mutex_unlock(&fanout->lock);
    return answer;
}

static void drain_wakes(const struct fanout *fanout) {
    uint64_t count;
    /* It fails only where nothing is to be read. */
    if (read(fanout->port.wake_fd, &count, sizeof(count)) < 0)
        return;
}

static void set_state(struct fanout *fanout, enum fanout_state state) {
    const char *driver = fanout->driver->name;
    if (state == FANOUT_CONNECTED)
        log_event(LOG_INFO, "fanout.connected", log_str("driver", driver),
                  log_str("channel", fanout->port.channel));
    metrics_set(METRIC_FANOUT_DRIVER_CONNECTED, METRIC_PLAIN, state == FANOUT_CONNECTED);
    pthread_mutex_lock(&fanout->lock);
    fanout->status.state = state;
    fanout->status.connects += state == FANOUT_CONNECTED;
    pthread_mutex_unlock(&fanout->lock);
}

/* A server may have any bytes in its messages, and these go to the log and into JSON. */
static void copy_visible(char copy[FANOUT_ERROR_BYTES_MAX], const char *text) {
    size_t size = 0;
    for (struct slice left = slice_of(text); left.size > 0;) {
        struct visible shown = visible_next(left, VISIBLE_TEXT);
        if (size + shown.size >= FANOUT_ERROR_BYTES_MAX)
            break;
        memcpy(copy + size, shown.bytes, shown.size);
        size += shown.size;
        left = slice_from(left, shown.consumed);
    }
    copy[size] = '\0';
}

/* Only the first failure of several in a row is logged. */
static void failed(struct fanout *fanout, const char *error) {
    pthread_mutex_lock(&fanout->lock);
    struct fanout_status *status = &fanout->status;
    bool is_first = status->state == FANOUT_CONNECTED || status->state == FANOUT_CONNECTING;
    enum fanout_state state = status->connects > 0 ? FANOUT_RECONNECTING : FANOUT_DOWN;
    status->failures++;
    status->failed_ms = clock_now().wall_ms;
    copy_visible(status->error, error);
    pthread_mutex_unlock(&fanout->lock);
    metrics_add(METRIC_FANOUT_DRIVER_FAILURES, METRIC_PLAIN, 1);
    if (is_first)
        log_event(LOG_WARN, "fanout.failing", log_str("driver", fanout->driver->name),
                  log_str("reason", error),
                  log_str("effect", "other nodes notice commits at their poll interval"));
    set_state(fanout, state);
}

static bool has_unsent(struct fanout *fanout) {
    pthread_mutex_lock(&fanout->lock);
    bool answer = fanout->has_unsent;
    pthread_mutex_unlock(&fanout->lock);
    return answer;
}

/* Nudges are rare and are always due. */
static bool take_unsent(struct fanout *fanout, struct hint *hint, bool is_due) {
    pthread_mutex_lock(&fanout->lock);
    bool is_nudge = fanout->nudge.log_id > 0;
    bool is_taken = is_nudge || (is_due && fanout->has_unsent);
    *hint = is_nudge ? fanout->nudge : fanout->announced;
    if (is_nudge)
        fanout->nudge.log_id = 0;
    else if (is_taken)
        fanout->has_unsent = false;
    pthread_mutex_unlock(&fanout->lock);
    return is_taken;
}

static void settle_send(struct fanout *fanout, const struct hint *hint, enum status status) {
    pthread_mutex_lock(&fanout->lock);
    if (status == STATUS_OK) {
        fanout->status.sent++;
        if (hint->log_id != HINT_LOG_ID_MAX)
            fanout->sent_log_id = hint->log_id;
    } else if (hint->log_id == HINT_LOG_ID_MAX) {
        fanout->nudge = *hint;
    } else {
        fanout->has_unsent = true; /* the newest, by then */
    }
    pthread_mutex_unlock(&fanout->lock);
    if (status == STATUS_OK)
        metrics_add(METRIC_FANOUT_HINTS_SENT, METRIC_PLAIN, 1);
}

/* Until the connection fails or the fanout ends. */
static enum status serve(struct fanout *fanout, void *connection,
                         char error[FANOUT_ERROR_BYTES_MAX]) {
    const struct fanout_driver *driver = fanout->driver;
    enum status status = STATUS_OK;
    uint64_t pinged_ms = clock_mono_now_ms();
    uint64_t due_ms = 0;
    while (status == STATUS_OK && !is_ending(fanout)) {
        struct hint hint;
        drain_wakes(fanout);
        uint64_t now_ms = clock_mono_now_ms();
        if (take_unsent(fanout, &hint, now_ms >= due_ms)) {
            char text[HINT_BYTES];
            hint_write(&hint, text);
            status = driver->send(connection, (struct slice){text, sizeof(text)}, error);
            settle_send(fanout, &hint, status);
            due_ms = now_ms + HINT_INTERVAL_MS;
            continue;
        }
        bool is_early = now_ms < due_ms && has_unsent(fanout);
        status = driver->wait(connection, is_early ? (int)(due_ms - now_ms) : PING_MS, error);
        if (status == STATUS_OK && clock_mono_now_ms() - pinged_ms >= PING_MS) {
            status = driver->ping(connection, error);
            pinged_ms = clock_mono_now_ms();
        }
    }
    return status;
}

/* Between half of the delay and all of it, so that nodes do not connect all at once. */
static void back_off(struct fanout *fanout, uint64_t delay_ms) {
    uint64_t chance = 0;
    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != (ssize_t)sizeof(chance))
        chance = clock_now().mono_ns;
    uint64_t until_ms = clock_mono_now_ms() + delay_ms / 2 + chance % (delay_ms / 2 + 1);
    for (uint64_t now = clock_mono_now_ms(); now < until_ms && !is_ending(fanout);
         now = clock_mono_now_ms()) {
        struct pollfd wait = {.fd = fanout->port.wake_fd, .events = POLLIN};
        /* Announcements also wake it. They wait with it: only the newest matters. */
        if (poll(&wait, 1, (int)(until_ms - now)) > 0)
            drain_wakes(fanout);
    }
}

static void *fanout_main(void *user) {
    struct fanout *fanout = user;
    uint64_t delay_ms = DELAY_MS_MIN;
    while (!is_ending(fanout)) {
        char error[FANOUT_ERROR_BYTES_MAX] = "";
        void *connection = NULL;
        uint64_t begun_ms = clock_mono_now_ms();
        enum status status = fanout->driver->connect(&connection, &fanout->port, error);
        if (status == STATUS_OK) {
            set_state(fanout, FANOUT_CONNECTED);
            /* Hints of the time without a connection are lost in both directions. */
            pthread_mutex_lock(&fanout->lock);
            fanout->has_unsent = fanout->announced.log_id > 0;
            pthread_mutex_unlock(&fanout->lock);
            on_loss(fanout);
            status = serve(fanout, connection, error);
            fanout->driver->close(connection);
            /* A server that takes connections and drops them is not asked more and more often. */
            if (clock_mono_now_ms() - begun_ms >= DELAY_MS_MAX)
                delay_ms = DELAY_MS_MIN;
        }
        if (status == STATUS_OK)
            break;
        failed(fanout, error);
        back_off(fanout, delay_ms);
        delay_ms = delay_ms * 2 < DELAY_MS_MAX ? delay_ms * 2 : DELAY_MS_MAX;
    }
    return NULL;
}

/* ---- opening and ending ---- */

static void fanout_free(struct fanout *fanout) {
    if (fanout->port.wake_fd >= 0)
        close(fanout->port.wake_fd);
    pthread_mutex_destroy(&fanout->hint_lock);
    pthread_mutex_destroy(&fanout->lock);
    free(fanout->url);
    free(fanout);
}

enum status fanout_open(struct fanout **fanout, const struct fanout_options *options) {
    struct fanout *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->driver = options->driver ? options->driver : drivers[options->kind];
    made->user = options->user;
    made->on_hint = options->on_hint;
    made->sent_log_id = options->log_id;
    made->port.wake_fd = -1;
    made->status.kind = options->kind;
    snprintf(made->status.channel, sizeof(made->status.channel), "%s", options->channel);
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->hint_lock, NULL);
    *fanout = made;
    if (!made->driver)
        return STATUS_OK;
    made->status.state = FANOUT_CONNECTING;
    made->url = strdup(options->url);
    made->port = (struct fanout_port){.url = made->url,
                                      .channel = made->status.channel,
                                      .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                      .user = made,
                                      .on_text = on_text,
                                      .on_loss = on_loss,
                                      .wake = wake};
    enum status status = made->url ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    if (status == STATUS_OK &&
        (made->port.wake_fd < 0 || pthread_create(&made->thread, NULL, fanout_main, made) != 0))
        status = STATUS_SYSTEM_ERROR;
    if (status != STATUS_OK) {
        *fanout = NULL;
        fanout_free(made);
    }
    return status;
}

void fanout_close(struct fanout *fanout) {
    if (!fanout)
        return;
    if (fanout->driver) {
        pthread_mutex_lock(&fanout->lock);
        fanout->is_ending = true;
        pthread_mutex_unlock(&fanout->lock);
        wake(fanout);
        pthread_join(fanout->thread, NULL);
    }
    fanout_free(fanout);
}

struct fanout_status fanout_status(struct fanout *fanout) {
    pthread_mutex_lock(&fanout->lock);
    struct fanout_status status = fanout->status;
    uint64_t announced = fanout->announced.log_id;
    status.lag = announced > fanout->sent_log_id ? announced - fanout->sent_log_id : 0;
    pthread_mutex_unlock(&fanout->lock);
    return status;
}
