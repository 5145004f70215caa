#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/remote.h"
#include "wire/json.h"
#include "wire/json_items.h"

#define TEXT_BYTES_MAX  (1u << 20)
#define ANSWER_MAX      (8u << 20)
#define BLOCK_BYTES_MAX (1u << 20)
/* The server times out a body that stalls; an empty line now and then prevents that. */
#define IDLE_MS_MAX 3000

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
    bool progress; /* also without a terminal */
    bool json;
};

/* ---- one event ---------------------------------------------------------------------------- */

static enum status write_name(struct buffer *out, const char *name) {
    return buffer_printf(out, "%s\"%s\":", out->data[out->size - 1] == '{' ? "" : ",", name);
}

static enum status write_member(struct buffer *out, const char *name, const char *text) {
    if (!text)
        return STATUS_OK;
    enum status status = write_name(out, name);
    return status == STATUS_OK ? json_write_string(out, slice_of(text)) : status;
}

static enum status write_payload(struct buffer *out, const char *payload) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    struct buffer text;
    struct json_value value;
    if (!payload)
        return STATUS_OK;
    buffer_init(&text, TEXT_BYTES_MAX);
    enum status status = strcmp(payload, "-") == 0 ? cli_read("-", &text)
                                                   : buffer_append_slice(&text, slice_of(payload));
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&text), &limits, &value);
    if (status == STATUS_OK)
        status = write_name(out, "payload");
    if (status == STATUS_OK)
        status = buffer_append_slice(out, value.raw);
    buffer_release(&text);
    return status;
}

