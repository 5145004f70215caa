/* khala tail: follows a topic or the whole log until a signal ends it. libkhala reconnects and
 * resumes after the last event that was printed; callbacks print frames, resets and notices. With
 * a cursor file the position is saved after it was printed, so that a crash prints again and loses
 * nothing: in a topic by libkhala's storage hook, in the log before the loop waits. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/list.h"
#include "cli/cli.h"
#include "cli/subscriber.h"
#include "topic/position.h"
#include "topic/stream_id.h"
#include "topic/topic_table.h"
#include "wire/json.h"

#define CURSOR_BYTES_MAX 1024
#define SNAPSHOT_FORMAT  "openagents.sync.snapshot.v1"

struct tail {
    struct subscriber subscriber;
    const char *topic; /* NULL: the whole log */
    bool json;
    bool from_start;
    bool from_head;
    bool folds;
    const char *where; /* NULL: all documents */
    char where_text[WHERE_JSON_BYTES_MAX];
    uint64_t conflate_ms;
    const char *since;
    const char *cursor_file;       /* NULL: none */
    char stored[CURSOR_BYTES_MAX]; /* the content of the cursor file; "" if there is none */
    char cursor[CURSOR_BYTES_MAX]; /* the last position, for people; "" if there is none */
    uint64_t seq;                  /* the last position in a topic */
    bool is_unsaved;               /* the cursor in the log */
    bool was_live;                 /* the client was live at least once */
    bool is_lost;                  /* a notice about the lost connection was printed */
    bool is_waiting;               /* the topic may have no event yet, and no message says so */
};

static struct tail *tail_of(struct subscriber *subscriber) {
    return container_of(subscriber, struct tail, subscriber);
}

/* ---- printing ----------------------------------------------------------------------------- */

static void print_members(struct json_value object, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct json_field field = {.name = slice_of(names[i])};
        if (json_read_members(object, &field, 1) == STATUS_OK && field.present)
            remote_print_plain(field.value);
        else
            putchar('-');
        putchar(i + 1 < count ? '\t' : '\n');
    }
}

/* ---- the cursor file ---------------------------------------------------------------------- */

/* Replaces the file, so that neither a reader nor a power cut finds half a position. */
static bool write_cursor_file(const char *path, struct slice position) {
    struct buffer text;
    buffer_init(&text, CURSOR_BYTES_MAX + 1);
    buffer_append_slice(&text, position);
    enum status status = buffer_append_byte(&text, '\n');
    if (status == STATUS_OK)
        status = file_replace(path, buffer_slice(&text));
    buffer_release(&text);
    return status == STATUS_OK;
}

/* Reads the position to continue at, if the file exists. That of the log is for the server; that of
 * a topic must be a seq and an epoch. */
static int read_cursor_file(struct tail *tail) {
    const struct json_limits limits = {sizeof(tail->stored), JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("epoch")}, {.name = SLICE("seq")}};
    struct slice epoch;
    struct buffer text;
    if (!tail->cursor_file || access(tail->cursor_file, F_OK) != 0)
        return EXIT_CODE_DONE;
    buffer_init(&text, sizeof(tail->stored) - 1);
    enum status status = cli_read(tail->cursor_file, &text);
    while (text.size > 0 && strchr(" \r\n", text.data[text.size - 1]))
        text.size--;
    if (status == STATUS_OK && text.size > 0)
        memcpy(tail->stored, text.data, text.size);
    buffer_release(&text);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "cannot read '%s': %s", tail->cursor_file,
                        strerror(errno));
    snprintf(tail->cursor, sizeof(tail->cursor), "%s", tail->stored);
    if (!tail->topic || !*tail->stored)
        return EXIT_CODE_DONE;
    if (json_read_object(slice_of(tail->stored), &limits, fields, 2) != STATUS_OK ||
        !fields[0].present || !json_string_slice(fields[0].value, &epoch) || !fields[1].present ||
        !json_u64(fields[1].value, JSON_INTEGER_MAX, &tail->seq))
        return cli_fail(EXIT_CODE_NO, "'%s' holds no position of a topic", tail->cursor_file);
    snprintf(tail->cursor, sizeof(tail->cursor), "%" PRIu64 "@%.*s", tail->seq, (int)epoch.size,
             epoch.data);
    return EXIT_CODE_DONE;
}

