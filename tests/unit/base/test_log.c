#include "base/log.h"
#include "base/utf8.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SENDER_COUNT 4
#define LINE_COUNT   1000
#define OUTPUT_MAX   (1 << 20)

/* What was logged since the last look, as one text. */
static struct {
    int ends[2];
    size_t size;
    char bytes[OUTPUT_MAX];
} output;

static int open_pipe(void **state) {
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    alarm(60);
    return pipe2(output.ends, O_CLOEXEC);
}

static int close_pipe(void **state) {
    (void)state;
    close(output.ends[0]);
    close(output.ends[1]);
    log_configure(LOG_INFO, LOG_TEXT, STDERR_FILENO);
    return 0;
}

static const char *logged(void) {
    fcntl(output.ends[0], F_SETFL, O_NONBLOCK);
    output.size = 0;
    ssize_t size;
    while ((size = read(output.ends[0], output.bytes + output.size,
                        sizeof(output.bytes) - 1 - output.size)) > 0)
        output.size += (size_t)size;
    output.bytes[output.size] = 0;
    return output.bytes;
}

static void assert_one_line(void) {
    assert_true(output.size > 0 && output.size <= LOG_LINE_MAX);
    assert_ptr_equal(memchr(output.bytes, '\n', output.size), output.bytes + output.size - 1);
    assert_true(utf8_valid((struct slice){output.bytes, output.size}));
    for (size_t i = 0; i + 1 < output.size; i++)
        assert_true((uint8_t)output.bytes[i] >= 0x20 && output.bytes[i] != 0x7f);
}

/* Checks 2026-11-15T07:03:00.123Z and returns what follows. */
static const char *skip_time(const char *text) {
    const char *shape = "dddd-dd-ddTdd:dd:dd.dddZ";
    for (; *shape; shape++, text++) {
        if (*shape == 'd')
            assert_in_range(*text, '0', '9');
        else
            assert_int_equal(*text, *shape);
    }
    return text;
}

