#include "promises.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "client/outbox_file.h"
#include "projector/reproject.h"
#include "projector/verify.h"
#include "store/store_maintenance.h"

#define LINE_BYTES_MAX 512
#define FILES_MAX      64
#define LOG_TEXT_MAX   4096

/* The lines of a log: its epoch, then one for each event. */
struct log {
    char **lines;
    size_t count;
};

struct content {
    bool is_there;
    uint8_t *data;
    size_t size;
};

/* A file that is replaced as a whole, and each content that it has had since the last mark. */
struct kept {
    char path[LINE_BYTES_MAX];
    const struct disk_file *file;
    uint64_t version;
    struct content *contents;
    size_t count;
};

struct word {
    char text[LINE_BYTES_MAX];
};

struct words {
    struct word *items;
    size_t count;
};

struct promises {
    char store[LINE_BYTES_MAX]; /* empty: none */
    struct log log, next_log;
    size_t events, next_events;
    bool is_replacing;
    struct words revoked, used, keys;
    struct words lines, rows; /* "PATH ID" */
    struct kept kept[FILES_MAX];
    size_t kept_count;
};

struct promises *promises_new(void) {
    struct promises *promises = calloc(1, sizeof(*promises));
    if (!promises)
        abort();
    return promises;
}

static bool broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

static bool broken(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    return false;
}

/* ---- marks ---- */

static void add_word(struct words *words, const char *text) {
    words->items = realloc(words->items, (words->count + 1) * sizeof(*words->items));
    if (!words->items)
        abort();
    snprintf(words->items[words->count++].text, LINE_BYTES_MAX, "%s", text);
}

static void drop_word(struct words *words, const char *text) {
    for (size_t i = 0; i < words->count; i++)
        if (strcmp(words->items[i].text, text) == 0)
            words->items[i--] = words->items[--words->count];
}

static void read_log(struct log *log, const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    *log = (struct log){.count = 0};
    if (!file) {
        perror(path);
        exit(2);
    }
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        log->lines = realloc(log->lines, (log->count + 1) * sizeof(*log->lines));
        if (!log->lines || !(log->lines[log->count++] = strdup(line)))
            abort();
    }
    free(line);
    fclose(file);
}

/* How many events the log must have to have this one. */
static size_t events_with(const struct log *log, const char *id) {
    for (size_t i = 1; i < log->count; i++)
        if (strncmp(log->lines[i], id, strlen(id)) == 0)
            return i;
    fprintf(stderr, "power_cut: event %s was acknowledged and is not in the whole log\n", id);
    exit(2);
}

static void add_content(struct kept *kept, const struct disk *disk) {
    const struct disk_file *file = disk_find(disk, kept->path);
    size_t size = 0;
    const uint8_t *bytes = file ? disk_file_bytes(file, &size) : NULL;
    kept->contents = realloc(kept->contents, (kept->count + 1) * sizeof(*kept->contents));
    uint8_t *data = malloc(size + 1);
    if (!kept->contents || !data)
        abort();
    if (size > 0)
        memcpy(data, bytes, size);
    kept->contents[kept->count++] = (struct content){file != NULL, data, size};
    kept->file = file;
    kept->version = file ? disk_file_version(file) : 0;
}

static void keep(struct promises *promises, const struct disk *disk, const char *path) {
    size_t at = 0;
    while (at < promises->kept_count && strcmp(promises->kept[at].path, path) != 0)
        at++;
    if (at == FILES_MAX)
        abort();
    if (at == promises->kept_count)
        snprintf(promises->kept[promises->kept_count++].path, LINE_BYTES_MAX, "%s", path);
    struct kept *kept = &promises->kept[at];
    while (kept->count > 0)
        free(kept->contents[--kept->count].data);
    add_content(kept, disk);
}

