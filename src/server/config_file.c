#include "server/config_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"

#define NAME_START "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
#define NAME_BYTES NAME_START "0123456789"
#define BLANKS     " \t"

/* A line on its way into a row. Unquoting never makes a value longer, so it happens in place. */
struct line {
    struct config_file *file;
    struct config_error *error;
    const char *name;
    char *text; /* the value; ends with '\0' */
    unsigned number;
};

enum status config_file_refuse(const struct config_file *file, unsigned line,
                               struct config_error *error, const char *format, ...) {
    va_list arguments;
    int size = snprintf(error->text, sizeof(error->text), "%s:%u: ", file->path, line);
    assert(size > 0 && (size_t)size < sizeof(error->text));
    va_start(arguments, format);
    vsnprintf(error->text + size, sizeof(error->text) - (size_t)size, format, arguments);
    va_end(arguments);
    return STATUS_INVALID_CONFIG;
}

const struct config_file_row *config_file_find(const struct config_file *file, const char *name) {
    for (size_t i = 0; file && i < file->row_count; i++)
        if (strcmp(file->rows[i].name, name) == 0)
            return &file->rows[i];
    return NULL;
}

static enum status refuse(const struct line *line, const char *reason) {
    return config_file_refuse(line->file, line->number, line->error, "%s: %s", line->name, reason);
}

/* Inside double quotes a backslash escapes only "\\`$; elsewhere there it stands for itself. */
static enum status value_unquote(struct line *line) {
    char quote = *line->text;
    char *from = line->text + 1;
    char *to = line->text;
    for (; *from != quote; from++) {
        if (*from == '\\' && quote == '"' && from[1] != '\0' && strchr("\"\\`$", from[1]))
            from++;
        if (*from == '\0')
            return refuse(line, "the closing quote is missing; a value ends on its line");
        *to++ = *from;
    }
    from++;
    if (from[strspn(from, BLANKS)] != '\0')
        return refuse(line, "there is text after the closing quote");
    *to = '\0';
    return STATUS_OK;
}

static enum status value_plain(struct line *line) {
    char *to = line->text;
    char *end = to; /* behind the last byte that is not a trailing blank */
    for (const char *from = line->text; *from; from++) {
        bool is_escaped = *from == '\\';
        if (is_escaped && *++from == '\0')
            return refuse(line, "a value ends on its line; a last backslash is written twice");
        if (!is_escaped && *from == '#' && to > line->text && strchr(BLANKS, to[-1]))
            return refuse(line, "a comment needs its own line; quote a value that contains ' #'");
        *to++ = *from;
        if (is_escaped || !strchr(BLANKS, *from))
            end = to;
    }
    *end = '\0';
    return STATUS_OK;
}

enum status config_file_parse(struct config_file *file, size_t size, struct config_error *error) {
    assert(size <= CONFIG_FILE_BYTES_MAX);
    char *end = file->text + size;
    unsigned number = 0;
    file->row_count = 0;
    *end = '\0';
    for (char *text = file->text; text < end;) {
        char *next = memchr(text, '\n', (size_t)(end - text));
        char *line_end = next ? next : end;
        struct slice line = {text, (size_t)(line_end - text)};
        number++;
        if (line.size > CONFIG_FILE_LINE_BYTES_MAX)
            return config_file_refuse(file, number, error, "the line is longer than %d bytes",
                                      CONFIG_FILE_LINE_BYTES_MAX);
        if (memchr(text, '\0', line.size) || !utf8_valid(line))
            return config_file_refuse(file, number, error, "the line is not text in UTF-8");
        if (line.size > 0 && line_end[-1] == '\r')
            line_end--;
        *line_end = '\0';
        char *name = text + strspn(text, BLANKS);
        text = next ? next + 1 : end;
        if (*name == '\0' || *name == '#' || *name == ';')
            continue;
        size_t name_size = strchr(NAME_START, *name) ? strspn(name, NAME_BYTES) : 0;
        size_t gap = strspn(name + name_size, BLANKS);
        if (name_size == 0 || name[name_size + gap] != '=')
            return config_file_refuse(file, number, error, "'%.60s' is not KEY=value", name);
        struct line row = {file, error, name, name + name_size + gap + 1, number};
        row.text += strspn(row.text, BLANKS);
        name[name_size] = '\0';
        enum status status =
            *row.text == '"' || *row.text == '\'' ? value_unquote(&row) : value_plain(&row);
        if (status != STATUS_OK)
            return status;
        const struct config_file_row *first = config_file_find(file, name);
        if (first)
            return config_file_refuse(file, number, error, "%s is already set in line %u", name,
                                      first->line);
        if (file->row_count == CONFIG_FILE_ROWS_MAX)
            return config_file_refuse(file, number, error, "there are more than %d settings",
                                      CONFIG_FILE_ROWS_MAX);
        file->rows[file->row_count++] = (struct config_file_row){name, row.text, number};
    }
    return STATUS_OK;
}

static enum status cannot_read(const char *path, struct config_error *error) {
    int reason = errno;
    snprintf(error->text, sizeof(error->text), "cannot read the settings in %.500s: %s", path,
             strerror(reason));
    errno = reason;
    return STATUS_SYSTEM_ERROR;
}

enum status config_file_read(struct config_file *file, const char *path,
                             struct config_error *error) {
    size_t size = 0;
    ssize_t piece = 1;
    file->row_count = 0;
    if (strlen(path) >= sizeof(file->path)) {
        snprintf(error->text, sizeof(error->text), "the path of the settings is longer than %zu",
                 sizeof(file->path) - 1);
        return STATUS_INVALID_CONFIG;
    }
    strcpy(file->path, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cannot_read(path, error);
    /* The last byte of text is for the '\0': a file that fills it is too large. */
    while (piece > 0 && size < sizeof(file->text)) {
        piece = read(fd, file->text + size, sizeof(file->text) - size);
        if (piece > 0)
            size += (size_t)piece;
        else if (piece < 0 && errno == EINTR)
            piece = 1;
    }
    enum status status = piece < 0 ? cannot_read(path, error) : STATUS_OK;
    int reason = errno;
    close(fd);
    errno = reason;
    if (status != STATUS_OK)
        return status;
    if (size > CONFIG_FILE_BYTES_MAX) {
        snprintf(error->text, sizeof(error->text), "%s is larger than %d bytes", path,
                 CONFIG_FILE_BYTES_MAX);
        return STATUS_INVALID_CONFIG;
    }
    return config_file_parse(file, size, error);
}
