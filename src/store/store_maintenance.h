/* Care for the embedded store's file: copies of it, putting a copy back, and whether it is sound.
 * One thread; backup and check work beside a running server, restore needs the folder's lock.
 * A restore under way is freed by store_restore_end, in any case.
 * Errors are those of store.h, with a sentence for people in the message.
 * A file gets its name only when it is whole and on disk: killed at any moment, what was there
 * before is there, or what was to be. */
#ifndef STORE_STORE_MAINTENANCE_H
#define STORE_STORE_MAINTENANCE_H

#include "store/store.h"

struct store_care_options {
    bool force; /* a backup may replace a file */
    void *user;
    /* May be NULL. Counts pages. */
    void (*on_progress)(void *user, uint64_t done, uint64_t total);
};

/* What a copy holds. */
struct store_copy {
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t log_id; /* of its last event */
    uint64_t bytes;
};

/* Copies the store of the folder as it is at one moment into one file, for its owner alone.
 * STATUS_ALREADY_EXISTS where there is one, unless forced; STATUS_INVALID_REQUEST for a name that
 * is the store's own. Writers are not kept waiting, but the write-ahead log is not cut meanwhile.
 */
MUST_CHECK enum status store_backup_sqlite(const char *folder, const char *file,
                                           const struct store_care_options *options,
                                           struct store_copy *copy, struct store_message *message);

struct store_restore;

/* Takes the folder's lock, copies the file next to the store, brings the copy's schema up to date
 * and checks all of it. The store in force is not touched. */
MUST_CHECK enum status store_restore_begin(const char *folder, const char *file,
                                           const struct store_care_options *options,
                                           struct store_restore **restore,
                                           struct store_message *message);
/* The copy, to be read and judged; its sessions are closed before store_restore_apply. */
struct store *store_restore_copy(struct store_restore *restore);

struct store_restored {
    struct store_copy copy;                  /* with the epoch minted for it */
    char epoch_before[STORE_EPOCH_SIZE + 1]; /* the one it was copied with */
    char kept[STORE_MESSAGE_MAX]; /* where the store in force went; empty: there was none */
};

/* Mints an epoch for the copy and puts it in force. */
MUST_CHECK enum status store_restore_apply(struct store_restore *restore,
                                           struct store_restored *restored,
                                           struct store_message *message);
/* Removes the copy if it was not applied. */
void store_restore_end(struct store_restore *restore);

/* Reads every page: STATUS_INTERNAL_ERROR when something is wrong, with the first of it in the
 * message. whole also compares indexes with their tables. */
MUST_CHECK enum status store_check_sqlite(struct store_session *session, bool whole,
                                          struct store_message *message);

#endif