static int on_load(void *user, const char *topic, char *text, size_t size) {
    const struct tail *tail = tail_of(user);
    (void)topic;
    int length = snprintf(text, size, "%s", tail->stored);
    return (size_t)length < size ? length : -1;
}

/* Printed first: a crash between the two prints frames again, and loses none. */
static int on_save(void *user, const char *topic, const char *text, size_t size) {
    const struct tail *tail = tail_of(user);
    (void)topic;
    return fflush(stdout) == 0 && write_cursor_file(tail->cursor_file, (struct slice){text, size})
               ? 0
               : -1;
}

static void save_log_cursor(struct subscriber *subscriber) {
    struct tail *tail = tail_of(subscriber);
    if (!tail->is_unsaved || !tail->cursor_file)
        return;
    tail->is_unsaved = false;
    if (!write_cursor_file(tail->cursor_file, slice_of(tail->cursor)))
        cli_note("cannot write '%s': %s", tail->cursor_file, strerror(errno));
}

/* ---- callbacks ---------------------------------------------------------------------------- */

static void note_lost(struct tail *tail, const struct khala_error *error) {
    /* The next connection has a new token; that needs no message. */
    bool is_expiry = strcmp(error->code, status_code(STATUS_TOKEN_EXPIRED)) == 0;
    /* A client that was never connected does not wait for a server. */
    if (!tail->was_live)
        subscriber_end(&tail->subscriber, error);
    else if (!tail->is_lost && !is_expiry)
        cli_note("%s; comes back", error->message);
    tail->is_lost = true;
}

static void on_changed(void *user, enum khala_state state, const struct khala_error *error) {
    struct tail *tail = tail_of(user);
    if (state == KHALA_STATE_LIVE) {
        tail->was_live = true;
        tail->is_lost = false;
    } else if (state == KHALA_STATE_BACKING_OFF && error) {
        note_lost(tail, error);
    }
}

static void on_warned(void *user, const struct khala_error *error) {
    struct tail *tail = tail_of(user);
    if (!tail->topic)
        note_lost(tail, error);
    else if (strcmp(error->code, "token_failed") != 0)
        cli_note("%s: %s", error->code, error->message);
}

static void on_ended(void *user, const struct khala_error *error) {
    subscriber_end(user, error);
}

static void note_stale(struct tail *tail, const char *reason) {
    const char *cursor = *tail->cursor || !tail->since ? tail->cursor : tail->since;
    cli_note(
        "the cursor %s is stale [\"%s\"]: events were missed; begins again with what can still "
        "be replayed",
        cursor, reason);
}

/* A mistyped topic and a topic without events look alike: nothing is printed. */
static void note_waiting(struct tail *tail) {
    if (tail->is_waiting)
        cli_note("waiting for topic %s", tail->topic);
    tail->is_waiting = false;
}

static void set_position(struct tail *tail, const struct khala_position *position) {
    tail->seq = position->seq;
    snprintf(tail->cursor, sizeof(tail->cursor), "%" PRIu64 "@%s", position->seq, position->epoch);
}

static enum khala_result on_frame(void *user, const struct khala_frame *frame) {
    static const char *const names[] = {"seq", "projected_at", "kind", "payload"};
    const struct json_value object = {JSON_KIND_OBJECT, {frame->json.data, frame->json.size}};
    struct json_iterator members = json_iterate(object);
    struct json_value name, value;
    struct slice published = SLICE("null");
    struct tail *tail = tail_of(user);
    tail->is_waiting = false;
    if (tail->json) {
        /* As event streams have it: with sequence and published_at instead of the members that only
         * the Phoenix dialect adds. */
        printf("{\"after\":%" PRIu64, tail->seq);
        while (json_next_member(&members, &name, &value)) {
            if (json_string_is(name, SLICE("watermark")) ||
                json_string_is(name, SLICE("hydration_required")))
                continue;
            if (json_string_is(name, SLICE("projected_at")))
                published = value.raw;
            printf(",%.*s:%.*s", (int)name.raw.size, name.raw.data, (int)value.raw.size,
                   value.raw.data);
        }
        printf(",\"sequence\":%" PRIu64 ",\"published_at\":%.*s}\n", frame->seq,
               (int)published.size, published.data);
    } else {
        print_members(object, names, sizeof(names) / sizeof(names[0]));
    }
    set_position(tail, &frame->position);
    return KHALA_OK;
}

