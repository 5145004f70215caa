/* Copies use SQLite's backup API inside one read transaction of the source. Without it a copy would
 * restart whenever another process writes, and never finish under load.
 *
 * A restore makes the copy in the data folder under a name of its own. One rename then replaces the
 * store in force. Before the rename the store in force is sealed: it becomes a single file without
 * write-ahead log, and stays locked exclusively until the rename is done. A log left behind would
 * be applied to the database that has the name afterwards. */
#include "store/store_maintenance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"
#include "store/sqlite/sqlite_fork.h"

#define STEP_PAGES     256
#define BUSY_PAUSE_MS  20
#define BUSY_COUNT_MAX (SQLITE_STORE_BUSY_MS / BUSY_PAUSE_MS)
#define KEPT_COUNT_MAX 100
#define PARTIAL_SUFFIX ".partial"
#define RESTORING_FILE SQLITE_STORE_FILE ".restoring"
#define KEPT_INFIX     ".before-"

/* ---- copying ---- */

/* The target is empty and unused until it is synced, so it needs no journal. */
static int copy_pages(sqlite3 *source, sqlite3 *target, const struct store_copy_options *options) {
    int busy_count = 0;
    int code = sqlite_pragma(target, "PRAGMA journal_mode = OFF", "off");
    if (code == SQLITE_OK)
        code = sqlite_pragma(target, "PRAGMA synchronous = OFF", NULL);
    if (code != SQLITE_OK)
        return code;
    sqlite3_backup *backup = sqlite3_backup_init(target, "main", source, "main");
    if (!backup)
        return sqlite3_errcode(target);
    do {
        code = sqlite3_backup_step(backup, STEP_PAGES);
        if (code == SQLITE_OK || code == SQLITE_DONE) {
            uint64_t total = (uint64_t)sqlite3_backup_pagecount(backup);
            if (options->on_progress)
                options->on_progress(options->user,
                                     total - (uint64_t)sqlite3_backup_remaining(backup), total);
        } else if (code != SQLITE_BUSY && code != SQLITE_LOCKED) {
            break;
        } else if (++busy_count <= BUSY_COUNT_MAX) {
            sqlite3_sleep(BUSY_PAUSE_MS);
        }
    } while (code != SQLITE_DONE && busy_count <= BUSY_COUNT_MAX);
    int ended = sqlite3_backup_finish(backup);
    return code == SQLITE_DONE ? ended : code;
}

static enum status copy_file(sqlite3 *source, const char *source_path, const char *target_path,
                             const struct store_copy_options *options,
                             struct store_message *message) {
    sqlite3 *target = NULL;
    enum status status = STATUS_OK;
    int code = sqlite3_exec(source, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL);
    if (code != SQLITE_OK)
        status = sqlite_connect_fault(source_path, source, code, message->text);
    if (status == STATUS_OK) {
        code = sqlite3_open_v2(target_path, &target, SQLITE_OPEN_READWRITE, NULL);
        if (code == SQLITE_OK)
            code = copy_pages(source, target, options);
        /* SQLite reports the error on the target, even if reading the source failed. */
        if (code != SQLITE_OK)
            status = sqlite_connect_fault(target_path, target, code, message->text);
    }
    sqlite3_close(target);
    sqlite3_exec(source, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* Creates the file, or empties the file that an interrupted copy left. The lock prevents two copies
 * from sharing the file, and ends with the descriptor. */
static enum status claim_file(const char *path, int *fd, struct store_message *message) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return sqlite_system_fault(message, path, "make the file");
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
        return sqlite_system_fault(message, path, "lock the file");
    if (fchmod(*fd, 0600) != 0 || ftruncate(*fd, 0) != 0)
        return sqlite_system_fault(message, path, "empty the file");
    return STATUS_OK;
}

/* ---- one file, whole ------------------------------------------------------------------------- */

static int read_copy(sqlite3 *database, struct store_copy *copy) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(database,
                                  "SELECT (SELECT value FROM meta WHERE name = 'epoch'), "
                                  "(SELECT max(log_id) FROM events)",
                                  -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const char *epoch = (const char *)sqlite3_column_text(statement, 0);
        snprintf(copy->epoch, sizeof(copy->epoch), "%s", epoch ? epoch : "");
        copy->log_id = (uint64_t)sqlite3_column_int64(statement, 1);
        code = strlen(copy->epoch) == STORE_EPOCH_SIZE ? SQLITE_OK : SQLITE_CORRUPT;
    }
    sqlite3_finalize(statement);
    return code;
}

