/* khala append: one event, or a batch of lines. Both go through event_sender, which repeats what a
 * lost connection left without an answer; only runs and notifications have requests of their own.
 * A batch is read in blocks while the sender has room, and its answers are printed as they come, on
 * the sender's thread and under its lock. A line that is no event is refused here, as the server
 * would refuse it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/event_sender.h"
#include "cli/progress.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TEXT_BYTES_MAX (1u << 20)
#define ANSWER_MAX     (8u << 20)
#define BLOCK_BYTES    65536
#define LINE_BYTES_MAX (4u << 20)

struct append_options {
    struct remote_options remote;
    const char *run;
    const char *worker;
    const char *topic;
    const char *type;
    const char *payload;
    const char *event_id;
    const char *idempotency_key;
    const char *expected_seq;
    const char *batch;
    bool create;
    bool notification;
    bool progress; /* show it even if stderr is not a terminal */
    bool json;
};

/* ---- one event ---------------------------------------------------------------------------- */

static enum status write_body(struct buffer *out, const struct append_options *options) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    struct object_writer event = object_begin(out);
    object_text_given(&event, SLICE("run_id"), cli_given(options->run));
    object_text_given(&event, SLICE("worker_id"), cli_given(options->worker));
    object_text_given(&event, SLICE("topic"), cli_given(options->topic));
    object_text_given(&event, SLICE("event_type"), cli_given(options->type));
    object_text_given(&event, SLICE("event_id"), cli_given(options->event_id));
    object_text_given(&event, SLICE("idempotency_key"), cli_given(options->idempotency_key));
    object_json_given(&event, SLICE("expected_previous_seq"), cli_given(options->expected_seq));
    if (options->payload) {
        struct json_value payload;
        struct buffer text;
        buffer_init(&text, TEXT_BYTES_MAX);
        enum status status = strcmp(options->payload, "-") == 0
                                 ? cli_read("-", &text)
                                 : buffer_append_slice(&text, slice_of(options->payload));
        if (status == STATUS_OK)
            status = json_parse(buffer_slice(&text), &limits, &payload);
        if (buffer_note(out, status) == STATUS_OK)
            object_json(&event, SLICE("payload"), payload.raw);
        buffer_release(&text);
    }
    return object_end(&event);
}

#define HINT                                                                                       \
    { .name = SLICE("hint") }

/* A sentence of the server, which has no escapes. */
static bool print_hint(const struct json_field *hint) {
    struct slice text;
    if (!hint->present || !json_string_slice(hint->value, &text))
        return false;
    fprintf(stderr, "khala: %.*s\n", (int)text.size, text.data);
    return true;
}

static void print_event(struct slice answer) {
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct json_field outer[] = {{.name = SLICE("event")}, {.name = SLICE("deduplicated")}, HINT};
    struct json_field inner[] = {{.name = SLICE("entity")},   {.name = SLICE("entity_id")},
                                 {.name = SLICE("seq")},      {.name = SLICE("event_type")},
                                 {.name = SLICE("event_id")}, {.name = SLICE("cursor")}};
    bool again = false;
    if (json_read_object(answer, &limits, outer, 3) != STATUS_OK || !outer[0].present ||
        json_read_members(outer[0].value, inner, 6) != STATUS_OK)
        return;
    for (size_t i = 0; i < 6; i++) {
        struct slice text = inner[i].value.raw;
        bool quoted = text.size >= 2 && text.data[0] == '"';
        printf("%s%.*s", i == 0 ? "" : (i == 1 ? ":" : " "), (int)(text.size - (quoted ? 2 : 0)),
               text.data + quoted);
    }
    puts(json_bool(outer[1].value, &again) && again ? " (was there)" : "");
    print_hint(&outer[2]);
}

