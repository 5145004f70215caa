#include "server/topics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "topic/topics_file.h"
#include "wire/object_writer.h"

/* The patterns of the rules point into the text. */
struct topics_text {
    struct topic_rules rules;
    size_t size;
    char text[TOPICS_FILE_BYTES_MAX + 1]; /* a file that fills it is too large */
};

__attribute__((format(printf, 2, 3))) static enum status refuse(struct topics_message *message,
                                                                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message->text, sizeof(message->text), format, arguments);
    va_end(arguments);
    return STATUS_INVALID_CONFIG;
}

static enum status read_text(struct topics_text *text, const char *path,
                             struct topics_message *message) {
    struct stat about;
    ssize_t piece = 1;
    /* Opening a pipe would wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return refuse(message, "cannot read %.500s: %s", path, strerror(errno));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return refuse(message, "%.500s is not a regular file", path);
    }
    while (piece > 0 && text->size < sizeof(text->text)) {
        piece = read(fd, text->text + text->size, sizeof(text->text) - text->size);
        if (piece > 0)
            text->size += (size_t)piece;
        else if (piece < 0 && errno == EINTR)
            piece = 1;
    }
    enum status status =
        piece < 0 ? refuse(message, "cannot read %.500s: %s", path, strerror(errno)) : STATUS_OK;
    close(fd);
    return status;
}

static void text_free(const struct topic_rules *rules) {
    if (rules)
        free(container_of(rules, struct topics_text, rules));
}

enum status topics_reload(struct topics *topics, bool *is_changed, struct topics_message *message) {
    struct topics_file_error error;
    const struct topic_rules *before = NULL;
    char hash[TOPIC_RULES_HASH_SIZE];
    struct topics_text *text = calloc(1, sizeof(*text));
    if (!text)
        return refuse(message, "there is no memory for %.500s", topics->path);
    enum status status = read_text(text, topics->path, message);
    if (status == STATUS_OK) {
        const struct slice whole = {text->text, text->size};
        status = topics_file_parse(&text->rules, whole, topics->payload_bytes_max, &error);
        if (status != STATUS_OK && error.line > 0)
            status = refuse(message, "%.500s:%u: %s", topics->path, error.line, error.text);
        else if (status != STATUS_OK)
            status = refuse(message, "%.500s: %s", topics->path, error.text);
    }
    policy_rules_hash(topics->table, hash);
    *is_changed = status == STATUS_OK && strcmp(hash, text->rules.hash) != 0;
    if (*is_changed) {
        status = policy_rules_replace(topics->table, &text->rules, &before);
        if (status != STATUS_OK)
            status = refuse(message,
                            "%.500s: the files since the start named more than %d classes, or %d "
                            "different policies; restart the server",
                            topics->path, TOPIC_RULE_CLASSES_MAX, POLICIES_KEPT_MAX);
    }
    if (status == STATUS_OK && *is_changed)
        text_free(before);
    else
        free(text);
    return status;
}

enum status topics_open(struct topics *topics, struct policy_table *table, const char *path,
                        struct topics_message *message) {
    bool is_changed;
    *topics = (struct topics){.path = path};
    if (!*path)
        return STATUS_OK;
    struct policy_rules *rules = malloc(sizeof(*rules));
    if (!rules)
        return refuse(message, "there is no memory for %.500s", path);
    topics->table = table;
    policy_rules_init(table, rules);
    enum status status = topics_reload(topics, &is_changed, message);
    if (status != STATUS_OK)
        topics_close(topics);
    else
        topics->payload_bytes_max = policy_largest_payload(table);
    return status;
}

void topics_close(struct topics *topics) {
    if (!topics->table)
        return;
    struct policy_rules *rules = topics->table->rules;
    text_free(rules->rules);
    policy_rules_release(topics->table);
    free(rules);
    topics->table = NULL;
}

/* ---- the record of a changed file ---- */

#define EVENT_TYPE SLICE("operator.topic_policies_changed")
#define HOUR_MS    (UINT64_C(3600) * 1000)

struct topics_record {
    struct append_group group;
    struct append_request request;
    struct buffer payload;
    char idempotency_key[2 * TOPIC_RULES_HASH_SIZE + 32];
};

/* On the writer's thread. */
static void recorded(struct append_group *group) {
    struct topics_record *record = group->user;
    enum status status = record->request.status;
    if (status != STATUS_OK && status != STATUS_NOT_WRITER && status != STATUS_WRITER_LOST)
        log_event(LOG_ERROR, "operator.unrecorded", log_str("status", status_code(status)),
                  log_slice("event_type", EVENT_TYPE),
                  log_slice("payload", buffer_slice(&record->payload)));
    arena_release(&record->group.arena);
    buffer_release(&record->payload);
    free(record);
}

void topics_record(struct writer *writer, const char *before, const char *after) {
    struct topics_record *record = calloc(1, sizeof(*record));
    if (!record)
        return;
    buffer_init(&record->payload, RECORD_EVENT_BYTES_MAX);
    arena_init(&record->group.arena, RECORD_BYTES_MAX);
    struct object_writer event = object_begin(&record->payload);
    object_text(&event, SLICE("after"), slice_of(after));
    object_text(&event, SLICE("before"), slice_of(before));
    enum status status = object_end(&event);
    snprintf(record->idempotency_key, sizeof(record->idempotency_key), "topics:%llu:%s:%s",
             (unsigned long long)(clock_now().wall_ms / HOUR_MS), before, after);
    record->request = (struct append_request){
        .kind = APPEND_AUDIT_EVENT,
        .event_type = EVENT_TYPE,
        .payload = buffer_slice(&record->payload),
        .idempotency_key = slice_of(record->idempotency_key),
        .is_rate_free = true,
        .room_least = STORE_ROOM_LAST,
    };
    sha256(record->payload.data, record->payload.size, record->request.payload_hash);
    record->group.requests = &record->request;
    record->group.request_count = 1;
    record->group.user = record;
    record->group.done = recorded;
    /* Once it is posted, the record is the writer's. */
    if (status == STATUS_OK)
        status = writer_post(writer, &record->group);
    if (status == STATUS_OK)
        return;
    record->request.status = status;
    recorded(&record->group);
}