/* What a copy gets before it is put in force. */
struct renewal {
    char epoch[STORE_EPOCH_SIZE + 1];
    bool replaces;     /* there is a store in force */
    sqlite3 *replaced; /* that store; NULL: it is damaged */
};

/* Makes the copy a single file without a log, renews its epoch unless renewal is NULL, fills *copy,
 * and syncs the file. */
static enum status settle_file(const char *path, const struct renewal *renewal,
                               struct store_copy *copy, struct store_message *message) {
    sqlite3 *database = NULL;
    int code = sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL);
    if (code == SQLITE_OK)
        code = sqlite_pragma(database, "PRAGMA journal_mode = DELETE", "delete");
    if (code == SQLITE_OK && renewal) {
        char update[128];
        snprintf(update, sizeof(update), "UPDATE meta SET value = '%s' WHERE name = 'epoch'",
                 renewal->epoch);
        code = sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (code == SQLITE_OK)
            code = renewal->replaces ? sqlite_fork_carry(database, renewal->replaced)
                                     : sqlite_fork_note(database);
        if (code == SQLITE_OK)
            code = sqlite3_exec(database, update, NULL, NULL, NULL);
        if (code == SQLITE_OK)
            code = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    }
    if (code == SQLITE_OK)
        code = read_copy(database, copy);
    enum status status =
        code == SQLITE_OK ? STATUS_OK : sqlite_connect_fault(path, database, code, message->text);
    sqlite3_close(database);
    int fd = status == STATUS_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat found = {0};
    if (status == STATUS_OK && (fd < 0 || fsync(fd) != 0 || fstat(fd, &found) != 0))
        status = sqlite_system_fault(message, path, "sync the file");
    if (fd >= 0)
        close(fd);
    copy->bytes = (uint64_t)found.st_size;
    return status;
}

static enum status exists_already(const char *file, struct store_message *message) {
    snprintf(message->text, sizeof(message->text),
             "%s exists; --force replaces it once the new one is whole", file);
    return STATUS_ALREADY_EXISTS;
}

/* Gives the file its name, and syncs the folder that has it. */
static enum status name_file(const char *partial, const char *file, bool force,
                             struct store_message *message) {
    int failed = force ? rename(partial, file)
                       : renameat2(AT_FDCWD, partial, AT_FDCWD, file, RENAME_NOREPLACE);
    /* Some file systems lack RENAME_NOREPLACE. The file did not exist a moment ago. */
    if (failed && !force && errno == EINVAL)
        failed = rename(partial, file);
    if (failed && errno == EEXIST)
        return exists_already(file, message);
    if (failed)
        return sqlite_system_fault(message, file, "rename the file");
    const char *slash = strrchr(file, '/');
    char *folder = slash ? strndup(file, (size_t)(slash - file) + 1) : strdup(".");
    enum status status = folder ? sqlite_sync_folder(folder, message) : STATUS_OUT_OF_MEMORY;
    free(folder);
    return status;
}

/* ---- backup ---------------------------------------------------------------------------------- */

