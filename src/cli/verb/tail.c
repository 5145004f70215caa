/* Follows a topic or the whole log over event streams until a signal ends it. It reconnects by
 * itself and resumes after the last event it printed. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/token_client.h"
#include "topic/position.h"
#include "topic/stream_id.h"
#include "topic/topic_table.h"
#include "wire/json.h"
#include "wire/sse_decoder.h"

#define TARGET_BYTES_MAX  8192
#define EVENT_BYTES_MAX   (160u << 20)
#define RESUME_BYTES_MAX  256
#define RETRY_MS_DEFAULT  1000
#define RETRY_MS_MIN      100
#define BACKOFF_MS_MAX    30000
#define BACKOFF_DOUBLINGS 6

enum tail_start {
    TAIL_HEAD,   /* with new events */
    TAIL_OLDEST, /* with the oldest event that can be replayed */
    TAIL_RESUME, /* after the position */
    TAIL_SINCE,  /* with the first event of a time */
};

struct tail {
    struct remote remote;
    struct token_client token_client;
    const char *topic; /* NULL: the whole log */
    bool json;
    enum tail_start start;
    const char *since;
    struct buffer position; /* "seq" or "seq@epoch", or an event cursor */
    struct sse_decoder decoder;
    struct buffer target;
    int stop_fd; /* can be read when a signal came */
    uint64_t retry_ms;
    unsigned failures;  /* consecutive */
    bool is_expired;    /* the token expired; there was no other error */
    bool is_connected;  /* an answer of 200 has begun */
    bool was_connected; /* at least once */
    bool replay_all;    /* everything that the log has of the topic */
    bool is_waiting;    /* the topic may have no event yet, and no message says so */
};

/* The signal handler writes to it; it may touch nothing else. */
static int stop_pipe[2] = {-1, -1};

static void on_signal(int number) {
    (void)number;
    /* One byte in the pipe is enough. */
    if (write(stop_pipe[1], "", 1) < 0)
        return;
}

static bool signals_watch(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    return pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) == 0 && sigaction(SIGINT, &action, NULL) == 0 &&
           sigaction(SIGTERM, &action, NULL) == 0;
}

/* Sleeps; false when a signal ended it. */
static bool pause_ms(const struct tail *tail, uint64_t delay_ms) {
    struct pollfd wait = {tail->stop_fd, POLLIN, 0};
    return poll(&wait, 1, (int)delay_ms) == 0;
}

/* ---- printing ----------------------------------------------------------------------------- */

/* Prints a string without its quotes if it has no escapes. Otherwise prints it as JSON, which a
 * terminal never takes for a command. */
static void print_value(struct json_value value) {
    struct slice text;
    if (!json_string_slice(value, &text))
        text = value.raw;
    printf("%.*s", (int)text.size, text.data);
}

static void print_members(struct json_value object, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct json_field field = {.name = slice_of(names[i])};
        if (json_read_members(object, &field, 1) == STATUS_OK && field.present)
            print_value(field.value);
        else
            putchar('-');
        putchar(i + 1 < count ? '\t' : '\n');
    }
}

static void print_event(const struct tail *tail, struct slice data, struct json_value event) {
    static const char *const of_topic[] = {"sequence", "published_at", "kind", "payload"};
    static const char *const of_log[] = {"recorded_at", "entity",     "entity_id",
                                         "seq",         "event_type", "payload"};
    if (tail->json)
        printf("%.*s\n", (int)data.size, data.data);
    else if (tail->topic)
        print_members(event, of_topic, sizeof(of_topic) / sizeof(of_topic[0]));
    else
        print_members(event, of_log, sizeof(of_log) / sizeof(of_log[0]));
}

static void print_documents(const struct tail *tail, struct slice data, struct json_value part) {
    static const char *const names[] = {"doc_key", "doc_version", "payload"};
    struct json_field field = {.name = SLICE("documents")};
    struct json_iterator documents;
    struct json_value document;
    if (tail->json) {
        printf("%.*s\n", (int)data.size, data.data);
        return;
    }
    if (json_read_members(part, &field, 1) != STATUS_OK || field.value.kind != JSON_KIND_ARRAY)
        return;
    documents = json_iterate(field.value);
    while (json_next_element(&documents, &document))
        if (document.kind == JSON_KIND_OBJECT)
            print_members(document, names, sizeof(names) / sizeof(names[0]));
}

/* ---- positions ---------------------------------------------------------------------------- */

static enum status position_set(struct tail *tail, struct slice text) {
    tail->start = TAIL_RESUME;
    buffer_clear(&tail->position);
    return buffer_append_slice(&tail->position, text);
}