static json_t *logged_json(void) {
    logged();
    assert_one_line();
    json_error_t error;
    json_t *line =
        json_loadb(output.bytes, output.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    assert_non_null(line);
    return line;
}

static void text_reads_as_documented(void **state) {
    (void)state;
    log_configure(LOG_DEBUG, LOG_TEXT, output.ends[1]);
    log_event(LOG_INFO, "listener.ready", log_str("address", "127.0.0.1:4100"),
              log_int("loops", 2));
    assert_string_equal(skip_time(logged()),
                        " INFO  listener.ready address=127.0.0.1:4100 loops=2\n");
    log_event(LOG_DEBUG, "a", log_int("least", INT64_MIN), log_int("most", INT64_MAX));
    assert_string_equal(skip_time(logged()),
                        " DEBUG a least=-9223372036854775808 most=9223372036854775807\n");
    log_event(LOG_WARN, "b", log_str("none", NULL));
    assert_string_equal(skip_time(logged()), " WARN  b none=\"\"\n");
    log_event(LOG_ERROR, "c");
    assert_string_equal(skip_time(logged()), " ERROR c\n");
}

static void json_reads_as_documented(void **state) {
    (void)state;
    log_configure(LOG_DEBUG, LOG_JSON, output.ends[1]);
    log_event(LOG_INFO, "listener.ready", log_str("address", "127.0.0.1:4100"),
              log_int("loops", 2));
    const char *text = logged();
    assert_memory_equal(text, "{\"ts\":\"", 7);
    assert_string_equal(skip_time(text + 7), "\",\"level\":\"info\",\"event\":\"listener.ready\","
                                             "\"address\":\"127.0.0.1:4100\",\"loops\":2}\n");
    log_event(LOG_ERROR, "c");
    json_t *line = logged_json();
    assert_string_equal(json_string_value(json_object_get(line, "level")), "error");
    assert_int_equal(json_object_size(line), 3);
    json_decref(line);
}

static void text_values_are_quoted_when_they_must_be(void **state) {
    (void)state;
    static const struct {
        struct slice value;
        const char *shown;
    } cases[] = {
        {SLICE("plain/word:4100?x"), "plain/word:4100?x"},
        {SLICE(""), "\"\""},
        {SLICE("two words"), "\"two words\""},
        {SLICE("a=b"), "\"a=b\""},
        {SLICE("say \"x\""), "\"say \\\"x\\\"\""},
        {SLICE("back\\slash"), "\"back\\\\slash\""},
        {SLICE("x\n2026-11-15T07:03:00.123Z INFO  forged"),
         "\"x\\n2026-11-15T07:03:00.123Z INFO  forged\""},
        {SLICE("\r\t\0\x1b[2J\x7f"), "\"\\r\\t\\x00\\x1b[2J\\x7f\""},
        {SLICE("caf\xc3\xa9 \xf0\x9f\x9a\x80"), "\"caf\xc3\xa9 \xf0\x9f\x9a\x80\""},
        {SLICE("\xff\xc3("), "\"\\xff\\xc3(\""},
        {SLICE("\xe2\x82"), "\"\\xe2\\x82\""},
        {SLICE("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\""},
        {SLICE("\xc2\x85\xc2\x9b\xc2\xa0"), "\"\\u0085\\u009b\xc2\xa0\""},
        {SLICE("\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xe2\x80\xa7"),
         "\"\\u2028\\u202e\\u2066\xe2\x80\xa7\""},
    };
    log_configure(LOG_INFO, LOG_TEXT, output.ends[1]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char expected[200];
        snprintf(expected, sizeof(expected), " INFO  e v=%s after=1\n", cases[i].shown);
        log_event(LOG_INFO, "e", log_slice("v", cases[i].value), log_int("after", 1));
        assert_string_equal(skip_time(logged()), expected);
        assert_one_line();
    }
}

static void json_values_come_back_as_they_went(void **state) {
    (void)state;
    static const struct slice values[] = {
        SLICE(""),
        SLICE("\",\"level\":\"error\",\"x\":\""),
        SLICE("line\nline\r\ttab\b\f"),
        SLICE("nul\0inside"),
        SLICE("\x01\x1f\x7f"),
        SLICE("caf\xc3\xa9 \xf0\x9f\x9a\x80 \xc2\x85 \xe2\x80\xa8 \xef\xbb\xbf"),
        SLICE("back\\slash / \\u0041"),
    };
    log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        log_event(LOG_INFO, "e", log_slice("v", values[i]), log_int("after", -1));
        json_t *line = logged_json();
        json_t *value = json_object_get(line, "v");
        assert_true(slice_equal((struct slice){json_string_value(value), json_string_length(value)},
                                values[i]));
        assert_int_equal(json_integer_value(json_object_get(line, "after")), -1);
        json_decref(line);
    }
    log_event(LOG_INFO, "e", log_slice("v", SLICE("a\xff\xe2\x82z")));
    json_t *line = logged_json();
    assert_string_equal(json_string_value(json_object_get(line, "v")), "a\\xff\\xe2\\x82z");
    json_decref(line);
}

static void a_long_value_is_cut_and_the_line_says_so(void **state) {
    (void)state;
    static char value[10240];
    static const char *const fills[] = {"x", "\n", "\"", "\x01", "\xff", "\xf0\x9f\x9a\x80"};
    for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
        size_t width = strlen(fills[i]);
        for (size_t at = 0; at + width <= sizeof(value); at += width)
            memcpy(value + at, fills[i], width);
        struct slice text = {value, sizeof(value) / width * width};
        log_configure(LOG_INFO, LOG_TEXT, output.ends[1]);
        log_event(LOG_INFO, "e", log_slice("v", text), log_int("after", 1));
        assert_non_null(strstr(logged(), " cut=true\n"));
        assert_one_line();
        assert_null(strstr(output.bytes, "after"));
        log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
        log_event(LOG_INFO, "e", log_int("before", 7), log_slice("v", text), log_int("after", 1));
        json_t *line = logged_json();
        assert_true(output.size > LOG_LINE_MAX - 32);
        assert_true(json_is_true(json_object_get(line, "cut")));
        assert_int_equal(json_integer_value(json_object_get(line, "before")), 7);
        assert_null(json_object_get(line, "after"));
        json_decref(line);
    }
}