/* A copy under the name of a store file would replace a running server's file. */
static bool is_own_name(const char *folder, const char *file) {
    static const char *const prefixes[] = {SQLITE_STORE_FILE, SQLITE_STORE_LOCK_FILE,
                                           SQLITE_STORE_RESERVE_FILE};
    const char *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    char parent[STORE_MESSAGE_MAX];
    struct stat store, found;
    int size = snprintf(parent, sizeof(parent), "%.*s.", (int)(name - file), file);
    bool is_inside = size < (int)sizeof(parent) && stat(parent, &found) == 0 &&
                     stat(folder, &store) == 0 && found.st_ino == store.st_ino &&
                     found.st_dev == store.st_dev;
    for (size_t i = 0; is_inside && i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static enum status backup_to(sqlite3 *source, const char *source_path, const char *file,
                             const struct store_copy_options *options, struct store_copy *copy,
                             struct store_message *message) {
    char *partial = NULL;
    int fd = -1;
    if (asprintf(&partial, "%s%s", file, PARTIAL_SUFFIX) < 0)
        return STATUS_OUT_OF_MEMORY;
    enum status status = claim_file(partial, &fd, message);
    bool is_ours = status == STATUS_OK;
    if (status == STATUS_OK)
        status = copy_file(source, source_path, partial, options, message);
    if (status == STATUS_OK)
        status = settle_file(partial, NULL, copy, message);
    if (status == STATUS_OK)
        status = name_file(partial, file, options->force, message);
    if (status != STATUS_OK && is_ours)
        unlink(partial);
    if (fd >= 0)
        close(fd);
    free(partial);
    return status;
}

enum status sqlite_backup(const char *folder, const char *file,
                          const struct store_copy_options *options, struct store_copy *copy,
                          struct store_message *message) {
    struct store *store = NULL;
    sqlite3 *source = NULL;
    if (is_own_name(folder, file)) {
        snprintf(message->text, sizeof(message->text),
                 "%s is a file of the store itself; name another", file);
        return STATUS_INVALID_REQUEST;
    }
    struct stat found;
    /* The rename would replace a device or a pipe with a plain file. */
    if (stat(file, &found) == 0 && !S_ISREG(found.st_mode)) {
        snprintf(message->text, sizeof(message->text),
                 "%s is not a file that a backup can replace; name another", file);
        return STATUS_INVALID_REQUEST;
    }
    if (!options->force && access(file, F_OK) == 0)
        return exists_already(file, message);
    enum status status = sqlite_open(&store, folder, false, message);
    if (status != STATUS_OK)
        return status;
    const char *path = ((struct sqlite_store *)store)->path;
    status = sqlite_connect(path, STORE_READ, false, &source, message->text);
    if (status == STATUS_OK)
        status = backup_to(source, path, file, options, copy, message);
    sqlite3_close(source);
    store_close(store);
    return status;
}

/* ---- restore --------------------------------------------------------------------------------- */

struct sqlite_restore {
    struct store_restore base;
    struct sqlite_store copy; /* in the folder, with its lock */
    char *folder;
    char *store_path;
    bool is_applied;
};

static void remove_copy(const struct sqlite_restore *restore) {
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char *path = NULL;
        if (asprintf(&path, "%s%s", restore->copy.path, suffixes[i]) >= 0)
            unlink(path);
        free(path);
    }
}

/* A restore that was killed just before its rename leaves the store in force with a second name,
 * under which it must not be opened. */
static void remove_second_names(const struct sqlite_restore *restore) {
    static const char prefix[] = SQLITE_STORE_FILE KEPT_INFIX;
    struct stat store, found;
    DIR *folder = opendir(restore->folder);
    if (!folder || stat(restore->store_path, &store) != 0)
        goto out;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        int at = dirfd(folder);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            fstatat(at, entry->d_name, &found, 0) != 0 || found.st_ino != store.st_ino)
            continue;
        char log[sizeof(entry->d_name) + 16];
        unlinkat(at, entry->d_name, 0);
        snprintf(log, sizeof(log), "%s-wal", entry->d_name);
        unlinkat(at, log, 0);
    }
out:
    if (folder)
        closedir(folder);
}

static struct sqlite_restore *restore_of(struct store_restore *restore) {
    return (struct sqlite_restore *)restore;
}

void sqlite_restore_end(struct store_restore *base) {
    struct sqlite_restore *restore = restore_of(base);
    if (restore->copy.lock_fd >= 0 && !restore->is_applied)
        remove_copy(restore);
    if (restore->copy.lock_fd >= 0)
        close(restore->copy.lock_fd);
    free(restore->copy.path);
    free(restore->store_path);
    free(restore->folder);
    free(restore);
}

static struct sqlite_restore *restore_new(const char *folder) {
    struct sqlite_restore *restore = calloc(1, sizeof(*restore));
    if (!restore)
        return NULL;
    restore->base.engine = &store_engine_sqlite;
    restore->copy =
        (struct sqlite_store){.base.engine = &store_engine_sqlite, .lock_fd = -1, .reserve.fd = -1};
    restore->folder = strdup(folder);
    restore->store_path = sqlite_path_in(folder, SQLITE_STORE_FILE);
    restore->copy.path = sqlite_path_in(folder, RESTORING_FILE);
    if (restore->folder && restore->store_path && restore->copy.path)
        return restore;
    sqlite_restore_end(&restore->base);
    return NULL;
}

