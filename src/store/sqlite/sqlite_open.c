/* The folder, its lock, the connection, and the schema with its migrations. */
#include "store/sqlite/sqlite.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/decimal.h"
#include "base/file.h"
#include "store/sqlite/sqlite_gather.h"
#include "store/sqlite/sqlite_heal.h"
#include "store/sqlite/sqlite_migrations.h"
#include "store/sqlite/sqlite_page_cache.h"

#define LOCK_ATTEMPTS_MAX 5
/* Each of them gives back a larger piece of the disk reserve. */
#define OPEN_TRIES_MORE 2

char *sqlite_path_in(const char *folder, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* ---- the folder and its lock ----------------------------------------------------------------- */

enum status sqlite_system_fault(struct store_message *message, const char *path,
                                const char *action) {
    snprintf(message->text, sizeof(message->text), "%s: cannot %s: %s", path, action,
             strerror(errno));
    return STATUS_STORE_UNAVAILABLE;
}

/* A new name in a folder is durable only after the folder is synced. */
enum status sqlite_sync_folder(const char *path, struct store_message *message) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sqlite_system_fault(message, path, "open the folder");
    enum status status =
        fsync(fd) == 0 ? STATUS_OK : sqlite_system_fault(message, path, "sync the folder");
    close(fd);
    return status;
}

enum status sqlite_inherit_owner(const char *folder, int fd, struct store_message *message) {
    if (file_inherit_owner(folder, fd))
        return STATUS_OK;
    return sqlite_system_fault(message, folder, "give a new file to the owner of this folder");
}

enum status sqlite_make_folder(const char *folder, struct store_message *message) {
    if (mkdir(folder, 0700) != 0) {
        if (errno == EEXIST)
            return STATUS_OK;
        snprintf(message->text, sizeof(message->text),
                 "%s: cannot make the folder: %s; --data-dir or KHALA_DATA_DIR names another",
                 folder, strerror(errno));
        return STATUS_STORE_UNAVAILABLE;
    }
    char *parent = sqlite_path_in(folder, "..");
    if (parent == NULL)
        return STATUS_OUT_OF_MEMORY;
    enum status status = sqlite_sync_folder(parent, message);
    free(parent);
    return status;
}

/* Only the owner may read the file, whatever the folder's mode; SQLite gives its other files the
 * same mode. An existing file is not opened: closing it would drop the locks of its connections. */
static enum status make_file(const char *path, struct store_message *message) {
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    else if (errno != EEXIST)
        return sqlite_system_fault(message, path, "make the file");
    return STATUS_OK;
}

static enum status lock_is_held(const char *folder, int fd, struct store_message *message) {
    char pid[24] = "";
    ssize_t size = pread(fd, pid, sizeof(pid) - 1, 0);
    pid[size > 0 ? strspn(pid, "0123456789") : 0] = '\0';
    snprintf(message->text, sizeof(message->text),
             "%s is in use by another process (pid %s): end that first, or name another folder",
             folder, pid[0] ? pid : "unknown");
    return STATUS_STORE_UNAVAILABLE;
}

/* The lock belongs to the descriptor, so it ends with the process, also after a crash. */
enum status sqlite_take_lock(const char *folder, int *lock_fd, struct store_message *message) {
    char *path = sqlite_path_in(folder, SQLITE_STORE_LOCK_FILE);
    if (path == NULL)
        return STATUS_OUT_OF_MEMORY;
    enum status status = STATUS_OK;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        status = sqlite_system_fault(message, path, "open the lock file");
    } else if ((status = sqlite_inherit_owner(folder, fd, message)) != STATUS_OK) {
        /* The message is set. */
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        status = errno == EWOULDBLOCK ? lock_is_held(folder, fd, message)
                                      : sqlite_system_fault(message, path, "lock it");
    } else {
        /* The pid is information for operators. The lock holds without it, as on a full disk. */
        char pid[24];
        int size = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
        bool noted = ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)size, 0) == size;
        (void)noted;
    }
    if (status != STATUS_OK && fd >= 0)
        close(fd);
    *lock_fd = status == STATUS_OK ? fd : -1;
    free(path);
    return status;
}

static bool is_listed(ino_t inode) {
    char line[256];
    char wanted[32];
    bool found = false;
    FILE *locks = fopen("/proc/locks", "r");
    if (locks == NULL)
        return false;
    snprintf(wanted, sizeof(wanted), ":%llu ", (unsigned long long)inode);
    while (!found && fgets(line, sizeof(line), locks))
        found = strstr(line, " FLOCK ") && strstr(line, wanted);
    fclose(locks);
    return found;
}

/* Reads the kernel's list, because trying the lock could keep a server from starting. The list is
 * read in pieces and can miss a lock while another one is released, hence the attempts. */
