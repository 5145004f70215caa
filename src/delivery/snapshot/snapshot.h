/* A snapshot: all documents of a summary topic at one watermark, encoded once, in a file without a
 * name, which goes with the process however that ends.
 * Immutable and shared: any thread may hold, read and let go of it. Memory is an index of parts;
 * the documents are on disk. The last reference closes the file.
 * STATUS_STORE_UNAVAILABLE when the file cannot be read, STATUS_SLOW_CONSUMER when it was
 * withdrawn, STATUS_OUT_OF_MEMORY, and the buffer's. A document leaves only for a principal that
 * may read its owner's; nothing that is handed out depends on documents it may not read, but how
 * many parts there are. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_H

#include <stdatomic.h>

#include "auth/principal.h"
#include "base/buffer.h"
#include "store/store.h"
#include "topic/policy.h"

/* In the file: the documents as JSON with commas between them, then who owns each. So that who may
 * read all gets the first as it stands, and who may not reads the second first. */
struct snapshot_part {
    uint64_t offset;
    uint32_t text_bytes;
    uint32_t owners_bytes;
    uint32_t count;
};

struct snapshot {
    struct slice topic;
    const struct policy *policy; /* cadence and source table */
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t watermark;
    uint64_t document_count; /* of everybody's */
    uint64_t file_bytes;
    struct snapshot_part *parts;
    size_t part_count;
    int fd;
    atomic_bool is_withdrawn;
    atomic_uint references;
    struct snapshot *next; /* these two are the maker's */
    uint64_t disk_bytes;
};

struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct snapshot *snapshot);
/* Takes the disk back from under those who still read: they are told that they were too slow. */
void snapshot_withdraw(struct snapshot *snapshot);

/* Appends the documents of a part that the principal may read, with commas between them, and says
 * how many; all or nothing. Blocks on a disk: not for loops. */
MUST_CHECK enum status snapshot_part_read(const struct snapshot *snapshot, size_t part,
                                          const struct principal *principal, struct buffer *out,
                                          size_t *count);

#endif