static void print_whole(const struct remote *remote, const struct append_options *options) {
    if (options->json)
        printf("%.*s", (int)remote->answer.size, remote->answer.data);
    else
        print_event(buffer_slice(&remote->answer));
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Prints an answer of a batch without its index. That of a single event has no status either. */
static bool print_answer(struct json_value answer, const char *prefix, bool is_single) {
    struct json_iterator members = json_iterate(answer);
    struct json_value name, value;
    struct buffer line;
    buffer_init(&line, ANSWER_MAX);
    buffer_append_slice(&line, slice_of(prefix));
    while (json_next_member(&members, &name, &value))
        if (!json_string_is(name, SLICE("index")) &&
            !(is_single && json_string_is(name, SLICE("status"))))
            buffer_printf(&line, "%s%.*s:%.*s", line.size == 1 ? "" : ",", (int)name.raw.size,
                          name.raw.data, (int)value.raw.size, value.raw.data);
    buffer_append_slice(&line, SLICE("}\n"));
    bool is_printed = buffer_status(&line) == STATUS_OK &&
                      fwrite(line.data, 1, line.size, stdout) == line.size && fflush(stdout) == 0;
    buffer_release(&line);
    return is_printed;
}

struct single_run {
    struct remote *remote;
    bool json;
    int code;
};

static void single_answered(void *user, uint64_t index, const struct khala_answer *answer) {
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct slice text = {answer->json.data, answer->json.size};
    struct json_field error = {.name = SLICE("error")};
    struct single_run *run = user;
    struct json_value line;
    (void)index;
    if (json_parse(text, &limits, &line) != STATUS_OK || line.kind != JSON_KIND_OBJECT)
        return;
    run->code = EXIT_CODE_DONE;
    if (answer->error && json_read_members(line, &error, 1) == STATUS_OK && error.present) {
        buffer_clear(&run->remote->answer);
        /* Without memory only the status is printed. */
        if (buffer_append_slice(&run->remote->answer, error.value.raw) != STATUS_OK)
            buffer_clear(&run->remote->answer);
        run->code = remote_refused(run->remote, answer->error->http_status);
    } else if (!run->json) {
        print_event(text);
    } else if (!print_answer(line, "{", true)) {
        run->code = cli_fail(EXIT_CODE_NO, "cannot write to standard output");
    }
}

/* ---- one event ---------------------------------------------------------------------------- */

static int append_one(struct remote *remote, const struct append_options *options) {
    struct single_run run = {remote, options->json, EXIT_CODE_UNREACHABLE};
    const struct event_sender_options sending = {
        .is_single = true, .user = &run, .answered = single_answered};
    bool has_event = options->type || options->notification;
    struct event_sender *sender = NULL;
    unsigned http_status = 0;
    int code = EXIT_CODE_DONE;
    struct buffer body;
    buffer_init(&body, 2 * TEXT_BYTES_MAX);
    if (options->create) {
        struct object_writer creation = object_begin(&body);
        object_text(&creation, SLICE("run_id"), slice_of(options->run));
        enum status status = object_end(&creation);
        code = status == STATUS_OK
                   ? remote_ask(remote, "/internal/v1/runs", buffer_slice(&body), &http_status)
                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
        /* An existing run is a success, also if it was created with other values. */
        if (code == EXIT_CODE_DONE && http_status >= 300 && http_status != 409)
            code = remote_refused(remote, http_status);
        buffer_clear(&body);
    }
    enum status status =
        code == EXIT_CODE_DONE && has_event ? write_body(&body, options) : STATUS_OK;
    if (code != EXIT_CODE_DONE)
        goto out;
    if (status != STATUS_OK) {
        code = cli_fail(EXIT_CODE_USAGE, "%s: %s", status_code(status), status_message(status));
    } else if (!has_event) {
        print_whole(remote, options);
    } else if (options->notification) { /* a batch accepts none */
        code = remote_ask(remote, "/internal/v1/notifications", buffer_slice(&body), &http_status);
        if (code == EXIT_CODE_DONE && http_status >= 300)
            code = remote_refused(remote, http_status);
        else if (code == EXIT_CODE_DONE)
            print_whole(remote, options);
    } else {
        code = event_sender_open(&sender, remote, &options->remote, &sending);
        if (code != EXIT_CODE_DONE)
            goto out;
        if (event_sender_add(sender, buffer_slice(&body), 0) == KHALA_INVALID)
            code = cli_fail(EXIT_CODE_NO, "%s: %s", status_code(STATUS_INVALID_REQUEST),
                            "the event id is not a UUID");
        else
            code = event_sender_finish(sender);
        event_sender_close(sender);
        code = code == EXIT_CODE_DONE ? run.code : code;
    }
out:
    buffer_release(&body);
    return code;
}

/* ---- a batch ------------------------------------------------------------------------------ */

struct batch_run {
    struct event_sender *sender;
    int fd;
    struct buffer block; /* bytes read that are not a whole line yet */
    bool is_skipping;    /* the rest of a line that is too long */
    bool is_over;
    uint64_t index;
    /* Under the sender's lock. */
    bool json;
    bool shows_progress;
    bool has_hint; /* was printed: once for all items */
    struct progress progress;
    unsigned long long appended;
    unsigned long long repeated;
    unsigned long long refused;
};

static void batch_answered(void *user, uint64_t index, const struct khala_answer *answer) {
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("error")}, HINT};
    struct json_field error[] = {{.name = SLICE("error")}, {.name = SLICE("message")}};
    struct batch_run *run = user;
    struct json_value line;
    char prefix[64];
    if (json_parse((struct slice){answer->json.data, answer->json.size}, &limits, &line) !=
            STATUS_OK ||
        line.kind != JSON_KIND_OBJECT || json_read_members(line, fields, 3) != STATUS_OK)
        return;
    run->appended += !answer->error && !answer->deduplicated;
    run->repeated += !answer->error && answer->deduplicated;
    run->refused += answer->error != NULL;
    snprintf(prefix, sizeof(prefix), "{\"index\":%" PRIu64, index);
    if (run->json) {
        (void)print_answer(line, prefix, false); /* cli_main checks standard output */
    } else if (answer->error && fields[1].value.kind == JSON_KIND_OBJECT &&
               json_read_members(fields[1].value, error, 2) == STATUS_OK) {
        progress_end(&run->progress);
        fprintf(stderr, "item %" PRIu64 ": %.*s %.*s: %.*s\n", index, (int)fields[0].value.raw.size,
                fields[0].value.raw.data, (int)error[0].value.raw.size, error[0].value.raw.data,
                (int)error[1].value.raw.size, error[1].value.raw.data);
    } else if (!run->has_hint) {
        run->has_hint = print_hint(&fields[2]);
    }
    if (run->shows_progress)
        progress_count(&run->progress, run->appended + run->repeated + run->refused);
}