/* Not through sqlite_connect, which would turn the file into one with a write-ahead log. */
static enum status open_source(const char *file, sqlite3 **source, struct store_message *message) {
    if (access(file, R_OK) != 0)
        return sqlite_system_fault(message, file, "read the file");
    int code = sqlite3_open_v2(file, source, SQLITE_OPEN_READONLY, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(*source, SQLITE_STORE_BUSY_MS);
    return code == SQLITE_OK ? STATUS_OK : sqlite_connect_fault(file, *source, code, message->text);
}

static enum status check_copy(struct sqlite_restore *restore, const char *file,
                              struct store_message *message) {
    struct store_session *session = NULL;
    char found[STORE_MESSAGE_MAX / 2];
    enum status status = sqlite_update_schema(restore->copy.path, message);
    if (status == STATUS_OK)
        status = store_session_open(&restore->copy.base, STORE_READ, &session);
    if (status == STATUS_OK)
        status = sqlite_check_pages(session, true, message);
    if (session)
        store_session_close(session);
    if (status == STATUS_OK)
        return STATUS_OK;
    /* The message is about the copy, which is removed. Operators know the file. */
    snprintf(found, sizeof(found), "%.*s", (int)sizeof(found) - 1, message->text);
    snprintf(message->text, sizeof(message->text), "%.200s cannot be restored: %s", file, found);
    return status;
}

enum status sqlite_restore_begin(const char *folder, const char *file,
                                 const struct store_copy_options *options,
                                 struct store_restore **restore, struct store_message *message) {
    sqlite3 *source = NULL;
    int fd = -1;
    snprintf(message->text, sizeof(message->text), "%s: no memory", folder);
    struct sqlite_restore *made = restore_new(folder);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    enum status status = open_source(file, &source, message);
    if (status == STATUS_OK)
        status = sqlite_make_folder(folder, message);
    if (status == STATUS_OK)
        status = sqlite_take_lock(folder, &made->copy.lock_fd, message);
    if (status == STATUS_OK) {
        remove_copy(made);
        remove_second_names(made);
        status = claim_file(made->copy.path, &fd, message);
    }
    if (status == STATUS_OK)
        status = sqlite_inherit_owner(folder, fd, message);
    if (status == STATUS_OK)
        status = copy_file(source, file, made->copy.path, options, message);
    sqlite3_close(source);
    if (fd >= 0)
        close(fd);
    if (status == STATUS_OK)
        status = check_copy(made, file, message);
    if (status != STATUS_OK) {
        sqlite_restore_end(&made->base);
        return status;
    }
    *restore = &made->base;
    return STATUS_OK;
}

struct store *sqlite_restore_copy(struct store_restore *restore) {
    return &restore_of(restore)->copy.base;
}

/* ---- putting a copy in force ---- */

/* Turns the store into one file; no other process may have it open. *database stays NULL if the
 * store is so damaged that SQLite cannot open it. */
static enum status seal_store(const char *path, sqlite3 **database, struct store_message *message) {
    int code = sqlite3_open_v2(path, database, SQLITE_OPEN_READWRITE, NULL);
    if (code == SQLITE_OK)
        code = sqlite_pragma(*database, "PRAGMA journal_mode = DELETE", "delete");
    if (code == SQLITE_OK)
        code = sqlite3_exec(*database, "BEGIN EXCLUSIVE", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        return STATUS_OK;
    int kind = code & 0xff;
    enum status status = sqlite_connect_fault(path, *database, code, message->text);
    sqlite3_close(*database);
    *database = NULL;
    if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB)
        return STATUS_OK;
    if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED)
        snprintf(
            message->text, sizeof(message->text),
            "%s: another process reads the store; end 'khala verify', sqlite3 and the like first",
            path);
    return status;
}

static const char *const log_suffixes[] = {"-wal", "-journal", "-shm"};

/* The shm file is an index of the log, which SQLite rebuilds. */
static enum status remove_logs(const char *path, struct store_message *message) {
    for (size_t i = 0; i < sizeof(log_suffixes) / sizeof(log_suffixes[0]); i++) {
        char name[STORE_MESSAGE_MAX];
        snprintf(name, sizeof(name), "%s%s", path, log_suffixes[i]);
        if (unlink(name) != 0 && errno != ENOENT)
            return sqlite_system_fault(message, name, "remove the file");
    }
    return STATUS_OK;
}

static enum status keep_file(const char *path, const char *kept, const char *suffix,
                             struct store_message *message) {
    char from[STORE_MESSAGE_MAX];
    char to[STORE_MESSAGE_MAX];
    snprintf(from, sizeof(from), "%s%s", path, suffix);
    snprintf(to, sizeof(to), "%s%s", kept, suffix);
    if (link(from, to) == 0 || (errno == ENOENT && *suffix))
        return STATUS_OK;
    return errno == EEXIST
               ? STATUS_ALREADY_EXISTS
               : sqlite_system_fault(message, to, "keep the store's file under this name");
}

