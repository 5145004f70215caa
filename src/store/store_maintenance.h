/* Backups of a store, restoring one, the check of its pages, and the holder of its lock.
 * Thread: one. Backup and check work beside a running server; a restore needs the store's lock.
 * Memory: a restore under way is released by store_restore_end, in every case.
 * Errors: those of store.h, with a sentence for people in the message. An engine without such a
 * function answers STATUS_INVALID_CONFIG, and the message names the tool to use instead.
 * Invariant: a file gets its name only when it is complete and on disk. After a crash at any moment
 * either the old file or the new one is there. */
#ifndef STORE_STORE_MAINTENANCE_H
#define STORE_STORE_MAINTENANCE_H

#include <sys/types.h>

#include "store/store.h"

struct store_copy_options {
    bool force; /* a backup may replace a file */
    void *user;
    /* May be NULL. Counts pages. */
    void (*on_progress)(void *user, uint64_t done, uint64_t total);
};

/* The content of a copy. */
struct store_copy {
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t log_id; /* of its last event */
    uint64_t bytes;
};

/* Copies the store, as it is at one moment, into one file that only its owner may read.
 * STATUS_ALREADY_EXISTS where the file exists, unless forced; STATUS_INVALID_REQUEST for a name
 * that the store itself uses. Writers do not wait, but the write-ahead log grows meanwhile. */
MUST_CHECK enum status store_backup(const char *url, const char *file,
                                    const struct store_copy_options *options,
                                    struct store_copy *copy, struct store_message *message);

struct store_restore;

/* Takes the store's lock, copies the file next to the store, brings the copy's schema up to date
 * and checks every page of it. The store in force is not touched. */
MUST_CHECK enum status store_restore_begin(const char *url, const char *file,
                                           const struct store_copy_options *options,
                                           struct store_restore **restore,
                                           struct store_message *message);
/* The copy, for reading. Its sessions are closed before store_restore_apply. */
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

/* Reads every page. STATUS_INTERNAL_ERROR: a page is damaged, and the message names the first
 * finding. whole: also compares indexes with their tables. */
MUST_CHECK enum status store_check_pages(struct store_session *session, bool whole,
                                         struct store_message *message);

/* STATUS_INTERNAL_ERROR: a derived table is missing or has other columns, and the message names it.
 * store_heal rebuilds it. */
MUST_CHECK enum status store_check_derived(struct store_session *session,
                                           struct store_message *message);

/* The process of this host that holds the store's lock. 0: none, or the engine has no such lock.
 * -1: a process that is not known. Does not try the lock. */
pid_t store_lock_holder(const char *url);

#endif