static void take_mark(struct promises *promises, const struct disk *disk, char *line) {
    char *rest = strchr(line, ' ');
    if (rest)
        *rest++ = '\0';
    char *second = rest ? strchr(rest, ' ') : NULL;
    if (strcmp(line, "store") == 0 && second) {
        *second = '\0';
        snprintf(promises->store, sizeof(promises->store), "%s", rest);
        read_log(&promises->log, second + 1);
    } else if (strcmp(line, "events") == 0 && rest) {
        promises->events = strtoull(rest, NULL, 10);
    } else if (strcmp(line, "acked") == 0 && rest) {
        size_t count = events_with(&promises->log, rest);
        if (count > promises->events)
            promises->events = count;
    } else if (strcmp(line, "revoked") == 0 && rest) {
        add_word(&promises->revoked, rest);
    } else if (strcmp(line, "used") == 0 && rest) {
        add_word(&promises->used, rest);
    } else if (strcmp(line, "key") == 0 && rest) {
        add_word(&promises->keys, rest);
    } else if (strcmp(line, "replacing") == 0 && second) {
        *second = '\0';
        read_log(&promises->next_log, rest);
        promises->next_events = strtoull(second + 1, NULL, 10);
        promises->is_replacing = true;
    } else if (strcmp(line, "replaced") == 0) {
        promises->log = promises->next_log;
        promises->events = promises->next_events;
        promises->is_replacing = false;
        promises->revoked = promises->used = promises->keys = (struct words){0};
    } else if (strcmp(line, "kept") == 0 && rest) {
        keep(promises, disk, rest);
    } else if (strcmp(line, "line") == 0 && second) {
        add_word(&promises->lines, rest);
    } else if (strcmp(line, "row") == 0 && second) {
        add_word(&promises->rows, rest);
    } else if (strcmp(line, "answered") == 0 && second) {
        drop_word(&promises->lines, rest);
        drop_word(&promises->rows, rest);
    } else {
        fprintf(stderr, "power_cut: a mark is not understood: %s\n", line);
        exit(2);
    }
}

void promises_note(struct promises *promises, const struct disk *disk,
                   const struct trace_head *head) {
    if (head->kind == TRACE_MARK) {
        char line[2 * PATH_MAX];
        const char *text = (const char *)(head + 1) + head->path_size + head->to_size;
        snprintf(line, sizeof(line), "%.*s", (int)head->bytes, text);
        take_mark(promises, disk, line);
        return;
    }
    for (size_t i = 0; i < promises->kept_count && head->kind != TRACE_SYNC; i++) {
        struct kept *kept = &promises->kept[i];
        const struct disk_file *file = disk_find(disk, kept->path);
        if (file != kept->file || (file && disk_file_version(file) != kept->version))
            add_content(kept, disk);
    }
}

/* ---- the store ---- */

static void format_event(const struct store_event *event, char line[LINE_BYTES_MAX]) {
    char id[UUID_TEXT_SIZE], cursor[UUID_TEXT_SIZE];
    char chain[2 * SHA256_BYTES];
    uuid_format(&event->event_id, id);
    uuid_format(&event->cursor, cursor);
    hex_write(chain, event->chain_hash, SHA256_BYTES);
    snprintf(line, LINE_BYTES_MAX, "%.*s %.*s %.*s", UUID_TEXT_SIZE, id, UUID_TEXT_SIZE, cursor,
             (int)sizeof(chain), chain);
}

struct comparison {
    const struct log *log;
    size_t count;
    bool is_same;
};

static enum status compare_event(void *user, const struct store_event *event) {
    struct comparison *comparison = user;
    char line[LINE_BYTES_MAX];
    format_event(event, line);
    size_t at = ++comparison->count;
    if (at >= comparison->log->count || strcmp(line, comparison->log->lines[at]) != 0)
        comparison->is_same = broken("event %zu of the log is another one: %s", at, line);
    return STATUS_OK;
}

struct found {
    uint64_t last_ms; /* of the last event */
    bool is_next;     /* the store that replaces the one of the other promises */
};