/* Gives the store in force a second name, so that a store exists at every moment. Its logs get one
 * too, because SQLite deletes the log of a database that it does not recognise. */
static enum status keep_store(const char *path, char kept[STORE_MESSAGE_MAX],
                              struct store_message *message) {
    char stamp[32];
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &parts);
    enum status status = STATUS_ALREADY_EXISTS;
    for (int i = 1; i <= KEPT_COUNT_MAX && status == STATUS_ALREADY_EXISTS; i++) {
        int size = snprintf(kept, STORE_MESSAGE_MAX, "%s%s%s-%d", path, KEPT_INFIX, stamp, i);
        if (size < 0 || size >= STORE_MESSAGE_MAX - (int)sizeof("-journal")) {
            errno = ENAMETOOLONG;
            return sqlite_system_fault(message, path, "keep the store's file");
        }
        status = keep_file(path, kept, "", message);
    }
    for (size_t i = 0; i < 2 && status == STATUS_OK; i++)
        status = keep_file(path, kept, log_suffixes[i], message);
    return status;
}

/* Gives the store in force a second name, and seals it until *sealed is closed. */
static enum status set_aside(struct sqlite_restore *restore, char kept[STORE_MESSAGE_MAX],
                             sqlite3 **sealed, struct store_message *message) {
    enum status status = keep_store(restore->store_path, kept, message);
    if (status == STATUS_OK)
        status = seal_store(restore->store_path, sealed, message);
    if (status == STATUS_OK)
        status = remove_logs(*sealed ? kept : restore->store_path, message);
    if (status == STATUS_OK)
        return sqlite_sync_folder(restore->folder, message);
    struct store_message ignored;
    unlink(kept);
    (void)remove_logs(kept, &ignored);
    return status;
}

enum status sqlite_restore_apply(struct store_restore *base, struct store_restored *restored,
                                 struct store_message *message) {
    struct sqlite_restore *restore = restore_of(base);
    const char *path = restore->store_path;
    struct renewal renewal = {.replaces = false};
    *restored = (struct store_restored){.kept = ""};
    enum status status = store_epoch_mint(renewal.epoch);
    if (status == STATUS_OK)
        status = settle_file(restore->copy.path, NULL, &restored->copy, message);
    memcpy(restored->epoch_before, restored->copy.epoch, sizeof(restored->epoch_before));
    /* The new epoch is made while the store in force is sealed, because that store knows where
     * earlier epochs of the log began. */
    renewal.replaces = status == STATUS_OK && access(path, F_OK) == 0;
    if (renewal.replaces)
        status = set_aside(restore, restored->kept, &renewal.replaced, message);
    if (status == STATUS_OK)
        status = settle_file(restore->copy.path, &renewal, &restored->copy, message);
    if (status == STATUS_OK && rename(restore->copy.path, path) != 0)
        status = sqlite_system_fault(message, path, "put the copy in the store's place");
    if (status == STATUS_OK) {
        restore->is_applied = true;
        status = sqlite_sync_folder(restore->folder, message);
    }
    sqlite3_close(renewal.replaced);
    return status;
}

/* ---- checking ---- */

enum status sqlite_check_pages(struct store_session *base, bool whole,
                               struct store_message *message) {
    struct sqlite_session *session = sqlite_session_of(base);
    sqlite3_stmt *statement = NULL;
    const char *text = whole ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)";
    int code = sqlite3_prepare_v2(session->database, text, -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    enum status status = STATUS_OK;
    if (code != SQLITE_ROW) {
        status = sqlite_connect_fault(session->store->path, session->database, code, message->text);
    } else if (strcmp((const char *)sqlite3_column_text(statement, 0), "ok") != 0) {
        snprintf(message->text, sizeof(message->text), "%s", sqlite3_column_text(statement, 0));
        /* Messages are one line. */
        for (char *c = message->text; *c; c++)
            if (*c == '\n')
                *c = ' ';
        status = STATUS_INTERNAL_ERROR;
    }
    sqlite3_finalize(statement);
    if (status == STATUS_OK && (status = sqlite_positions_check(session)) != STATUS_OK)
        snprintf(message->text, sizeof(message->text), "%s", session->error);
    return status;
}