static bool is_locked(ino_t inode) {
    bool found = false;
    for (int i = 0; i < LOCK_ATTEMPTS_MAX && !found; i++)
        found = is_listed(inode);
    return found;
}

pid_t sqlite_lock_holder(const char *folder) {
    char text[24] = "";
    struct stat found;
    uint64_t pid = 0;
    char *path = sqlite_path_in(folder, SQLITE_STORE_LOCK_FILE);
    bool is_held = path != NULL && stat(path, &found) == 0 && is_locked(found.st_ino);
    FILE *file = is_held ? fopen(path, "r") : NULL;
    free(path);
    if (file == NULL)
        return is_held ? -1 : 0;
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size > 0 ? strspn(text, "0123456789") : 0] = '\0';
    return decimal_parse_u64(slice_of(text), &pid) && pid > 0 ? (pid_t)pid : -1;
}

/* ---- connections ---- */

static void configure_library(void) {
    /* Counting every allocation takes a lock that all sessions would share. A library that runs
     * already keeps its setting, and that is no harm. */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite_page_cache_register();
    sqlite_gather_register();
}

int sqlite_pragma(sqlite3 *database, const char *text, const char *wanted) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(database, text, -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW && wanted != NULL) {
        const char *value = (const char *)sqlite3_column_text(statement, 0);
        code = value != NULL && strcmp(value, wanted) == 0 ? SQLITE_ROW : SQLITE_CANTOPEN;
    }
    int ended = sqlite3_finalize(statement);
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        return ended;
    return code;
}

static int configure(sqlite3 *database, enum store_mode mode) {
    char cache[64], autocheckpoint[64], wal_limit[64];
    snprintf(cache, sizeof(cache), "PRAGMA cache_size = -%d",
             mode == STORE_WRITE ? SQLITE_STORE_WRITE_CACHE_KB : SQLITE_STORE_READ_CACHE_KB);
    snprintf(autocheckpoint, sizeof(autocheckpoint), "PRAGMA wal_autocheckpoint = %d",
             SQLITE_STORE_WAL_PAGES);
    snprintf(wal_limit, sizeof(wal_limit), "PRAGMA journal_size_limit = %d",
             SQLITE_STORE_WAL_BYTES_MAX);
    const struct {
        const char *text;
        const char *wanted;
    } settings[] = {
        {"PRAGMA page_size = 4096", NULL},
        {"PRAGMA journal_mode = WAL", "wal"},
        {"PRAGMA synchronous = FULL", NULL},
        {autocheckpoint, NULL},
        {wal_limit, NULL},
        {cache, NULL},
        /* Reading a mapped file that has shrunk kills the process; a plain read only fails. */
        {"PRAGMA mmap_size = 0", NULL},
        {"PRAGMA temp_store = MEMORY", NULL},
        /* Some distributions build SQLite so that it writes zeros over each page that becomes free,
         * also where that is one more write. */
        {"PRAGMA secure_delete = FAST", NULL},
        {"PRAGMA trusted_schema = OFF", NULL},
        {"PRAGMA cell_size_check = ON", NULL},
        {mode == STORE_READ ? "PRAGMA query_only = ON" : "PRAGMA query_only = OFF", NULL},
    };
    int code = SQLITE_OK;
    for (size_t i = 0; code == SQLITE_OK && i < sizeof(settings) / sizeof(settings[0]); i++)
        code = sqlite_pragma(database, settings[i].text, settings[i].wanted);
    return code;
}

enum status sqlite_connect_fault(const char *path, sqlite3 *database, int code, char *message) {
    enum status status = sqlite_status(code);
    const char *said = database ? sqlite3_errmsg(database) : sqlite3_errstr(code);
    const char *advice = status == STATUS_INTERNAL_ERROR
                             ? "; the store is damaged or not a database: restore a backup"
                             : "";
    snprintf(message, STORE_MESSAGE_MAX, "%s: %s (SQLite %d)%s", path, said,
             database ? sqlite3_extended_errcode(database) : code, advice);
    return status;
}

enum status sqlite_connect(const char *path, enum store_mode mode, bool create, sqlite3 **database,
                           char *message) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_library);
    /* Read sessions open for writing, too: the first connection after a crash has to recover the
     * log, whatever it wants to do next. query_only keeps them from anything else. */
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (create ? SQLITE_OPEN_CREATE : 0);
    *database = NULL;
    int code = sqlite3_open_v2(path, database, flags, SQLITE_GATHER_VFS);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(*database, SQLITE_STORE_BUSY_MS);
    if (code == SQLITE_OK)
        code = configure(*database, mode);
    if (code == SQLITE_OK)
        return STATUS_OK;
    enum status status = sqlite_connect_fault(path, *database, code, message);
    sqlite3_close(*database);
    *database = NULL;
    return status;
}