/* The log is the beginning of one that is right, and has every event that was acknowledged. */
static bool log_holds(const struct promises *promises, struct store_session *session,
                      struct found *found) {
    struct store_state state;
    enum status status = store_read_state(session, &state);
    if (status != STATUS_OK)
        return broken("the state cannot be read: %s", store_session_error(session));
    found->last_ms = uuid7_timestamp_ms(&state.cursor);
    found->is_next =
        promises->is_replacing && strcmp(state.epoch, promises->next_log.lines[0]) == 0;
    struct comparison comparison = {found->is_next ? &promises->next_log : &promises->log, 0, true};
    size_t events = found->is_next ? promises->next_events : promises->events;
    status = store_walk_log(session, 0, UINT64_MAX, &comparison, compare_event);
    if (status != STATUS_OK)
        return broken("the log cannot be read: %s", store_session_error(session));
    if (comparison.count < events)
        return broken("%zu events were acknowledged, and %zu are there", events, comparison.count);
    /* A store that was made anew after a cut before its first event has another epoch. */
    if (comparison.count > 0 && strcmp(state.epoch, comparison.log->lines[0]) != 0)
        return broken("the epoch is another one: %s", state.epoch);
    return comparison.is_same;
}

static void show_damage(void *user, const struct journal_damage *damage) {
    (void)user;
    (void)broken("journal of %.*s, seq %llu: %s", (int)damage->topic.size, damage->topic.data,
                 (unsigned long long)damage->seq, damage->message);
}

static void show_document(void *user, struct slice key, const char *message) {
    (void)user;
    (void)broken("document %.*s: %s", (int)key.size, key.data, message);
}

static void show_drift(void *user, const struct reproject_drift *drift) {
    (void)user;
    (void)broken("drift of %.*s: %s", (int)drift->document_key.size, drift->document_key.data,
                 drift->message);
}

/* The checks of 'khala verify' and of 'khala reproject --all --verify'. */
static bool derived_holds(struct store_session *session) {
    const struct verify_options no_options = {NULL, NULL};
    const struct journal_check_options journal_options = {NULL, show_damage};
    const struct document_check_options document_options = {NULL, show_document};
    struct verify_result log;
    struct journal_check_result journal;
    struct document_check_result documents;
    struct reproject_result rebuilt;
    struct store_message message = {""};
    struct clock clock;
    clock_init(&clock);
    const struct reproject_options rebuild = {
        .kind = ENTITY_RUN, .now_ms = clock_wall_ms(&clock), .on_drift = show_drift};
    if (store_check_pages(session, true, &message) != STATUS_OK)
        return broken("a page is damaged: %s", message.text);
    if (verify(session, &no_options, &log) != STATUS_OK || log.is_broken)
        return broken("the chain breaks at %s, seq %llu: %s", log.broken.entity,
                      (unsigned long long)log.broken.seq, log.broken.message);
    if (journal_check(session, &journal_options, &journal) != STATUS_OK || journal.damages > 0)
        return broken("a journal is damaged");
    if (document_check(session, &document_options, &documents) != STATUS_OK ||
        documents.damages > 0)
        return broken("a document is damaged");
    if (reproject(session, &rebuild, &rebuilt) != STATUS_OK || rebuilt.drifted > 0)
        return broken("%llu documents differ from a rebuild", (unsigned long long)rebuilt.drifted);
    return true;
}

static enum status find_revocation(void *user, const struct store_revocation *revocation) {
    drop_word(user, strndupa(revocation->id.data, revocation->id.size));
    return STATUS_OK;
}

static enum status find_key(void *user, const struct store_operator_key *key) {
    drop_word(user, strndupa(key->name.data, key->name.size));
    return STATUS_OK;
}

static struct words copy_words(const struct words *words) {
    struct words copy = {0};
    for (size_t i = 0; i < words->count; i++)
        add_word(&copy, words->items[i].text);
    return copy;
}

