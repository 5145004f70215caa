#include "client/outbox_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/map.h"
#include "client/client_limits.h"
#include "wire/json.h"

static enum status read_all(int fd, struct buffer *text) {
    for (;;) {
        enum status status = buffer_reserve(text, CLIENT_READ_BYTES);
        if (status != STATUS_OK)
            return status;
        ssize_t size = read(fd, text->data + text->size, CLIENT_READ_BYTES);
        if (size < 0 && errno != EINTR)
            return STATUS_SYSTEM_ERROR;
        if (size == 0)
            return STATUS_OK;
        text->size += size > 0 ? (size_t)size : 0;
    }
}

static bool next_line(struct slice *rest, struct slice *line) {
    const char *end = rest->size > 0 ? memchr(rest->data, '\n', rest->size) : NULL;
    if (!end)
        return false;
    *line = (struct slice){rest->data, (size_t)(end - rest->data)};
    *rest = slice_from(*rest, line->size + 1);
    return true;
}

static enum status give_unanswered(struct slice text, const struct map *answered, void *user,
                                   enum status (*each)(void *user, struct slice event)) {
    struct slice line;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && next_line(&text, &line)) {
        const struct json_limits limits = {CLIENT_EVENT_BYTES_MAX, JSON_DEPTH_MAX};
        struct json_field id = {.name = SLICE("event_id")};
        struct slice value;
        if (line.size < 2 || line.data[0] != '+')
            continue;
        struct slice event = slice_from(line, 1);
        if (json_read_object(event, &limits, &id, 1) == STATUS_OK &&
            json_string_slice(id.value, &value) && !map_find(answered, value))
            status = each(user, event);
    }
    return status;
}

enum status outbox_file_open(struct outbox_file *file, const char *path, void *user,
                             enum status (*each)(void *user, struct slice event)) {
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct buffer text;
    struct map answered;
    struct slice line;
    file->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return STATUS_SYSTEM_ERROR;
    buffer_init(&text, CLIENT_OUTBOX_LINES_BYTES_MAX);
    map_init(&answered, MAP_COUNT_MAX);
    /* A new file is durable once its folder is synced. */
    int size = slash ? snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path) + 1, path)
                     : snprintf(folder, sizeof(folder), ".");
    enum status status = STATUS_SYSTEM_ERROR;
    if (size > 0 && size < (int)sizeof(folder) && file_sync_folder(folder))
        status = read_all(file->fd, &text);
    const char *last = text.size > 0 ? memrchr(text.data, '\n', text.size) : NULL;
    const struct slice whole = {text.data, last ? (size_t)(last - text.data) + 1 : 0};
    if (status == STATUS_OK && whole.size < text.size &&
        ftruncate(file->fd, (off_t)whole.size) != 0)
        status = STATUS_SYSTEM_ERROR;
    for (struct slice rest = whole; status == STATUS_OK && next_line(&rest, &line);) {
        if (line.size < 2 || line.data[0] != '-')
            continue;
        status = map_insert(&answered, slice_from(line, 1), (void *)line.data);
        if (status == STATUS_ALREADY_EXISTS)
            status = STATUS_OK;
    }
    if (status == STATUS_OK)
        status = give_unanswered(whole, &answered, user, each);
    map_release(&answered);
    buffer_release(&text);
    if (status != STATUS_OK)
        outbox_file_close(file);
    return status;
}

void outbox_file_close(struct outbox_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* Writes all of the line or, on failure, none of it. */
static enum status write_line(struct outbox_file *file, char mark, struct slice text) {
    struct buffer line;
    off_t before = lseek(file->fd, 0, SEEK_END);
    if (before < 0)
        return STATUS_SYSTEM_ERROR;
    buffer_init(&line, CLIENT_EVENT_BYTES_MAX + 4096);
    buffer_append_byte(&line, mark);
    buffer_append_slice(&line, text);
    enum status status = buffer_append_byte(&line, '\n');
    if (status == STATUS_OK && write(file->fd, line.data, line.size) != (ssize_t)line.size) {
        status = STATUS_SYSTEM_ERROR;
        /* The beginning of a line would spoil the next one. */
        if (ftruncate(file->fd, before) != 0)
            status = STATUS_SYSTEM_ERROR;
    }
    buffer_release(&line);
    return status;
}

enum status outbox_file_add(struct outbox_file *file, struct slice event) {
    return file->fd < 0 ? STATUS_OK : write_line(file, '+', event);
}

void outbox_file_done(struct outbox_file *file, struct slice id, bool is_last) {
    if (file->fd < 0 || (is_last && ftruncate(file->fd, 0) == 0))
        return;
    if (write_line(file, '-', id) != STATUS_OK)
        return; /* the event is sent again, and the server recognises its id */
}