/* The seq of "seq@epoch". */
static bool position_seq(struct slice position, uint64_t *seq) {
    struct position read = {.seq = 0};
    enum status status = position_read(position, &read);
    *seq = read.seq;
    return status == STATUS_OK;
}

/* Events printed before: a server may send them again, and they must not be printed twice. */
static bool is_old(const struct tail *tail, struct slice id) {
    uint64_t had, given;
    if (tail->start != TAIL_RESUME)
        return false;
    if (!tail->topic)
        return slice_equal(id, buffer_slice(&tail->position));
    return position_seq(buffer_slice(&tail->position), &had) && position_seq(id, &given) &&
           given <= had;
}

/* A mistyped topic and a topic without events look alike: nothing is printed. */
static void say_waiting(struct tail *tail) {
    if (tail->is_waiting)
        cli_note("waiting for topic %s", tail->topic);
    tail->is_waiting = false;
}

/* ---- events of the stream ----------------------------------------------------------------- */

static enum status take_bootstrap(struct tail *tail, struct json_value body) {
    struct json_field fields[] = {{.name = SLICE("from_seq")},
                                  {.name = SLICE("epoch")},
                                  {.name = SLICE("truncated")},
                                  {.name = SLICE("after_cursor")}};
    struct slice epoch, cursor;
    uint64_t from_seq;
    char text[RESUME_BYTES_MAX];
    if (json_read_members(body, fields, 4) != STATUS_OK)
        return STATUS_OK;
    if (fields[3].present && json_string_slice(fields[3].value, &cursor))
        return position_set(tail, cursor);
    if (!fields[0].present || !json_u64(fields[0].value, JSON_INTEGER_MAX, &from_seq) ||
        from_seq == 0 || !fields[1].present || !json_string_slice(fields[1].value, &epoch))
        return STATUS_OK;
    if (tail->start == TAIL_OLDEST && fields[2].present && fields[2].value.kind == JSON_KIND_TRUE)
        cli_note("what came before %" PRIu64 " is not replayed any more", from_seq);
    tail->is_waiting = tail->topic && from_seq == 1;
    /* The head of a topic that has events is not 0. */
    if (tail->start == TAIL_HEAD)
        say_waiting(tail);
    int size =
        snprintf(text, sizeof(text), "%" PRIu64 "@%.*s", from_seq - 1, (int)epoch.size, epoch.data);
    return position_set(tail, (struct slice){text, (size_t)size});
}

/* The position is unknown until the bootstrap that follows. */
static void take_stale(struct tail *tail, struct json_value body) {
    struct json_field field = {.name = SLICE("reason_codes")};
    struct slice reasons = {"[]", 2};
    struct slice position = tail->position.size > 0 || !tail->since ? buffer_slice(&tail->position)
                                                                    : slice_of(tail->since);
    if (json_read_members(body, &field, 1) == STATUS_OK && field.present)
        reasons = field.value.raw;
    cli_note(
        "the cursor %.*s is stale %.*s: events were missed; begins again with what can still be "
        "replayed",
        (int)position.size, position.data, (int)reasons.size, reasons.data);
    tail->start = TAIL_OLDEST;
}

/* Only the last part stands for a position. After a lost connection all parts are read again. */
static enum status take_snapshot(struct tail *tail, const struct sse_message *message,
                                 struct json_value part) {
    struct json_field last = {.name = SLICE("last")};
    print_documents(tail, message->data, part);
    if (json_read_members(part, &last, 1) == STATUS_OK && last.value.kind == JSON_KIND_TRUE)
        return position_set(tail, message->id);
    return STATUS_OK;
}

/* A notice about the connection. */
static void take_notice(struct tail *tail, const struct sse_message *message,
                        struct json_value body) {
    struct json_field code = {.name = SLICE("code")};
    if (json_read_members(body, &code, 1) == STATUS_OK && code.present &&
        json_string_is(code.value, slice_of(status_code(STATUS_TOKEN_EXPIRED))))
        tail->is_expired = true;
    /* The next connection has a new token; that needs no message. */
    if (tail->is_expired || slice_equal(message->event, SLICE("reauth_required")))
        return;
    cli_note("%.*s: %.*s", (int)message->event.size, message->event.data, (int)message->data.size,
             message->data.data);
}

static enum status on_message(void *user, const struct sse_message *message) {
    const struct json_limits limits = {EVENT_BYTES_MAX, JSON_DEPTH_MAX};
    struct tail *tail = user;
    struct json_value body;
    if (json_parse(message->data, &limits, &body) != STATUS_OK || body.kind != JSON_KIND_OBJECT)
        return STATUS_INVALID_JSON;
    if (slice_equal(message->event, SLICE("message"))) {
        tail->is_waiting = false;
        if (is_old(tail, message->id))
            return STATUS_OK;
        print_event(tail, message->data, body);
        return position_set(tail, message->id);
    }
    if (slice_equal(message->event, SLICE("progress")))
        return position_set(tail, message->id);
    if (slice_equal(message->event, SLICE("bootstrap")))
        return take_bootstrap(tail, body);
    if (slice_equal(message->event, SLICE("stale_cursor")))
        take_stale(tail, body);
    else if (slice_equal(message->event, SLICE("snapshot")))
        return take_snapshot(tail, message, body);
    else
        take_notice(tail, message, body);
    return STATUS_OK;
}