static bool access_holds(const struct promises *promises, struct store_session *session) {
    struct words revoked = copy_words(&promises->revoked), keys = copy_words(&promises->keys);
    if (store_walk_revocations(session, 0, &revoked, find_revocation) != STATUS_OK ||
        store_walk_operator_keys(session, &keys, find_key) != STATUS_OK)
        return broken("revocations or keys cannot be read: %s", store_session_error(session));
    if (revoked.count > 0)
        return broken("the revocation of %s is lost", revoked.items[0].text);
    return keys.count == 0 || broken("the key %s is lost", keys.items[0].text);
}

/* Also shows that the store takes a commit. The time is that of the last event, because uses are
 * forgotten when their tokens have expired. */
static bool uses_hold(const struct promises *promises, struct store_session *session,
                      uint64_t now_ms) {
    struct store_single_use use = {SINGLE_USE_TOKEN, SLICE("after the cut"), now_ms + 1, false};
    if (store_use_once(session, &use, 1, now_ms) != STATUS_OK)
        return broken("the store takes no commit: %s", store_session_error(session));
    for (size_t i = 0; i < promises->used.count; i++) {
        struct slice id = slice_of(promises->used.items[i].text);
        use = (struct store_single_use){SINGLE_USE_TOKEN, id, now_ms + 1, false};
        if (store_use_once(session, &use, 1, now_ms) != STATUS_OK || !use.was_used)
            return broken("the use of %.*s is forgotten", (int)id.size, id.data);
    }
    return true;
}

/* The server repairs derived data without being asked, and logs that; after a cut there is nothing
 * to repair. */