/* ---- the schema ---- */

struct schema {
    bool empty; /* a database without any table */
    int64_t application_id;
    int64_t version;
};

static int read_schema(sqlite3 *database, struct schema *schema) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(database,
                                  "SELECT (SELECT count(*) FROM sqlite_schema), "
                                  "(SELECT application_id FROM pragma_application_id), "
                                  "(SELECT user_version FROM pragma_user_version)",
                                  -1, &statement, NULL);
    if (code != SQLITE_OK)
        return code;
    code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *schema = (struct schema){.empty = sqlite3_column_int64(statement, 0) == 0,
                                  .application_id = sqlite3_column_int64(statement, 1),
                                  .version = sqlite3_column_int64(statement, 2)};
        code = SQLITE_OK;
    }
    int ended = sqlite3_finalize(statement);
    return ended == SQLITE_OK ? code : ended;
}

/* The database must be one of Khala, with a schema that this binary knows. */
static enum status check_schema(sqlite3 *database, const char *path, struct schema *schema,
                                struct store_message *message) {
    int code = read_schema(database, schema);
    if (code != SQLITE_OK)
        return sqlite_connect_fault(path, database, code, message->text);
    if (schema->empty)
        return STATUS_OK;
    if (schema->application_id != SQLITE_STORE_APPLICATION_ID) {
        snprintf(message->text, sizeof(message->text),
                 "%s is a database of another application; name another folder", path);
        return STATUS_INVALID_CONFIG;
    }
    if (schema->version > STORE_SCHEMA_VERSION) {
        snprintf(message->text, sizeof(message->text),
                 "%s has schema version %lld and this khala knows %d: run a newer khala", path,
                 (long long)schema->version, STORE_SCHEMA_VERSION);
        return STATUS_INVALID_CONFIG;
    }
    return STATUS_OK;
}

static enum status no_store_yet(const char *path, struct store_message *message) {
    snprintf(message->text, sizeof(message->text),
             "%s holds no store yet: 'khala serve' or 'khala migrate' makes one", path);
    return STATUS_STORE_UNAVAILABLE;
}