static enum khala_result on_reset(void *user, const struct khala_reset *reset) {
    static const char *const names[] = {"doc_key", "doc_version", "payload"};
    struct tail *tail = tail_of(user);
    struct json_value document;
    if (strcmp(reset->reason, "start") != 0)
        note_stale(tail, reset->reason);
    if (reset->truncated)
        cli_note("what came before %" PRIu64 " is not replayed any more", reset->from_seq);
    if (reset->documents.data && tail->json) {
        printf("{\"topic\":\"%s\",\"format\":\"" SNAPSHOT_FORMAT "\",\"schema_version\":1,"
               "\"epoch\":\"%s\",\"watermark\":%" PRIu64 ",\"part\":0,\"last\":true,"
               "\"documents\":%.*s}\n",
               reset->topic, reset->position.epoch, reset->position.seq, (int)reset->documents.size,
               reset->documents.data);
    } else if (reset->documents.data) {
        struct json_iterator documents = json_iterate(
            (struct json_value){JSON_KIND_ARRAY, {reset->documents.data, reset->documents.size}});
        while (json_next_element(&documents, &document))
            if (document.kind == JSON_KIND_OBJECT)
                print_members(document, names, sizeof(names) / sizeof(names[0]));
    }
    set_position(tail, &reset->position);
    tail->is_waiting = reset->from_seq == 1 && !reset->documents.data;
    /* The head of a topic that has events is not 0. */
    if (tail->from_head)
        note_waiting(tail);
    return KHALA_OK;
}

static void on_caught_up(void *user) {
    note_waiting(tail_of(user));
}

static void on_event(void *user, const char *cursor, struct khala_text event) {
    static const char *const names[] = {"recorded_at", "entity",     "entity_id",
                                        "seq",         "event_type", "payload"};
    struct tail *tail = tail_of(user);
    if (tail->json)
        printf("%.*s\n", (int)event.size, event.data);
    else
        print_members((struct json_value){JSON_KIND_OBJECT, {event.data, event.size}}, names,
                      sizeof(names) / sizeof(names[0]));
    snprintf(tail->cursor, sizeof(tail->cursor), "%s", cursor);
    tail->is_unsaved = true;
}

static void on_log_reset(void *user, const char *reason) {
    note_stale(tail_of(user), reason);
}

static void on_heard(void *user) {
    struct tail *tail = tail_of(user);
    tail->was_live = true;
    tail->is_lost = false;
}

/* ---- */

/* after is the position on the command line; NULL: none was given. */
static int tail_run(struct tail *tail, const struct subscriber_options *options,
                    const char *after) {
    bool stores = tail->cursor_file && tail->topic;
    const struct khala_options client = {.changed = on_changed,
                                         .warned = on_warned,
                                         .load = stores ? on_load : NULL,
                                         .save = stores ? on_save : NULL};
    int code = read_cursor_file(tail);
    if (code == EXIT_CODE_DONE)
        code = subscriber_open(&tail->subscriber, options, &client);
    if (code != EXIT_CODE_DONE)
        return code;
    if (after)
        snprintf(tail->cursor, sizeof(tail->cursor), "%s", after);
    enum khala_result result;
    if (tail->topic) {
        struct position position = {.seq = 0};
        bool has_start = after && position_read(slice_of(after), &position) == STATUS_OK;
        if (has_start)
            tail->seq = position.seq;
        const struct khala_position start = {
            .epoch = topic_epoch_is_known(&position.epoch) ? position.epoch.text : NULL,
            .seq = position.seq};
        const struct khala_follow follow = {.topic = tail->topic,
                                            .replay = options->replay_all ? "all" : NULL,
                                            .fold = tail->folds,
                                            .where = tail->where,
                                            .conflate_ms = (unsigned)tail->conflate_ms,
                                            .after = has_start ? &start : NULL,
                                            .from_head = tail->from_head,
                                            .since = tail->since,
                                            .form = "full",
                                            .user = &tail->subscriber,
                                            .frame = on_frame,
                                            .reset = on_reset,
                                            .caught_up = on_caught_up,
                                            .ended = on_ended};
        result = khala_follow(tail->subscriber.client, &follow, NULL);
    } else {
        const char *start = *tail->stored ? tail->stored : after;
        const struct khala_follow_log follow = {.after = start,
                                                .from_head = tail->from_head && !start,
                                                .since = start ? NULL : tail->since,
                                                .user = &tail->subscriber,
                                                .event = on_event,
                                                .reset = on_log_reset,
                                                .heard = on_heard,
                                                .ended = on_ended};
        tail->subscriber.before_wait = save_log_cursor;
        result = khala_follow_log(tail->subscriber.client, &follow, NULL);
    }
    enum status reason = result == KHALA_INVALID ? STATUS_INVALID_TOPIC : STATUS_OUT_OF_MEMORY;
    const struct khala_error error = {
        .code = "", .message = status_message(reason), .is_final = result == KHALA_INVALID};
    if (result != KHALA_OK)
        subscriber_end(&tail->subscriber, &error);
    return subscriber_run(&tail->subscriber);
}