/* Moves the end of the room over every byte of the fields behind a padding. */
static void a_cut_at_any_byte_leaves_a_valid_line(void **state) {
    (void)state;
    static char padding[LOG_LINE_MAX];
    memset(padding, 'p', sizeof(padding));
    for (size_t size = LOG_LINE_MAX - 200; size < LOG_LINE_MAX; size++) {
        struct slice text = {padding, size};
        log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
        log_event(LOG_INFO, "e", log_slice("padding", text), log_str("say", "\"caf\xc3\xa9\"\n"),
                  log_int("number", 1234567890123), log_str("last", ""));
        json_t *line = logged_json();
        json_t *number = json_object_get(line, "number");
        bool whole = json_object_get(line, "last") != NULL;
        assert_int_equal(json_is_true(json_object_get(line, "cut")), !whole);
        assert_true(!number || json_integer_value(number) == 1234567890123);
        json_decref(line);
        log_configure(LOG_INFO, LOG_TEXT, output.ends[1]);
        log_event(LOG_INFO, "e", log_slice("padding", text), log_str("say", "\"caf\xc3\xa9\"\n"),
                  log_int("number", 1234567890123), log_str("last", ""));
        logged();
        assert_one_line();
        assert_true(!strstr(output.bytes, " cut=true\n") == !!strstr(output.bytes, " last=\"\"\n"));
    }
}

static void names_and_events_cannot_forge_either(void **state) {
    (void)state;
    log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
    log_event(LOG_INFO, "e\n\"x", log_int("a\":1,\"b", 2));
    json_t *line = logged_json();
    assert_string_equal(json_string_value(json_object_get(line, "event")), "e\n\"x");
    assert_int_equal(json_integer_value(json_object_get(line, "a\":1,\"b")), 2);
    json_decref(line);
}

static void random_bytes_never_break_a_line(void **state) {
    (void)state;
    uint64_t seed = 11;
    log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
    for (int round = 0; round < 3000; round++) {
        char value[300];
        size_t size = test_random(&seed) % sizeof(value);
        for (size_t i = 0; i < size; i++)
            value[i] = (char)test_random(&seed);
        log_event(LOG_INFO, "e", log_slice("v", (struct slice){value, size}), log_int("after", 1));
        json_t *line = logged_json();
        assert_int_equal(json_object_size(line), 5);
        json_decref(line);
    }
}

static void lower_levels_are_silent(void **state) {
    (void)state;
    for (int level = LOG_DEBUG; level <= LOG_OFF; level++) {
        log_configure((enum log_level)level, LOG_TEXT, output.ends[1]);
        for (int event = LOG_DEBUG; event < LOG_OFF; event++) {
            log_event((enum log_level)event, "e");
            logged();
            assert_int_equal(output.size > 0, event >= level);
        }
    }
}

static void errno_is_kept(void **state) {
    (void)state;
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    log_configure(LOG_INFO, LOG_TEXT, full);
    errno = EDOM;
    log_event(LOG_INFO, "e");
    assert_int_equal(errno, EDOM);
    close(full);
}

static void a_full_pipe_loses_lines_and_tells(void **state) {
    (void)state;
    static char filler[LOG_LINE_MAX];
    memset(filler, 'f', sizeof(filler));
    log_configure(LOG_ERROR, LOG_TEXT, output.ends[1]);
    fcntl(output.ends[1], F_SETFL, O_NONBLOCK);
    while (write(output.ends[1], filler, sizeof(filler)) > 0)
        ;
    fcntl(output.ends[1], F_SETFL, 0);
    for (int i = 0; i < 3; i++)
        log_event(LOG_ERROR, "lost");
    assert_null(strstr(logged(), "lost"));
    log_event(LOG_ERROR, "again");
    log_event(LOG_ERROR, "again");
    const char *rest = skip_time(logged());
    const char *note = " WARN  log.lines_lost count=3\n";
    assert_memory_equal(rest, note, strlen(note));
    rest = skip_time(rest + strlen(note));
    assert_memory_equal(rest, " ERROR again\n", 13);
    assert_string_equal(skip_time(rest + 13), " ERROR again\n");
}

