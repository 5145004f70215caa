/* Checks that the lines of an export form one whole log, before any of it is written.
 * Belongs to one thread at a time. Memory: one link for each entity of a part of the entities.
 * STATUS_IMPORT_REFUSED with a static reason; STATUS_OUT_OF_MEMORY.
 * The first pass checks every line, their order and the manifest. Further passes follow the links
 * of one part of the entities each, so that memory is bounded for any number of entities. */
#ifndef AUTHORITY_IMPORT_IMPORT_CHECK_H
#define AUTHORITY_IMPORT_IMPORT_CHECK_H

#include "authority/import/import_line.h"
#include "base/map.h"

struct import_check {
    uint64_t count; /* events seen in this pass */
    struct uuid cursor;
    unsigned chain_version;
    struct sha256 hash; /* of the lines before the manifest */
    bool has_manifest;
    bool has_fork; /* of the manifest */
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

/* Begins a pass over the links of a part; the parts are 0 to part_count - 1. */
void import_check_begin_part(struct import_check *check, uint64_t part);
MUST_CHECK enum status import_check_link(struct import_check *check,
                                         const struct store_event *event, const char **reason);

#endif
