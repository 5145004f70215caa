/* A snapshot: all documents of a summary topic at one watermark, encoded once, in a file without a
 * name, which the kernel removes when the process ends in any way.
 * Thread: any may reference and read a snapshot, which never changes. A build belongs to the thread
 * of its session, and blocks it.
 * Memory: an index of parts and four bytes for each document, which are on disk; a build needs one
 * part besides. The last reference closes the file. A failed build leaves no file and no memory.
 * Errors: STATUS_STORE_UNAVAILABLE if the file cannot be read or written, if the store cannot be
 * read or if a document is damaged; STATUS_SLOW_CONSUMER if the snapshot was withdrawn;
 * STATUS_INTERNAL_ERROR for a damaged store; STATUS_OUT_OF_MEMORY, and the buffer's.
 * Invariant: documents and watermark are those of one read transaction. A principal gets only
 * documents of owners that it may read; of the others it can see nothing but the number of parts.
 */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_H

#include <stdatomic.h>
#include <stdint.h>

#include "auth/principal.h"
#include "base/buffer.h"
#include "base/list.h"
#include "delivery/selection.h"
#include "store/topic_history.h"
#include "topic/owner.h"
#include "topic/policy.h"

/* ---- owners in the file ---- */

struct snapshot_owner {
    uint32_t document_bytes;
    struct owner owner; /* points into the text it was read from */
};

/* STATUS_INTERNAL_ERROR for an owner longer than the limit. On any error nothing is written. */
MUST_CHECK enum status snapshot_owner_write(struct buffer *out, const struct snapshot_owner *row);
/* Removes the first row from rows. */
MUST_CHECK bool snapshot_owner_read(struct slice *rows, struct snapshot_owner *row);

/* ---- snapshots ---- */

/* In the file: the documents as JSON with commas between them, then the owner of each document. A
 * principal that may read all gets the first unchanged; for any other, the owners are read first.
 */
struct snapshot_part {
    uint64_t offset;
    uint32_t text_bytes;
    uint32_t owners_bytes;
    uint32_t count;
    uint64_t first; /* the index of its first document */
};

struct snapshot {
    struct slice topic;
    const struct policy *policy; /* cadence and source table */
    struct topic_epoch epoch;
    bool has_fork; /* the log has had several epochs */
    uint64_t watermark;
    uint64_t document_count; /* the documents of all owners */
    uint64_t file_bytes;
    struct snapshot_part *parts;
    size_t part_count;
    uint32_t *owner_keys; /* the owner of each document (auth/principal.h); 0: no owner */
    int fd;
    atomic_bool is_withdrawn;
    atomic_uint references;
    struct list_node node; /* in the list of the service, as disk_bytes is for the service */
    uint64_t disk_bytes;
};

struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct snapshot *snapshot);
/* Frees the disk. Later reads of the snapshot fail with STATUS_SLOW_CONSUMER. */
void snapshot_withdraw(struct snapshot *snapshot);

/* The documents that a reader gets: those that the principal may read and that the selection has.
 */
struct snapshot_view {
    const struct principal *principal;
    const struct selection *selection; /* NULL: all documents */
};

/* The first part from that one on that may have documents for the view; part_count: none has. */
size_t snapshot_part_next(const struct snapshot *snapshot, size_t part,
                          const struct snapshot_view *view);
/* Appends the documents of a part that the view has, with commas between them; all or nothing.
 * count: how many. Waits for the disk: not for loops. */
MUST_CHECK enum status snapshot_part_read(const struct snapshot *snapshot, size_t part,
                                          const struct snapshot_view *view, struct buffer *out,
                                          size_t *count);

/* ---- building ---- */

#define SNAPSHOT_REASON_MAX 256
/* The damages that one build finds. */
#define SNAPSHOT_DAMAGES_MAX 256

struct snapshot_build {
    enum policy_row row;         /* a topic that has snapshots */
    const struct policy *policy; /* outlives the snapshot */
    const char *folder;          /* the folder of the file */
    void *user;
    /* The watermark is known, and no document has been read. */
    void (*began)(void *user, uint64_t watermark);
    /* Called before the file grows. Any status but STATUS_OK ends the build. */
    enum status (*reserve)(void *user, uint64_t bytes);
    bool finds_missing;               /* an entity without a document is damage */
    uint64_t absent_ref;              /* up to this one such entities really have no document */
    char reason[SNAPSHOT_REASON_MAX]; /* out: why it failed */
    /* Out: documents that are missing or altered. With any the build has failed. */
    uint64_t damaged_refs[SNAPSHOT_DAMAGES_MAX];
    size_t damaged_count;
};

/* The caller has the one reference. */
MUST_CHECK enum status snapshot_build(struct snapshot_build *build, struct store_session *session,
                                      struct snapshot **snapshot);

#endif