/* SIGPIPE has its default here: a write would end the program. */
static void a_closed_reader_does_not_end_the_process(void **state) {
    (void)state;
    log_configure(LOG_INFO, LOG_TEXT, output.ends[1]);
    close(output.ends[0]);
    log_event(LOG_INFO, "e");
    log_configure(LOG_INFO, LOG_TEXT, 9999);
    log_event(LOG_INFO, "e");
    output.ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* A file that may not grow takes part of a line; the next line must not continue it. */
static void a_torn_line_swallows_no_other(void **state) {
    (void)state;
    char text[400];
    struct rlimit before;
    int file = memfd_create("log", MFD_CLOEXEC);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    log_configure(LOG_INFO, LOG_TEXT, file);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){40, before.rlim_max});
    log_event(LOG_INFO, "torn", log_str("value", "abcdefghijklmnopqrstuvwxyz"));
    log_event(LOG_INFO, "lost");
    setrlimit(RLIMIT_FSIZE, &before);
    log_event(LOG_INFO, "whole");
    ssize_t size = pread(file, text, sizeof(text) - 1, 0);
    close(file);
    assert_true(size > 40);
    text[size] = 0;
    assert_int_equal(text[40], '\n');
    const char *rest = skip_time(text + 41);
    const char *note = " WARN  log.lines_lost count=2\n";
    assert_memory_equal(rest, note, strlen(note));
    assert_string_equal(skip_time(rest + strlen(note)), " INFO  whole\n");
}

static void *send_lines(void *user) {
    int sender = *(int *)user;
    for (int i = 0; i < LINE_COUNT; i++)
        log_event(LOG_INFO, "thread.line", log_int("sender", sender), log_int("index", i),
                  log_slice("padding", (struct slice){"abcdefghijklmnopqrst", (size_t)i % 20}));
    return NULL;
}

/* The pipe is made large enough for all of it, so that no line may be missing. */
static void lines_of_threads_never_mix(void **state) {
    (void)state;
    pthread_t threads[SENDER_COUNT];
    int senders[SENDER_COUNT];
    int64_t next[SENDER_COUNT] = {0};
    assert_true(fcntl(output.ends[1], F_SETPIPE_SZ, OUTPUT_MAX) >= OUTPUT_MAX);
    log_configure(LOG_INFO, LOG_JSON, output.ends[1]);
    for (int i = 0; i < SENDER_COUNT; i++) {
        senders[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, send_lines, &senders[i]), 0);
    }
    for (int i = 0; i < SENDER_COUNT; i++)
        pthread_join(threads[i], NULL);
    int count = 0;
    for (const char *line = logged(), *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        json_t *parsed = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(parsed);
        json_int_t sender = json_integer_value(json_object_get(parsed, "sender"));
        assert_in_range(sender, 0, SENDER_COUNT - 1);
        assert_int_equal(json_integer_value(json_object_get(parsed, "index")), next[sender]++);
        json_decref(parsed);
    }
    assert_int_equal(count, SENDER_COUNT * LINE_COUNT);
}

#define piped(test) cmocka_unit_test_setup_teardown(test, open_pipe, close_pipe)

int main(void) {
    const struct CMUnitTest tests[] = {
        piped(text_reads_as_documented),
        piped(json_reads_as_documented),
        piped(text_values_are_quoted_when_they_must_be),
        piped(json_values_come_back_as_they_went),
        piped(a_long_value_is_cut_and_the_line_says_so),
        piped(a_cut_at_any_byte_leaves_a_valid_line),
        piped(names_and_events_cannot_forge_either),
        piped(random_bytes_never_break_a_line),
        piped(lower_levels_are_silent),
        piped(errno_is_kept),
        piped(a_full_pipe_loses_lines_and_tells),
        piped(a_closed_reader_does_not_end_the_process),
        piped(a_torn_line_swallows_no_other),
        piped(lines_of_threads_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