static void on_retry(void *user, uint64_t delay_ms) {
    struct tail *tail = user;
    tail->retry_ms = delay_ms < RETRY_MS_MIN ? RETRY_MS_MIN : delay_ms;
}

static const struct sse_handlers handlers = {on_message, on_retry};

static enum status on_body(void *user, unsigned http_status, struct slice piece) {
    struct tail *tail = user;
    if (http_status != 200)
        return buffer_append_slice(&tail->remote.answer, piece);
    tail->is_connected = tail->was_connected = true;
    tail->failures = 0;
    enum status status = sse_decoder_feed(&tail->decoder, piece);
    /* A comment is a heartbeat: the replay of an existing topic would have come before. */
    if (piece.size > 0 && piece.data[0] == ':')
        say_waiting(tail);
    /* A reader of the output sees each event as soon as it arrives. */
    return fflush(stdout) == 0 ? status : STATUS_SYSTEM_ERROR;
}

/* ---- reconnecting ------------------------------------------------------------------------- */

static enum status write_resume(struct tail *tail) {
    const char *position = tail->position.data;
    size_t size = tail->position.size;
    char text[RESUME_BYTES_MAX];
    if (size >= sizeof(text))
        return STATUS_INVALID_CURSOR;
    memcpy(text, position, size);
    text[size] = '\0';
    enum status status = buffer_append_slice(&tail->target, tail->topic ? SLICE("?after_seq=")
                                                                        : SLICE("?after_cursor="));
    return status == STATUS_OK ? remote_encode(&tail->target, text) : status;
}

static enum status write_target(struct tail *tail) {
    buffer_clear(&tail->target);
    enum status status =
        buffer_append_slice(&tail->target, tail->topic ? SLICE("/v1/topics/") : SLICE("/events"));
    if (status == STATUS_OK && tail->topic)
        status = remote_encode(&tail->target, tail->topic);
    if (status == STATUS_OK && tail->topic)
        status = buffer_append_slice(&tail->target, SLICE("/sse"));
    if (status == STATUS_OK && tail->start == TAIL_HEAD)
        status = buffer_append_slice(&tail->target, SLICE("?from=head"));
    if (status == STATUS_OK && tail->start == TAIL_SINCE)
        status = buffer_append_slice(&tail->target, SLICE("?since="));
    if (status == STATUS_OK && tail->start == TAIL_SINCE)
        status = remote_encode(&tail->target, tail->since);
    if (status == STATUS_OK && tail->start == TAIL_RESUME)
        status = write_resume(tail);
    if (status == STATUS_OK && tail->replay_all)
        status =
            buffer_append_slice(&tail->target, tail->start == TAIL_OLDEST ? SLICE("?replay=all")
                                                                          : SLICE("&replay=all"));
    if (status == STATUS_OK)
        status = token_client_append_versions(&tail->token_client, &tail->target);
    return status == STATUS_OK ? buffer_append_byte(&tail->target, '\0') : status;
}

/* No sooner than the server asked for, twice as long after each failure, and spread by chance so
 * that the clients of one server do not reconnect all at once. */
static uint64_t backoff_ms(const struct tail *tail) {
    uint32_t chance = 0;
    unsigned doublings = tail->failures < BACKOFF_DOUBLINGS ? tail->failures : BACKOFF_DOUBLINGS;
    uint64_t delay_ms = tail->retry_ms << doublings;
    if (delay_ms > BACKOFF_MS_MAX)
        delay_ms = BACKOFF_MS_MAX > tail->retry_ms ? BACKOFF_MS_MAX : tail->retry_ms;
    if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
        chance = 0;
    return delay_ms + chance % (tail->retry_ms / 2 + 1);
}

/* Whether to reconnect after that answer. */
static bool may_retry(unsigned http_status) {
    return http_status >= 500 || http_status == 429 || http_status == 408;
}