/* All migrations or none: a process that ends while it makes a store leaves no half of one. */
static enum status migrate(sqlite3 *database, const char *path, const struct schema *schema,
                           struct store_message *message) {
    char epoch[STORE_EPOCH_SIZE + 1];
    enum status status = store_epoch_mint(epoch);
    if (status != STATUS_OK || schema->version == STORE_SCHEMA_VERSION)
        return status;
    struct clock clock;
    clock_init(&clock);
    int code = sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (size_t version = (size_t)schema->version;
         code == SQLITE_OK && version < STORE_SCHEMA_VERSION; version++) {
        /* A new store has no damage. */
        if (schema->version > 0)
            code = sqlite_heal_before(database, version, clock_wall_ms(&clock));
        char last[256];
        int written = snprintf(last, sizeof(last), "PRAGMA user_version = %zu", version + 1);
        if (version == 0)
            written = snprintf(last, sizeof(last),
                               "PRAGMA application_id = %d; PRAGMA user_version = 1;"
                               "INSERT INTO meta (name, value) VALUES ('epoch', '%s')",
                               SQLITE_STORE_APPLICATION_ID, epoch);
        assert(written > 0 && (size_t)written < sizeof(last));
        if (code == SQLITE_OK)
            code = sqlite3_exec(database, sqlite_migrations[version].sql, NULL, NULL, NULL);
        if (code == SQLITE_OK)
            code = sqlite3_exec(database, last, NULL, NULL, NULL);
    }
    if (code == SQLITE_OK)
        code = sqlite3_exec(database, "COMMIT", NULL, NULL, NULL);
    if (code == SQLITE_OK)
        return STATUS_OK;
    status = sqlite_connect_fault(path, database, code, message->text);
    if (!sqlite3_get_autocommit(database))
        sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

enum status sqlite_update_schema(const char *path, struct store_message *message) {
    sqlite3 *database = NULL;
    struct schema schema = {0};
    enum status status = sqlite_connect(path, STORE_WRITE, false, &database, message->text);
    if (status != STATUS_OK)
        return status;
    status = check_schema(database, path, &schema, message);
    if (status == STATUS_OK && schema.empty) {
        snprintf(message->text, sizeof(message->text), "it holds no store");
        status = STATUS_INVALID_CONFIG;
    }
    if (status == STATUS_OK)
        status = migrate(database, path, &schema, message);
    sqlite3_close(database);
    return status;
}

/* ---- opening ---- */

static bool has_bytes(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && found.st_size > 0;
}

/* SQLite deletes a write-ahead log without a database, though the log may hold the only copy of
 * acknowledged events. An interrupted first start leaves no such log, because SQLite writes the
 * database's first page before it creates the log. */
static enum status check_wal_has_database(const char *path, struct store_message *message) {
    char *wal = NULL;
    if (asprintf(&wal, "%s-wal", path) < 0)
        return STATUS_OUT_OF_MEMORY;
    enum status status = STATUS_OK;
    if (has_bytes(wal) && !has_bytes(path)) {
        snprintf(message->text, sizeof(message->text),
                 "%s is not empty but its database %s is, or is missing: restore both, or move the "
                 "first away to begin anew",
                 wal, path);
        status = STATUS_STORE_UNAVAILABLE;
    }
    free(wal);
    return status;
}

enum opening { OPENING_MIGRATE, OPENING_CREATE, OPENING_EXISTING };

static enum status prepare_database(const char *path, enum opening opening,
                                    struct store_message *message) {
    sqlite3 *database = NULL;
    struct schema schema = {0};
    bool create = opening != OPENING_EXISTING;
    if (!create && access(path, F_OK) != 0 && errno == ENOENT)
        return no_store_yet(path, message);
    enum status status = create ? make_file(path, message) : STATUS_OK;
    if (status == STATUS_OK)
        status = sqlite_connect(path, create ? STORE_WRITE : STORE_READ, create, &database,
                                message->text);
    if (status != STATUS_OK)
        return status;
    status = check_schema(database, path, &schema, message);
    if (status == STATUS_OK && (opening == OPENING_MIGRATE || (create && schema.empty))) {
        status = migrate(database, path, &schema, message);
    } else if (status == STATUS_OK && schema.empty) {
        status = no_store_yet(path, message);
    } else if (status == STATUS_OK && schema.version < STORE_SCHEMA_VERSION) {
        snprintf(message->text, sizeof(message->text),
                 "%s has schema version %lld and this khala needs %d: run 'khala migrate'", path,
                 (long long)schema.version, STORE_SCHEMA_VERSION);
        status = STATUS_INVALID_CONFIG;
    }
    int code = SQLITE_OK;
    /* A derived table that is missing keeps no store from opening. */
    if (status == STATUS_OK && create)
        code = sqlite_heal_damaged_tables(database, clock_now().wall_ms);
    if (code != SQLITE_OK)
        status = sqlite_connect_fault(path, database, code, message->text);
    code = sqlite3_close(database);
    assert(code == SQLITE_OK);
    (void)code;
    return status;
}

static enum status open_store(const char *folder, enum opening opening, struct sqlite_store **store,
                              struct store_message *message) {
    enum status status = STATUS_OUT_OF_MEMORY;
    struct sqlite_store *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status;
    *made =
        (struct sqlite_store){.base.engine = &store_engine_sqlite, .lock_fd = -1, .reserve.fd = -1};
    made->path = sqlite_path_in(folder, SQLITE_STORE_FILE);
    if (made->path == NULL)
        goto out;
    status = STATUS_OK;
    if (opening != OPENING_EXISTING)
        status = sqlite_make_folder(folder, message);
    if (status == STATUS_OK && opening != OPENING_EXISTING)
        status = sqlite_take_lock(folder, &made->lock_fd, message);
    if (status == STATUS_OK)
        status = check_wal_has_database(made->path, message);
    if (status == STATUS_OK)
        status = prepare_database(made->path, opening, message);
    /* On a full disk, even the index of the write-ahead log may need a little room. */
    for (int i = 0; i < OPEN_TRIES_MORE && status == STATUS_STORE_UNAVAILABLE &&
                    made->lock_fd >= 0 && sqlite_reserve_give(made);
         i++)
        status = prepare_database(made->path, opening, message);
    if (status == STATUS_OK) {
        *store = made;
        made = NULL;
    }
out:
    if (made)
        store_close(&made->base);
    return status;
}

enum status sqlite_open(struct store **store, const char *folder, bool exclusive,
                        struct store_message *message) {
    struct sqlite_store *opened = NULL;
    snprintf(message->text, sizeof(message->text), "%s: no memory", folder);
    enum status status =
        open_store(folder, exclusive ? OPENING_CREATE : OPENING_EXISTING, &opened, message);
    if (status == STATUS_OK) {
        *store = &opened->base;
        message->text[0] = '\0';
    }
    return status;
}

enum status sqlite_migrate(const char *folder, struct store_message *message) {
    struct sqlite_store *opened = NULL;
    snprintf(message->text, sizeof(message->text), "%s: no memory", folder);
    enum status status = open_store(folder, OPENING_MIGRATE, &opened, message);
    if (status == STATUS_OK) {
        store_close(&opened->base);
        message->text[0] = '\0';
    }
    return status;
}
