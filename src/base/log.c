#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/visible.h"

/* Kept free at the end of a line for what must close it: a quote, the mark of a cut, a brace
 * and the newline. */
#define LINE_TAIL_BYTES 16

/* bytes[0] is a newline of its own: it is written only to end a line torn before this one. */
struct line {
    enum log_format format;
    bool cut;
    size_t size;
    char bytes[LOG_LINE_MAX];
};

static struct {
    enum log_level level;
    enum log_format format;
    int fd;
    pthread_mutex_t lock;
    int64_t lost_count;
    bool torn;
} sink = {LOG_INFO, LOG_TEXT, STDERR_FILENO, PTHREAD_MUTEX_INITIALIZER, 0, false};

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};
static const char *const level_columns[] = {"DEBUG", "INFO ", "WARN ", "ERROR"};

void log_configure(enum log_level level, enum log_format format, int fd) {
    sink.level = level;
    sink.format = format;
    sink.fd = fd;
    sink.lost_count = 0;
    sink.torn = false;
}

/* All or nothing; what does not fit cuts the line there for good. */
static bool line_put(struct line *line, const char *bytes, size_t size) {
    if (line->cut || line->size + size > LOG_LINE_MAX - LINE_TAIL_BYTES) {
        line->cut = true;
        return false;
    }
    memcpy(line->bytes + line->size, bytes, size);
    line->size += size;
    return true;
}

static bool line_put_text(struct line *line, const char *text) {
    return line_put(line, text, strlen(text));
}

/* Closes the line in the room that is kept at its end. */
static void line_close(struct line *line, const char *text) {
    size_t size = strlen(text);
    assert(line->size + size <= LOG_LINE_MAX);
    memcpy(line->bytes + line->size, text, size);
    line->size += size;
}

static bool line_put_string(struct line *line, struct slice text) {
    bool quoted = line->format == LOG_JSON || !visible_is_word(text);
    if (quoted && !line_put(line, "\"", 1))
        return false;
    while (text.size > 0) {
        struct visible visible =
            visible_next(text, line->format == LOG_JSON ? VISIBLE_JSON : VISIBLE_TEXT);
        if (!line_put(line, visible.bytes, visible.size))
            break;
        text = slice_from(text, visible.consumed);
    }
    if (quoted)
        line_close(line, "\"");
    return true;
}

static void line_put_time(struct line *line) {
    struct timespec now;
    struct tm date;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &date);
    size_t size = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &date);
    int rest = snprintf(text + size, sizeof(text) - size, ".%03dZ", (int)(now.tv_nsec / 1000000));
    line_put(line, text, size + (size_t)rest);
}

static void line_compose(struct line *line, enum log_level level, const char *event,
                         const struct log_field *fields, size_t field_count) {
    bool is_json = sink.format == LOG_JSON;
    line->format = sink.format;
    line->cut = false;
    line->bytes[0] = '\n';
    line->size = 1;
    line_put_text(line, is_json ? "{\"ts\":\"" : "");
    line_put_time(line);
    line_put_text(line, is_json ? "\",\"level\":\"" : " ");
    line_put_text(line, is_json ? level_names[level] : level_columns[level]);
    line_put_text(line, is_json ? "\",\"event\":" : " ");
    line_put_string(line, slice_of(event));
    for (size_t i = 0; i < field_count && !line->cut; i++) {
        const struct log_field *field = &fields[i];
        size_t begin = line->size;
        char digits[24];
        bool is_shown = line_put_text(line, is_json ? "," : " ") &&
                        line_put_string(line, slice_of(field->name)) &&
                        line_put_text(line, is_json ? ":" : "=");
        if (is_shown && field->type == LOG_FIELD_STRING) {
            is_shown = line_put_string(line, field->text);
        } else if (is_shown) {
            snprintf(digits, sizeof(digits), "%" PRId64, field->number);
            is_shown = line_put_text(line, digits);
        }
        /* A string is cut if it does not fit; a name or a number is there whole or not at all. */
        if (!is_shown)
            line->size = begin;
    }
    if (line->cut)
        line_close(line, is_json ? ",\"cut\":true" : " cut=true");
    line_close(line, is_json ? "}\n" : "\n");
}

/* Polling first keeps a stalled log reader from blocking the server. */
static bool sink_is_ready(void) {
    struct pollfd ready = {.fd = sink.fd, .events = POLLOUT};
    int count;
    do
        count = poll(&ready, 1, 0);
    while (count < 0 && errno == EINTR);
    return count == 1 && ready.revents == POLLOUT;
}

/* With the lock held. */
static bool sink_write(const struct line *line) {
    size_t begin = sink.torn ? 0 : 1;
    size_t done = begin;
    while (done < line->size && sink_is_ready()) {
        ssize_t written = write(sink.fd, line->bytes + done, line->size - done);
        if (written < 0 && errno != EINTR)
            break;
        if (written > 0)
            done += (size_t)written;
    }
    if (done > begin)
        sink.torn = done < line->size;
    return done == line->size;
}

/* With the lock held. True: all lost lines have been reported. */
static bool sink_report_lost(void) {
    if (sink.lost_count == 0)
        return true;
    struct line line;
    struct log_field count = log_int("count", sink.lost_count);
    line_compose(&line, LOG_WARN, "log.lines_lost", &count, 1);
    if (!sink_write(&line))
        return false;
    sink.lost_count = 0;
    return true;
}

bool log_wants(enum log_level level) {
    return level >= sink.level;
}

void log_emit(enum log_level level, const char *event, const struct log_field *fields,
              size_t field_count) {
    assert(level < LOG_OFF);
    if (!log_wants(level))
        return;
    int error = errno;
    struct line line;
    line_compose(&line, level, event, fields, field_count);
    pthread_mutex_lock(&sink.lock);
    if (!sink_report_lost() || !sink_write(&line))
        sink.lost_count++;
    pthread_mutex_unlock(&sink.lock);
    errno = error;
}