/* One connection to its end. Returns an exit code at the end, else -1. */
static int follow_once(struct tail *tail) {
    struct exchange_request request = {.method = "GET",
                                       .target = tail->target.data,
                                       .stop_fd = tail->stop_fd,
                                       .user = tail,
                                       .on_body = on_body};
    unsigned http_status = 0;
    tail->is_connected = tail->is_expired = false;
    sse_decoder_restart(&tail->decoder);
    enum status status = token_client_exchange(&tail->token_client, &request, &http_status);
    if (!pause_ms(tail, 0))
        return EXIT_CODE_DONE;
    if (ferror(stdout))
        return cli_fail(EXIT_CODE_NO, "cannot write to standard output");
    const char *reason = status == STATUS_OK ? "the stream ended" : status_message(status);
    if (status != STATUS_OK && *tail->token_client.error)
        reason = tail->token_client.error;
    bool is_refused = status == STATUS_OK && http_status != 200;
    if (is_refused && (!tail->was_connected || !may_retry(http_status)))
        return remote_refused(&tail->remote, http_status);
    if (!tail->was_connected)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", reason);
    if (is_refused)
        reason = "the server cannot answer now";
    if (!tail->is_expired)
        cli_note("%s; comes back", reason);
    return -1;
}

static int follow(struct tail *tail) {
    int code = -1;
    while (code < 0) {
        enum status status = write_target(tail);
        if (status != STATUS_OK)
            return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
        code = follow_once(tail);
        if (code < 0 && !pause_ms(tail, tail->is_expired ? 0 : backoff_ms(tail)))
            code = EXIT_CODE_DONE;
        tail->failures += !tail->is_connected;
    }
    return code;
}

/* Topics that the log serves can be replayed from their first event. */
static bool is_from_log(const char *name) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer topic = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    bool is_stream = stream_to_topic(slice_of(name), &topic) == STATUS_OK;
    return topic_is_from_log(is_stream ? buffer_slice(&topic) : slice_of(name));
}

struct tail_options {
    struct remote_options remote;
    struct token_client_options token_client;
    const char *after;
    const char *since;
    bool from_start;
    bool audit;
    bool json;
};

static int tail_run(struct tail *tail, const struct tail_options *options) {
    int code = token_client_open(&tail->token_client, &tail->remote, &options->remote,
                                 &options->token_client);
    if (code == EXIT_CODE_DONE && !signals_watch())
        code = cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(STATUS_SYSTEM_ERROR));
    tail->stop_fd = stop_pipe[0];
    tail->retry_ms = RETRY_MS_DEFAULT;
    buffer_init(&tail->position, RESUME_BYTES_MAX);
    buffer_init(&tail->target, TARGET_BYTES_MAX);
    sse_decoder_init(&tail->decoder, &handlers, tail, EVENT_BYTES_MAX);
    if (code == EXIT_CODE_DONE && options->after &&
        position_set(tail, slice_of(options->after)) != STATUS_OK)
        code = cli_fail(EXIT_CODE_USAGE, "%s", status_message(STATUS_INVALID_CURSOR));
    if (code == EXIT_CODE_DONE)
        code = follow(tail);
    sse_decoder_release(&tail->decoder);
    buffer_release(&tail->target);
    buffer_release(&tail->position);
    token_client_close(&tail->token_client);
    return code;
}

int cli_tail(int argc, char **argv) {
    struct tail_options options = {.remote.is_client = true};
    const struct cli_option table[] = {
        {"--url", NULL, &options.remote.url},
        {"--key", NULL, &options.remote.key},
        {"--data-dir", NULL, &options.remote.data_dir},
        {"--ca", NULL, &options.remote.ca_file},
        {"--operator-url", NULL, &options.token_client.operator_url},
        {"--client-build-id", NULL, &options.token_client.client_build_id},
        {"--after", NULL, &options.after},
        {"--since", NULL, &options.since},
        {"--from-start", &options.from_start, NULL},
        {"--audit", &options.audit, NULL},
        {"--json", &options.json, NULL}};
    uint64_t seq;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    bool is_position = options.after && position_seq(slice_of(options.after), &seq);
    if (argc != (options.audit ? 0 : 1))
        return cli_usage("tail", "give one topic, or --audit without one");
    if (!!options.after + !!options.since + options.from_start > 1)
        return cli_usage("tail", "--after, --since and --from-start exclude each other");
    if (options.after && !options.audit && !is_position)
        return cli_usage("tail", "--after '%s' is not a seq or seq@epoch", options.after);
    struct tail tail = {.topic = options.audit ? NULL : argv[0],
                        .json = options.json,
                        .since = options.since,
                        .start = options.from_start ? TAIL_OLDEST
                                 : options.since    ? TAIL_SINCE
                                                    : TAIL_HEAD};
    tail.replay_all = options.from_start && tail.topic && is_from_log(tail.topic);
    options.token_client.replay_all = tail.replay_all;
    int code = remote_open(&tail.remote, &options.remote);
    if (code == EXIT_CODE_DONE)
        code = tail_run(&tail, &options);
    remote_close(&tail.remote);
    return code;
}
