/* Checks that the lines of an export form one whole log that uses no event id twice, before any of
 * it is written.
 * Thread: one at a time.
 * Memory: one link for each entity of a part of the entities, and the ids of one part, for any
 * number of events. The other ids wait in a file without a name.
 * Errors: STATUS_IMPORT_REFUSED, for lines with a static reason; STATUS_OUT_OF_MEMORY;
 * STATUS_STORE_UNAVAILABLE if the file fails.
 * Invariant: every line and every id is seen before the first part is checked. Equal ids are in
 * the same part. */
#ifndef AUTHORITY_IMPORT_IMPORT_CHECK_H
#define AUTHORITY_IMPORT_IMPORT_CHECK_H

#include "authority/import/import_line.h"
#include "base/map.h"
#include "base/uuid7.h"

struct import_check {
    uint64_t count; /* events seen in this pass */
    struct uuid cursor;
    unsigned chain_version;
    struct sha256 hash; /* hash of the lines before the manifest */
    bool has_manifest;
    bool has_fork; /* the manifest's */
    uint64_t fork_log_id;
    uint64_t entity_count;
    /* The links of one part. */
    uint64_t part;
    uint64_t part_count;
    struct map heads;
    struct arena memory;
};

void import_check_init(struct import_check *check);
void import_check_release(struct import_check *check);

/* The first pass. text is the line without its end. */
MUST_CHECK enum status import_check_line(struct import_check *check, const struct import_line *line,
                                         struct slice text, const char **reason);
/* After the last line of the first pass. */
MUST_CHECK enum status import_check_end(struct import_check *check, const char **reason);

/* Begins a pass over the links of a part, and over the runs whose parent is in the part; the parts
 * are 0 to part_count - 1. */
void import_check_begin_part(struct import_check *check, uint64_t part);
MUST_CHECK enum status import_check_link(struct import_check *check,
                                         const struct store_event *event, const char **reason);

/* ---- event ids ---- */

#define IMPORT_IDS_BLOCK 4096

struct import_ids {
    int fd;
    uint64_t count; /* all ids; the last block may not be in the file yet */
    struct uuid block[IMPORT_IDS_BLOCK];
    struct uuid scratch[IMPORT_IDS_BLOCK];
    uint64_t part; /* the next one */
};

void import_ids_init(struct import_ids *ids);
/* Before the first id. False: the file cannot be created, and fd is -1. */
MUST_CHECK bool import_ids_open(struct import_ids *ids, const char *folder);
void import_ids_release(struct import_ids *ids);
MUST_CHECK enum status import_ids_add(struct import_ids *ids, const struct uuid *id);
/* Checks the next part. *line becomes the line of the second use, from 1. */
MUST_CHECK enum status import_ids_check(struct import_ids *ids, uint64_t *line);
bool import_ids_is_checked(const struct import_ids *ids);

#endif
