#include "authority/import/import_ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/siphash.h"

void import_ids_init(struct import_ids *ids) {
    ids->count = ids->part = 0;
    ids->fd = -1;
}

bool import_ids_open(struct import_ids *ids, const char *folder) {
    ids->fd = file_open_unnamed(folder, "import-ids");
    return ids->fd >= 0;
}

void import_ids_release(struct import_ids *ids) {
    if (ids->fd >= 0)
        close(ids->fd);
    ids->fd = -1;
}

static enum status write_block(struct import_ids *ids) {
    const char *bytes = (const char *)ids->block;
    off_t start = (off_t)((ids->count - IMPORT_IDS_BLOCK) * sizeof(struct uuid));
    size_t written = 0;
    while (written < sizeof(ids->block)) {
        ssize_t size =
            pwrite(ids->fd, bytes + written, sizeof(ids->block) - written, start + (off_t)written);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            return STATUS_STORE_UNAVAILABLE;
        written += (size_t)size;
    }
    return STATUS_OK;
}

enum status import_ids_add(struct import_ids *ids, const struct uuid *id) {
    ids->block[ids->count++ % IMPORT_IDS_BLOCK] = *id;
    return ids->count % IMPORT_IDS_BLOCK == 0 ? write_block(ids) : STATUS_OK;
}

/* The ids from first on. Those of the last block never left memory. */
static enum status read_block(struct import_ids *ids, uint64_t first, size_t *count) {
    struct uuid *block = ids->scratch;
    size_t filled = 0;
    *count = IMPORT_IDS_BLOCK;
    if (ids->count - first < IMPORT_IDS_BLOCK) {
        *count = (size_t)(ids->count - first);
        memcpy(block, ids->block, *count * sizeof(*block));
        return STATUS_OK;
    }
    while (filled < sizeof(ids->block)) {
        ssize_t size = pread(ids->fd, (char *)block + filled, sizeof(ids->block) - filled,
                             (off_t)(first * sizeof(*block) + filled));
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            return STATUS_STORE_UNAVAILABLE;
        filled += (size_t)size;
    }
    return STATUS_OK;
}

static int compare_ids(const void *a, const void *b) {
    return uuid_compare(a, b);
}

/* Parts differ in size, so each has twice the room. */
static uint64_t part_count(const struct import_ids *ids) {
    return 1 + 2 * ids->count / IMPORT_PART_IDS_MAX;
}

static uint64_t part_of(const struct import_ids *ids, const struct uuid *id) {
    struct slice text = {(const char *)id->bytes, sizeof(id->bytes)};
    return siphash(siphash_process_key(), text) % part_count(ids);
}

bool import_ids_is_checked(const struct import_ids *ids) {
    return ids->part == part_count(ids);
}

/* The ids of the part. A part without room has ids that are used more than once, since the hash
 * spreads different ids evenly: then the first ones suffice. */
static enum status gather_part(struct import_ids *ids, struct uuid *room, size_t *count) {
    *count = 0;
    for (uint64_t first = 0; first < ids->count; first += IMPORT_IDS_BLOCK) {
        size_t block_count;
        enum status status = read_block(ids, first, &block_count);
        if (status != STATUS_OK)
            return status;
        for (size_t i = 0; i < block_count && *count < IMPORT_PART_IDS_MAX; i++)
            if (part_of(ids, &ids->scratch[i]) == ids->part)
                room[(*count)++] = ids->scratch[i];
    }
    return STATUS_OK;
}

static enum status find_second_use(struct import_ids *ids, const struct uuid *id, uint64_t *line) {
    size_t uses = 0;
    for (uint64_t first = 0; first < ids->count; first += IMPORT_IDS_BLOCK) {
        size_t block_count;
        enum status status = read_block(ids, first, &block_count);
        if (status != STATUS_OK)
            return status;
        for (size_t i = 0; i < block_count; i++) {
            uses += uuid_compare(&ids->scratch[i], id) == 0;
            if (uses == 2) {
                *line = first + i + 1;
                return STATUS_IMPORT_REFUSED;
            }
        }
    }
    return STATUS_IMPORT_REFUSED;
}

enum status import_ids_check(struct import_ids *ids, uint64_t *line) {
    size_t room_count =
        ids->count < IMPORT_PART_IDS_MAX ? (size_t)ids->count + 1 : IMPORT_PART_IDS_MAX;
    struct uuid *room = malloc(room_count * sizeof(*room));
    size_t count = 0;
    if (!room)
        return STATUS_OUT_OF_MEMORY;
    enum status status = gather_part(ids, room, &count);
    if (status == STATUS_OK)
        qsort(room, count, sizeof(*room), compare_ids);
    for (size_t i = 1; status == STATUS_OK && i < count; i++)
        if (uuid_compare(&room[i - 1], &room[i]) == 0)
            status = find_second_use(ids, &room[i], line);
    if (status == STATUS_OK && count == IMPORT_PART_IDS_MAX)
        status = STATUS_OUT_OF_MEMORY;
    free(room);
    ids->part++;
    return status;
}