/* A line that is not an event is refused here, as the server would. */
static void batch_refuse(struct batch_run *run, uint64_t index, enum status status) {
    char line[512];
    int size = snprintf(line, sizeof(line),
                        "{\"status\":%d,\"error\":{\"error\":\"%s\",\"message\":\"%s\"}}",
                        status_http(status), status_code(status), status_message(status));
    const struct khala_error error = {.code = status_code(status),
                                      .http_status = (unsigned)status_http(status)};
    const struct khala_answer answer = {.error = &error, .json = {line, (size_t)size}};
    event_sender_lock(run->sender);
    batch_answered(run, index, &answer);
    event_sender_unlock(run->sender);
}

/* Appends the whole lines of the block. The last one needs no line feed at the end of the input. */
static void batch_lines(struct batch_run *run, bool is_end) {
    const struct json_limits limits = {LINE_BYTES_MAX, JSON_DEPTH_MAX};
    struct slice rest = buffer_slice(&run->block);
    struct json_value value;
    const char *end;
    while (!run->is_over && rest.size > 0 &&
           ((end = memchr(rest.data, '\n', rest.size)) || is_end)) {
        struct slice line = {rest.data, end ? (size_t)(end - rest.data) : rest.size};
        rest = slice_from(rest, end ? line.size + 1 : line.size);
        size_t blanks = 0;
        while (blanks < line.size && strchr(" \t\r", line.data[blanks]))
            blanks++;
        bool is_event = !run->is_skipping && blanks < line.size;
        run->is_skipping = false;
        if (!is_event)
            continue;
        uint64_t index = run->index++;
        enum khala_result result = event_sender_add(run->sender, line, index);
        if (result == KHALA_INVALID)
            batch_refuse(run, index,
                         json_parse(line, &limits, &value) == STATUS_OK ? STATUS_INVALID_REQUEST
                                                                        : STATUS_INVALID_JSON);
        run->is_over = result != KHALA_OK && result != KHALA_INVALID;
    }
    buffer_consume(&run->block, run->block.size - rest.size);
    if (!run->is_skipping && run->block.size > LINE_BYTES_MAX) {
        batch_refuse(run, run->index++, STATUS_PAYLOAD_TOO_LARGE);
        run->is_skipping = true;
    }
    if (run->is_skipping)
        buffer_clear(&run->block);
}

/* Reads and appends until the end of the input or of the sender. False: the input cannot be read.
 */