/* Makes JSON of "status=running,failed"; an object stays as it is. */
static bool read_where(struct tail *tail) {
    const char *text = tail->where;
    const char *values = strchr(text, '=');
    struct buffer out = buffer_over(tail->where_text, sizeof(tail->where_text));
    if (*text == '{')
        return true;
    if (!values || values == text)
        return false;
    buffer_append_byte(&out, '{');
    buffer_note(&out, json_write_string(&out, (struct slice){text, (size_t)(values - text)}));
    buffer_append_slice(&out, SLICE(":["));
    for (const char *value = values + 1;; value++) {
        size_t size = strcspn(value, ",");
        buffer_note(&out, json_write_string(&out, (struct slice){value, size}));
        value += size;
        if (!*value)
            break;
        buffer_append_byte(&out, ',');
    }
    tail->where = tail->where_text;
    return buffer_append(&out, "]}", sizeof("]}")) == STATUS_OK;
}

int cli_tail(int argc, char **argv) {
    static struct tail tail;
    struct subscriber_options options = {.remote.is_client = true};
    const char *after = NULL;
    struct position position;
    const char *conflate = NULL;
    bool audit = false;
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--operator-url", NULL, &options.operator_url},
                                       {"--client-build-id", NULL, &options.client_build_id},
                                       {"--after", NULL, &after},
                                       {"--since", NULL, &tail.since},
                                       {"--cursor-file", NULL, &tail.cursor_file},
                                       {"--from-start", &tail.from_start, NULL},
                                       {"--fold", &tail.folds, NULL},
                                       {"--where", NULL, &tail.where},
                                       {"--conflate-ms", NULL, &conflate},
                                       {"--audit", &audit, NULL},
                                       {"--json", &tail.json, NULL}};
    tail = (struct tail){.topic = NULL};
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != (audit ? 0 : 1))
        return cli_usage("tail", "give one topic, or --audit without one");
    tail.topic = audit ? NULL : argv[0];
    if (!!after + !!tail.since + tail.from_start > 1)
        return cli_usage("tail", "--after, --since and --from-start exclude each other");
    if (tail.folds && (audit || tail.from_start))
        return cli_usage("tail", "--fold is for a topic, and --from-start prints each event");
    if (audit && (tail.where || conflate))
        return cli_usage("tail", "--where and --conflate-ms are for a topic");
    if (tail.where && !read_where(&tail))
        return cli_usage("tail", "--where is FIELD=VALUE[,VALUE], or a JSON object of fields");
    if (conflate && !json_u64((struct json_value){JSON_KIND_NUMBER, slice_of(conflate)}, 5000,
                              &tail.conflate_ms))
        return cli_usage("tail", "--conflate-ms is a number from 0 to 5000");
    if (after && tail.cursor_file)
        return cli_usage("tail", "--after and --cursor-file exclude each other");
    if (after && tail.topic && position_read(slice_of(after), &position) != STATUS_OK)
        return cli_usage("tail", "--after is not a seq or seq@epoch");
    tail.from_head = !tail.from_start && !tail.since && !after;
    if (tail.from_start && tail.topic) {
        /* Topics that the log serves can be replayed from their first event. */
        char name[STREAM_ID_BYTES_MAX];
        struct buffer topic = buffer_over(name, sizeof(name));
        bool is_stream = stream_to_topic(slice_of(tail.topic), &topic) == STATUS_OK;
        options.replay_all =
            topic_is_from_log(is_stream ? buffer_slice(&topic) : slice_of(tail.topic));
    }
    return tail_run(&tail, &options, after);
}
