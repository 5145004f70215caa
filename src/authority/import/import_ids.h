/* Finds an event id that an export uses twice, before any of it is written.
 * Belongs to one thread at a time. Memory: the ids of one part, whatever the number of events; the
 * others wait in a file without a name.
 * STATUS_IMPORT_REFUSED for an id that was used before; STATUS_OUT_OF_MEMORY;
 * STATUS_STORE_UNAVAILABLE when the file fails.
 * Every id is added before the first part is checked. Equal ids are in the same part. */
#ifndef AUTHORITY_IMPORT_IMPORT_IDS_H
#define AUTHORITY_IMPORT_IMPORT_IDS_H

#include "base/slice.h"
#include "base/uuid7.h"
#include "spec/codes.h"

#define IMPORT_IDS_BLOCK 4096

struct import_ids {
    int fd;
    uint64_t count; /* of all ids; those of the last block may not be in the file yet */
    struct uuid block[IMPORT_IDS_BLOCK];
    struct uuid scratch[IMPORT_IDS_BLOCK];
    uint64_t part; /* the next one */
};

void import_ids_init(struct import_ids *ids);
/* Before the first id. False when the file cannot be made; then fd is -1. */
MUST_CHECK bool import_ids_open(struct import_ids *ids, const char *folder);
void import_ids_release(struct import_ids *ids);
MUST_CHECK enum status import_ids_add(struct import_ids *ids, const struct uuid *id);
/* Checks the next part. *line: of the second use, from 1. */
MUST_CHECK enum status import_ids_check(struct import_ids *ids, uint64_t *line);
bool import_ids_is_checked(const struct import_ids *ids);

#endif
