#include "cli/event_sender.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

#define BACK_OFF_MAX_MS   2000
#define ANSWERLESS_MS_MAX 30000

struct event_sender {
    struct event_sender_options options;
    struct khala *client;
    const char *key;
    int ended_fd;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_room;
    bool is_flushed;
    bool is_ended;
    bool has_answer; /* the server answered at least once */
    bool is_lost;    /* a notice about the lost connection was printed */
    uint64_t answered_at_ms;
    struct remote_error error;
};

struct pending {
    struct event_sender *sender;
    uint64_t index;
};

static void wake(struct event_sender *sender) {
    pthread_cond_broadcast(&sender->changed);
}

/* Under the lock. */
static void end(struct event_sender *sender, const struct khala_error *error) {
    const uint64_t one = 1;
    if (sender->is_ended)
        return;
    sender->is_ended = true;
    remote_error_set(&sender->error, error);
    /* A full counter can be read, too. */
    if (write(sender->ended_fd, &one, sizeof(one)) < 0)
        abort();
    wake(sender);
}

/* ---- callbacks of the client -------------------------------------------------------------- */

static void on_token(void *user, struct khala_token *token) {
    const struct event_sender *sender = user;
    khala_token_give(token, sender->key);
}

static void on_room(void *user) {
    struct event_sender *sender = user;
    pthread_mutex_lock(&sender->lock);
    sender->has_room = true;
    wake(sender);
    pthread_mutex_unlock(&sender->lock);
}

/* Whether another attempt can change the answer. A batch whose outcome is unknown is repeated. */
static bool may_retry(const struct event_sender *sender, const struct khala_error *error) {
    bool is_answer = error->http_status > 0 &&
                     strcmp(error->code, status_code(STATUS_APPEND_OUTCOME_UNKNOWN)) != 0;
    if (is_answer && sender->options.is_single)
        return false;
    if (is_answer && error->http_status < 500)
        return error->http_status == 429 || error->http_status == 424;
    if (!sender->has_answer && (is_answer || strcmp(error->code, "connect_failed") == 0))
        return false;
    return clock_mono_now_ms() - sender->answered_at_ms < ANSWERLESS_MS_MAX;
}

static void on_warned(void *user, const struct khala_error *error) {
    struct event_sender *sender = user;
    pthread_mutex_lock(&sender->lock);
    if (!may_retry(sender, error)) {
        end(sender, error);
    } else if (!sender->is_lost && error->http_status == 0) {
        sender->is_lost = true;
        cli_note("%s; tries again", error->message);
    }
    pthread_mutex_unlock(&sender->lock);
}

static void on_answered(void *user, const struct khala_answer *answer) {
    struct pending *pending = user;
    struct event_sender *sender = pending->sender;
    pthread_mutex_lock(&sender->lock);
    if (answer->error && !answer->json.data) {
        /* A refusal of the whole request. */
        end(sender, answer->error);
    } else if (!sender->is_ended) {
        sender->has_answer = true;
        sender->is_lost = false;
        sender->answered_at_ms = clock_mono_now_ms();
        sender->options.answered(sender->options.user, pending->index, answer);
    }
    pthread_mutex_unlock(&sender->lock);
    free(pending);
}

static void on_flushed(void *user) {
    struct event_sender *sender = user;
    pthread_mutex_lock(&sender->lock);
    sender->is_flushed = true;
    wake(sender);
    pthread_mutex_unlock(&sender->lock);
}

/* ---- */

int event_sender_ended_fd(const struct event_sender *sender) {
    return sender->ended_fd;
}

void event_sender_lock(struct event_sender *sender) {
    pthread_mutex_lock(&sender->lock);
}

void event_sender_unlock(struct event_sender *sender) {
    pthread_mutex_unlock(&sender->lock);
}

enum khala_result event_sender_add(struct event_sender *sender, struct slice event,
                                   uint64_t index) {
    struct pending *pending = malloc(sizeof(*pending));
    if (!pending)
        return KHALA_NO_MEMORY;
    *pending = (struct pending){sender, index};
    enum khala_result result = KHALA_FULL;
    pthread_mutex_lock(&sender->lock);
    while (!sender->is_ended) {
        sender->has_room = false;
        result = khala_append(sender->client, (struct khala_text){event.data, event.size},
                              on_answered, pending);
        if (result != KHALA_FULL)
            break;
        while (!sender->has_room && !sender->is_ended)
            pthread_cond_wait(&sender->changed, &sender->lock);
    }
    pthread_mutex_unlock(&sender->lock);
    if (result != KHALA_OK)
        free(pending);
    return result == KHALA_FULL ? KHALA_CLOSED : result;
}

int event_sender_finish(struct event_sender *sender) {
    pthread_mutex_lock(&sender->lock);
    if (!sender->is_ended && khala_flush(sender->client, on_flushed, sender) != KHALA_OK)
        end(sender, &(struct khala_error){.message = status_message(STATUS_OUT_OF_MEMORY)});
    while (!sender->is_flushed && !sender->is_ended)
        pthread_cond_wait(&sender->changed, &sender->lock);
    bool is_ended = sender->is_ended;
    pthread_mutex_unlock(&sender->lock);
    return is_ended ? remote_error_print(&sender->error) : EXIT_CODE_DONE;
}

int event_sender_open(struct event_sender **sender, const struct remote *remote,
                      const struct remote_options *remote_options,
                      const struct event_sender_options *options) {
    char bound[REMOTE_URL_BYTES_MAX];
    struct event_sender *made = calloc(1, sizeof(*made));
    if (!made)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_OUT_OF_MEMORY));
    made->options = *options;
    made->key = remote->key;
    made->answered_at_ms = clock_mono_now_ms();
    made->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    const struct khala_options client = {.url = remote_url(remote_options, bound),
                                         .ca_file = remote_ca_file(remote_options),
                                         .user = made,
                                         .token = on_token,
                                         .warned = on_warned,
                                         .room = on_room,
                                         .append_path = EVENT_SENDER_PATH,
                                         .append_requests_max = 1,
                                         .close_timeout_ms = 1,
                                         .back_off_max_ms = BACK_OFF_MAX_MS};
    if (made->ended_fd < 0 || khala_open(&made->client, &client) != KHALA_OK) {
        event_sender_close(made);
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_SYSTEM_ERROR));
    }
    *sender = made;
    return EXIT_CODE_DONE;
}

void event_sender_close(struct event_sender *sender) {
    if (!sender)
        return;
    /* Events without an answer get their last call, which is not the server's. */
    pthread_mutex_lock(&sender->lock);
    sender->is_ended = true;
    pthread_mutex_unlock(&sender->lock);
    khala_close(sender->client);
    if (sender->ended_fd >= 0)
        close(sender->ended_fd);
    pthread_mutex_destroy(&sender->lock);
    pthread_cond_destroy(&sender->changed);
    free(sender);
}