static bool batch_send(struct batch_run *run) {
    struct pollfd wait[] = {{run->fd, POLLIN, 0}, {event_sender_ended_fd(run->sender), POLLIN, 0}};
    while (!run->is_over) {
        int ready = poll(wait, 2, -1);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0 || wait[1].revents != 0)
            return true;
        if (buffer_reserve(&run->block, BLOCK_BYTES) != STATUS_OK)
            return false;
        ssize_t size = read(run->fd, run->block.data + run->block.size, BLOCK_BYTES);
        if (size < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (size >= 0)
            run->block.size += (size_t)size;
        batch_lines(run, size == 0);
        if (size == 0)
            return true;
    }
    return true;
}

static int append_batch(struct remote *remote, const struct append_options *options) {
    struct batch_run run = {.json = options->json};
    const struct event_sender_options sending = {.user = &run, .answered = batch_answered};
    run.fd = strcmp(options->batch, "-") == 0 ? 0 : open(options->batch, O_RDONLY | O_CLOEXEC);
    if (run.fd < 0)
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", options->batch,
                        strerror(errno));
    buffer_init(&run.block, LINE_BYTES_MAX + 2 * BLOCK_BYTES);
    progress_begin(&run.progress, "append", "events acknowledged");
    run.shows_progress = options->progress || (run.progress.is_terminal && !options->json);
    int code = event_sender_open(&run.sender, remote, &options->remote, &sending);
    bool is_read = code != EXIT_CODE_DONE || batch_send(&run);
    if (!is_read)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", options->batch,
                        strerror(errno));
    if (run.sender) {
        int finished = event_sender_finish(run.sender);
        code = code == EXIT_CODE_DONE ? finished : code;
    }
    event_sender_close(run.sender);
    if (code == EXIT_CODE_DONE && run.index == 0) {
        /* Without events the server and the key are tried all the same. */
        struct blocking_request request = {.target = EVENT_SENDER_PATH,
                                           .content_type = "application/x-ndjson"};
        unsigned http_status = 0;
        code = remote_exchange(remote, &request, &http_status);
        if (code == EXIT_CODE_DONE && http_status != 200)
            code = remote_refused(remote, http_status);
    }
    progress_end(&run.progress);
    if (!options->json)
        printf("%llu appended, %llu were there, %llu refused\n", run.appended, run.repeated,
               run.refused);
    if (code == EXIT_CODE_DONE && run.refused > 0)
        code = EXIT_CODE_NO;
    buffer_release(&run.block);
    if (run.fd > 0)
        close(run.fd);
    return code;
}

int cli_append(int argc, char **argv) {
    struct append_options options = {.json = false};
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--run", NULL, &options.run},
                                       {"--worker", NULL, &options.worker},
                                       {"--topic", NULL, &options.topic},
                                       {"--notification", &options.notification, NULL},
                                       {"--type", NULL, &options.type},
                                       {"--payload", NULL, &options.payload},
                                       {"--event-id", NULL, &options.event_id},
                                       {"--idempotency-key", NULL, &options.idempotency_key},
                                       {"--expect-seq", NULL, &options.expected_seq},
                                       {"--batch", NULL, &options.batch},
                                       {"--create", &options.create, NULL},
                                       {"--progress", &options.progress, NULL},
                                       {"--json", &options.json, NULL}};
    struct remote remote;
    uint64_t number;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    int targets = !!options.run + !!options.worker + !!options.topic + options.notification;
    bool has_own = targets > 0 || options.type || options.payload || options.create;
    if (argc != 0)
        return cli_usage("append", "'%s' is not expected", argv[0]);
    if (options.batch && has_own)
        return cli_usage("append", "--batch takes its events from the file only");
    if (!options.batch && options.progress)
        return cli_usage("append", "--progress needs --batch");
    if (!options.batch && targets != 1)
        return cli_usage("append",
                         "give one of --run, --worker, --topic, --notification and --batch");
    if (options.create && !options.run)
        return cli_usage("append", "--create needs --run");
    /* The server has a default type for notifications. */
    if (!options.batch && !options.type && !options.create && !options.notification)
        return cli_usage("append", "--type is missing");
    if (!options.batch && options.expected_seq && !cli_number(options.expected_seq, &number))
        return cli_usage("append", "--expect-seq is not a whole number");
    int code = remote_open(&remote, &options.remote);
    if (code == EXIT_CODE_DONE)
        code = options.batch ? append_batch(&remote, &options) : append_one(&remote, &options);
    remote_close(&remote);
    return code;
}