static bool log_is_silent(FILE *log) {
    char text[LOG_TEXT_MAX];
    fflush(log);
    ssize_t size = pread(fileno(log), text, sizeof(text) - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    return size == 0 || broken("it logs: %s", text);
}

static bool store_holds(const struct promises *promises, const char *folder) {
    char path[PATH_MAX];
    struct store *store = NULL;
    struct store_session *reading = NULL, *writing = NULL;
    struct store_message message = {""};
    struct found found = {.is_next = false};
    FILE *log = tmpfile();
    if (!log)
        return broken("no file for the log");
    log_configure(LOG_WARN, LOG_TEXT, fileno(log));
    snprintf(path, sizeof(path), "%s/%s", folder, promises->store);
    enum status status = store_migrate(path, &message);
    if (status == STATUS_OK)
        status = store_open(&store, path, true, &message);
    if (status == STATUS_OK)
        status = store_session_open(store, STORE_READ, &reading);
    if (status == STATUS_OK)
        status = store_session_open(store, STORE_WRITE, &writing);
    bool holds = status == STATUS_OK;
    if (!holds)
        (void)broken("the store does not open: %s: %s", status_code(status), message.text);
    holds = holds && log_holds(promises, reading, &found) && derived_holds(reading);
    if (!found.is_next)
        holds =
            holds && access_holds(promises, reading) && uses_hold(promises, writing, found.last_ms);
    holds = holds && log_is_silent(log);
    if (writing)
        store_session_close(writing);
    if (reading)
        store_session_close(reading);
    if (store)
        store_close(store);
    fclose(log);
    return holds;
}

/* ---- files ---- */

static bool is_content(const struct content *content, bool is_there, const uint8_t *data,
                       size_t size) {
    return content->is_there == is_there && content->size == size &&
           (size == 0 || memcmp(content->data, data, size) == 0);
}

static bool file_holds(const struct kept *kept, const char *folder) {
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, kept->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found = {.st_size = 0};
    if (fd >= 0 && fstat(fd, &found) != 0)
        return broken("%s: %s", kept->path, strerror(errno));
    size_t size = (size_t)found.st_size;
    uint8_t *data = malloc(size + 1);
    bool is_same = data && (fd < 0 || read(fd, data, size) == (ssize_t)size);
    bool is_known = false;
    for (size_t i = 0; is_same && !is_known && i < kept->count; i++)
        is_known = is_content(&kept->contents[i], fd >= 0, data, size);
    if (fd >= 0)
        close(fd);
    free(data);
    return is_known || broken("%s is %s, with %zu bytes", kept->path,
                              fd < 0 ? "gone" : "neither the old nor the new file", size);
}

static enum status find_line(void *user, struct slice event) {
    struct words *missing = user;
    for (size_t i = 0; i < missing->count; i++) {
        const char *id = strchr(missing->items[i].text, ' ') + 1;
        if (memmem(event.data, event.size, id, strlen(id)))
            missing->items[i--] = missing->items[--missing->count];
    }
    return STATUS_OK;
}

static enum status read_lines(const char *path, struct words *missing) {
    struct outbox_file file;
    enum status status = outbox_file_open(&file, path, missing, find_line);
    if (status == STATUS_OK)
        outbox_file_close(&file);
    return status;
}

static enum status read_rows(const char *path, struct words *missing) {
    sqlite3 *database = NULL;
    sqlite3_stmt *rows = NULL;
    int code = sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(database, "SELECT line FROM outbox", -1, &rows, NULL);
    while (code == SQLITE_OK && sqlite3_step(rows) == SQLITE_ROW)
        (void)find_line(missing, slice_of((const char *)sqlite3_column_text(rows, 0)));
    if (code != SQLITE_OK)
        (void)broken("%s: %s", path, sqlite3_errmsg(database));
    sqlite3_finalize(rows);
    sqlite3_close(database);
    return code == SQLITE_OK ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

static bool outboxes_hold(const struct words *words, const char *folder,
                          enum status (*read)(const char *path, struct words *missing)) {
    for (size_t i = 0; i < words->count; i++) {
        struct words missing = {0};
        char path[PATH_MAX];
        const char *text = words->items[i].text;
        size_t path_size = (size_t)(strchr(text, ' ') - text) + 1;
        bool is_first = true;
        for (size_t j = 0; j < words->count; j++)
            if (strncmp(words->items[j].text, text, path_size) == 0) {
                is_first = is_first && j >= i;
                add_word(&missing, words->items[j].text);
            }
        if (!is_first)
            continue;
        snprintf(path, sizeof(path), "%s/%.*s", folder, (int)path_size - 1, text);
        if (read(path, &missing) != STATUS_OK)
            return broken("%s cannot be read", path);
        if (missing.count > 0)
            return broken("%s is lost", missing.items[0].text);
    }
    return true;
}

bool promises_hold(const struct promises *promises, const char *folder) {
    bool holds = true;
    for (size_t i = 0; i < promises->kept_count; i++)
        holds = file_holds(&promises->kept[i], folder) && holds;
    holds = outboxes_hold(&promises->lines, folder, read_lines) && holds;
    holds = outboxes_hold(&promises->rows, folder, read_rows) && holds;
    return (!*promises->store || store_holds(promises, folder)) && holds;
}

/* ---- the whole log ---- */

static enum status print_event(void *user, const struct store_event *event) {
    char line[LINE_BYTES_MAX];
    (void)user;
    format_event(event, line);
    puts(line);
    return STATUS_OK;
}

bool promises_print_log(const char *folder) {
    struct store *store = NULL;
    struct store_session *session = NULL;
    struct store_message message = {""};
    struct store_state state;
    enum status status = store_open(&store, folder, false, &message);
    if (status == STATUS_OK)
        status = store_session_open(store, STORE_READ, &session);
    if (status == STATUS_OK)
        status = store_read_state(session, &state);
    if (status == STATUS_OK)
        puts(state.epoch);
    if (status == STATUS_OK)
        status = store_walk_log(session, 0, UINT64_MAX, NULL, print_event);
    if (status != STATUS_OK)
        fprintf(stderr, "power_cut: %s: %s\n", status_code(status), message.text);
    if (session)
        store_session_close(session);
    if (store)
        store_close(store);
    return status == STATUS_OK;
}