static enum status write_body(struct buffer *out, const struct append_options *options) {
    enum status status = buffer_append_byte(out, '{');
    if (status == STATUS_OK)
        status = write_member(out, "event_type", options->type);
    if (status == STATUS_OK)
        status = write_member(out, "event_id", options->event_id);
    if (status == STATUS_OK)
        status = write_member(out, "idempotency_key", options->idempotency_key);
    if (status == STATUS_OK && options->expected_seq)
        status = write_name(out, "expected_previous_seq");
    if (status == STATUS_OK && options->expected_seq)
        status = buffer_append_slice(out, slice_of(options->expected_seq));
    if (status == STATUS_OK)
        status = write_payload(out, options->payload);
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

static enum status write_target(struct buffer *out, const struct append_options *options) {
    if (options->notification)
        return buffer_append(out, "/internal/v1/notifications",
                             sizeof("/internal/v1/notifications"));
    const char *kind = options->run ? "runs" : options->worker ? "workers" : "topics";
    const char *id = options->run      ? options->run
                     : options->worker ? options->worker
                                       : options->topic;
    enum status status = buffer_printf(out, "/internal/v1/%s/", kind);
    if (status == STATUS_OK)
        status = remote_encode(out, id);
    return status == STATUS_OK ? buffer_append(out, "/events", sizeof("/events")) : status;
}

static void print_event(struct slice answer) {
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct json_field outer[] = {{.name = SLICE("event")}, {.name = SLICE("deduplicated")}};
    struct json_field inner[] = {{.name = SLICE("entity")},   {.name = SLICE("entity_id")},
                                 {.name = SLICE("seq")},      {.name = SLICE("event_type")},
                                 {.name = SLICE("event_id")}, {.name = SLICE("cursor")}};
    bool again = false;
    if (json_read_object(answer, &limits, outer, 2) != STATUS_OK || !outer[0].present ||
        json_read_members(outer[0].value, inner, 6) != STATUS_OK)
        return;
    for (size_t i = 0; i < 6; i++) {
        struct slice text = inner[i].value.raw;
        bool quoted = text.size >= 2 && text.data[0] == '"';
        printf("%s%.*s", i == 0 ? "" : (i == 1 ? ":" : " "), (int)(text.size - (quoted ? 2 : 0)),
               text.data + quoted);
    }
    puts(json_bool(outer[1].value, &again) && again ? " (was there)" : "");
}

static int create_run(struct remote *remote, const struct append_options *options) {
    struct buffer body;
    unsigned http_status = 0;
    buffer_init(&body, TEXT_BYTES_MAX);
    enum status status = buffer_append_slice(&body, SLICE("{\"run_id\":"));
    if (status == STATUS_OK)
        status = json_write_string(&body, slice_of(options->run));
    if (status == STATUS_OK)
        status = buffer_append_byte(&body, '}');
    int code = status == STATUS_OK
                   ? remote_ask(remote, "/internal/v1/runs", buffer_slice(&body), &http_status)
                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    buffer_release(&body);
    if (code != EXIT_CODE_DONE)
        return code;
    /* An existing run is a success, also when it was created with other values. */
    if (http_status >= 300 && http_status != 409)
        return remote_refused(remote, http_status);
    return EXIT_CODE_DONE;
}

static int append_one(struct remote *remote, const struct append_options *options) {
    struct buffer target, body;
    unsigned http_status = 0;
    buffer_init(&target, TEXT_BYTES_MAX);
    buffer_init(&body, 2 * TEXT_BYTES_MAX);
    int code = options->create ? create_run(remote, options) : EXIT_CODE_DONE;
    if (code == EXIT_CODE_DONE && (options->type || options->notification)) {
        enum status status = write_target(&target, options);
        if (status == STATUS_OK)
            status = write_body(&body, options);
        code =
            status == STATUS_OK
                ? remote_ask(remote, target.data, buffer_slice(&body), &http_status)
                : cli_fail(EXIT_CODE_USAGE, "%s: %s", status_code(status), status_message(status));
        if (code == EXIT_CODE_DONE && http_status >= 300)
            code = remote_refused(remote, http_status);
    }
    if (code == EXIT_CODE_DONE && options->json)
        printf("%.*s", (int)remote->answer.size, remote->answer.data);
    else if (code == EXIT_CODE_DONE)
        print_event(buffer_slice(&remote->answer));
    buffer_release(&target);
    buffer_release(&body);
    return code;
}

/* ---- a batch ------------------------------------------------------------------------------ */

struct batch_run {
    struct remote *remote;
    int fd;
    struct buffer block; /* bytes read; only whole lines of it are sent */
    size_t given;
    bool json;
    bool shows_progress;
    struct progress progress;
    struct json_items answers;
    unsigned long long appended;
    unsigned long long repeated;
    unsigned long long refused;
};

/* Sends whole lines only, so that an empty line may follow at any time. */
static enum status batch_next(void *user, bool idle, struct slice *piece, bool *end) {
    struct batch_run *run = user;
    buffer_consume(&run->block, run->given);
    run->given = 0;
    if (idle) {
        *piece = SLICE("\n");
        return STATUS_OK;
    }
    enum status status = buffer_reserve(&run->block, 65536);
    if (status != STATUS_OK)
        return status;
    ssize_t size = read(run->fd, run->block.data + run->block.size, 65536);
    if (size < 0)
        return errno == EINTR ? STATUS_OK : STATUS_SYSTEM_ERROR;
    run->block.size += (size_t)size;
    *end = size == 0;
    const char *last = run->block.size ? memrchr(run->block.data, '\n', run->block.size) : NULL;
    run->given = *end ? run->block.size : (last ? (size_t)(last - run->block.data) + 1 : 0);
    /* A line beyond the server's limit is refused before all of it is read. */
    if (!last && run->block.size > BLOCK_BYTES_MAX / 2)
        run->given = run->block.size;
    *piece = (struct slice){run->block.data, run->given};
    return STATUS_OK;
}

static void count_answer(struct batch_run *run, struct json_value answer) {
    struct json_field fields[] = {{.name = SLICE("index")},
                                  {.name = SLICE("status")},
                                  {.name = SLICE("deduplicated")},
                                  {.name = SLICE("error")}};
    struct json_field error[] = {{.name = SLICE("error")}, {.name = SLICE("message")}};
    bool repeated = false;
    if (answer.kind != JSON_KIND_OBJECT || json_read_members(answer, fields, 4) != STATUS_OK)
        return;
    if (!fields[3].present) {
        json_bool(fields[2].value, &repeated);
        run->appended += !repeated;
        run->repeated += repeated;
        return;
    }
    run->refused++;
    progress_end(&run->progress);
    /* With --json the refusal is on standard output already. */
    if (!run->json && fields[3].value.kind == JSON_KIND_OBJECT &&
        json_read_members(fields[3].value, error, 2) == STATUS_OK)
        fprintf(stderr, "item %.*s: %.*s %.*s: %.*s\n", (int)fields[0].value.raw.size,
                fields[0].value.raw.data, (int)fields[1].value.raw.size, fields[1].value.raw.data,
                (int)error[0].value.raw.size, error[0].value.raw.data, (int)error[1].value.raw.size,
                error[1].value.raw.data);
}

static enum status batch_answer(void *user, unsigned http_status, struct slice piece) {
    struct batch_run *run = user;
    if (http_status != 200)
        return buffer_append_slice(&run->remote->answer, piece);
    if (run->json &&
        (fwrite(piece.data, 1, piece.size, stdout) != piece.size || fflush(stdout) != 0))
        return STATUS_SYSTEM_ERROR;
    struct json_item item;
    while ((item = json_items_next(&run->answers, &piece)).kind != JSON_ITEM_MORE)
        if (item.kind == JSON_ITEM_VALUE)
            count_answer(run, item.value);
    if (run->shows_progress)
        progress_count(&run->progress, run->appended + run->repeated + run->refused);
    return STATUS_OK;
}

static int append_batch(struct remote *remote, const struct append_options *options) {
    const struct json_limits limits = {ANSWER_MAX, JSON_DEPTH_MAX};
    struct batch_run run = {.remote = remote, .json = options->json};
    unsigned http_status = 0;
    run.fd = strcmp(options->batch, "-") == 0 ? 0 : open(options->batch, O_RDONLY | O_CLOEXEC);
    if (run.fd < 0)
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", options->batch,
                        strerror(errno));
    buffer_init(&run.block, 2 * BLOCK_BYTES_MAX);
    json_items_init(&run.answers, JSON_ITEMS_LINES, &limits);
    const struct http_client_source source = {run.fd, IDLE_MS_MAX, &run, batch_next};
    struct http_client_request request = {.method = "POST",
                                          .target = "/internal/v1/events:batch",
                                          .content_type = "application/x-ndjson",
                                          .source = &source,
                                          .user = &run,
                                          .on_body = batch_answer};
    progress_begin(&run.progress, "append", "events acknowledged");
    run.shows_progress = options->progress || (run.progress.is_terminal && !options->json);
    int code = remote_exchange(remote, &request, &http_status);
    progress_end(&run.progress);
    if (code == EXIT_CODE_DONE && http_status != 200)
        code = remote_refused(remote, http_status);
    if (!options->json)
        printf("%llu appended, %llu were there, %llu refused\n", run.appended, run.repeated,
               run.refused);
    if (code == EXIT_CODE_DONE && run.refused > 0)
        code = EXIT_CODE_NO;
    json_items_release(&run.answers);
    buffer_release(&run.block);
    if (run.fd > 0)
        close(run.fd);
    return code;
}

