/* Checks that the store's files are still at their paths.
 *
 * SQLite continues to write into files that were moved or deleted, so acknowledged events would be
 * lost or end up elsewhere. Therefore each commit checks the three files first. The write-ahead log
 * holds commits until a checkpoint. Without the shared-memory file other processes would not see
 * our locks. So a single replaced file already stops commits.
 *
 * Files that are moved back are the same files, still open, and were not written meanwhile: commits
 * may continue. The server never starts new files at their paths. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

static const char *const suffixes[SQLITE_FILE_COUNT] = {
    [SQLITE_FILE_DATABASE] = "", [SQLITE_FILE_WAL] = "-wal", [SQLITE_FILE_SHM] = "-shm"};

static bool find(const struct sqlite_store *store, enum sqlite_file file, struct stat *found) {
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s%s", store->path, suffixes[file]);
    if (size < 0 || (size_t)size >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return false;
    }
    return stat(path, found) == 0;
}

bool sqlite_measure_files(const struct sqlite_store *store, uint64_t bytes[SQLITE_FILE_COUNT]) {
    for (int i = 0; i < SQLITE_FILE_COUNT; i++) {
        struct stat found;
        if (!find(store, (enum sqlite_file)i, &found))
            return false;
        bytes[i] = (uint64_t)found.st_size;
    }
    return true;
}

static bool identify(const struct sqlite_store *store, enum sqlite_file file,
                     struct sqlite_identity *identity) {
    struct stat found;
    if (!find(store, file, &found))
        return false;
    *identity = (struct sqlite_identity){found.st_dev, found.st_ino};
    return true;
}

enum status sqlite_record_location(struct sqlite_store *store, char *message) {
    for (int i = 0; i < SQLITE_FILE_COUNT; i++)
        if (!identify(store, (enum sqlite_file)i, &store->files[i])) {
            snprintf(message, STORE_MESSAGE_MAX, "%.400s%s: %s", store->path, suffixes[i],
                     strerror(errno));
            return STATUS_STORE_UNAVAILABLE;
        }
    return STATUS_OK;
}

static enum status report_moved(const struct sqlite_store *store, enum sqlite_file file,
                                const char *cause, char *message) {
    snprintf(
        message, STORE_MESSAGE_MAX,
        "%.150s%s was moved or deleted while in use (%s): put it back, and appends go on by "
        "themselves; %s",
        store->path, suffixes[file], cause,
        file == SQLITE_FILE_DATABASE
            ? "if it was deleted, copy it and its -wal from /proc/PID/fd before the server ends"
            : "or end the server, which saves what it holds");
    return STATUS_STORE_UNAVAILABLE;
}

static enum status check_location(const struct sqlite_store *store, char *message) {
    for (int i = 0; i < SQLITE_FILE_COUNT; i++) {
        struct sqlite_identity now;
        const struct sqlite_identity *then = &store->files[i];
        if (!identify(store, (enum sqlite_file)i, &now))
            return report_moved(store, (enum sqlite_file)i, strerror(errno), message);
        if (now.device != then->device || now.inode != then->inode)
            return report_moved(store, (enum sqlite_file)i, "another file is there", message);
    }
    return STATUS_OK;
}

enum status sqlite_check_location(const struct store *store, struct store_message *message) {
    return check_location((const struct sqlite_store *)store, message->text);
}

enum status sqlite_session_check_location(struct sqlite_session *session) {
    enum status status = check_location(session->store, session->error);
    if (status != STATUS_OK)
        session->reason = REASON_STORE_MOVED;
    return status;
}
