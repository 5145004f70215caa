/* Events without an answer, in a file: they are sent by the next process if this one dies. A line
 * is "+EVENT" or "-ID" of an answered event.
 * Thread: one at a time; the sender's lock orders the threads that append.
 * Memory: a descriptor.
 * Errors: STATUS_SYSTEM_ERROR leaves errno set. A line that broke off at the end of the file is
 * dropped.
 * Invariant: a line is written by one call before the event is accepted, so it survives the death
 * of the process. The sender syncs the file soon after, so that it also survives the death of the
 * machine. */
#ifndef CLIENT_OUTBOX_FILE_H
#define CLIENT_OUTBOX_FILE_H

#include "base/buffer.h"

struct outbox_file {
    int fd; /* -1: none */
};

/* Opens the file and calls back for each event without an answer, in order. */
MUST_CHECK enum status outbox_file_open(struct outbox_file *file, const char *path, void *user,
                                        enum status (*each)(void *user, struct slice event));
void outbox_file_close(struct outbox_file *file);
MUST_CHECK enum status outbox_file_add(struct outbox_file *file, struct slice event);
/* Best effort: an event that is sent again has the same id. is_last: no event is left. */
void outbox_file_done(struct outbox_file *file, struct slice id, bool is_last);

#endif