/* ------------------------------------------------------------------------------------------- */

/* NULL: the options fit together. */
static const char *misuse_of(const struct append_options *options) {
    int targets = !!options->run + !!options->worker + !!options->topic + options->notification;
    uint64_t number;
    if (options->batch)
        return targets > 0 || options->type || options->payload || options->create
                   ? "--batch takes its events from the file only"
                   : NULL;
    if (options->progress)
        return "--progress needs --batch";
    if (targets != 1)
        return "give one of --run, --worker, --topic, --notification and --batch";
    if (options->create && !options->run)
        return "--create needs --run";
    /* The server has a default type for notifications. */
    if (!options->type && !options->create && !options->notification)
        return "--type is missing";
    return options->expected_seq && !cli_number(options->expected_seq, &number)
               ? "--expect-seq is not a whole number"
               : NULL;
}

int cli_append(int argc, char **argv) {
    struct append_options options = {.json = false};
    const struct cli_option table[] = {{"--url", NULL, &options.remote.url},
                                       {"--key", NULL, &options.remote.key},
                                       {"--data-dir", NULL, &options.remote.data_dir},
                                       {"--ca", NULL, &options.remote.ca_file},
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
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    const char *misuse = misuse_of(&options);
    if (argc != 0)
        return cli_usage("append", "'%s' is not expected", argv[0]);
    if (misuse)
        return cli_usage("append", "%s", misuse);
    int code = remote_open(&remote, &options.remote);
    if (code == EXIT_CODE_DONE)
        code = options.batch ? append_batch(&remote, &options) : append_one(&remote, &options);
    remote_close(&remote);
    return code;
}
