/* An import reads its file several times before the first write. The first pass checks each line,
 * the order of the cursors and the manifest, and collects the event ids. Each further pass follows
 * the links of one part of the entities, those whose hash falls into it. The ids are checked in
 * parts too: the ids of a part are gathered from the file, sorted and compared with their
 * neighbours. */
#include "authority/import/import_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/siphash.h"

#define KEY_BYTES 16

/* The last link of an entity. */
struct head {
    uint8_t key[KEY_BYTES];
    uint8_t chain_hash[SHA256_BYTES];
    uint8_t owner[SHA256_BYTES]; /* a hash, if all events of the entity have the same owner */
    uint64_t seq;
};

/* ---- lines and links ---- */

void import_check_init(struct import_check *check) {
    *check = (struct import_check){.part_count = 1};
    sha256_init(&check->hash);
    map_init(&check->heads, IMPORT_PART_ENTITIES_MAX);
    arena_init(&check->memory, IMPORT_PART_BYTES_MAX);
}

void import_check_release(struct import_check *check) {
    sha256_release(&check->hash);
    map_release(&check->heads);
    arena_release(&check->memory);
}

static enum status refuse_log(const char **reason, const char *text) {
    *reason = text;
    return STATUS_IMPORT_REFUSED;
}

enum status import_check_line(struct import_check *check, const struct import_line *line,
                              struct slice text, const char **reason) {
    const struct store_event *event = &line->event;
    if (check->has_manifest)
        return refuse_log(reason, "a line follows the manifest");
    if (line->is_manifest) {
        uint8_t digest[SHA256_BYTES];
        sha256_final(&check->hash, digest);
        check->has_manifest = true;
        check->has_fork = line->has_fork;
        check->fork_log_id = line->fork_log_id;
        if (line->count != check->count || memcmp(digest, line->sha256, SHA256_BYTES) != 0)
            return refuse_log(reason,
                              "the lines are not those that the manifest counts and hashes");
        return STATUS_OK;
    }
    if (check->count > 0 && uuid_compare(&event->cursor, &check->cursor) <= 0)
        return refuse_log(reason, "the cursor is not above the cursor of the previous line");
    if (event->chain_version < check->chain_version)
        return refuse_log(reason, "a link of version 1 follows a link of version 2");
    sha256_update(&check->hash, text.data, text.size);
    sha256_update(&check->hash, "\n", 1);
    check->count++;
    check->cursor = event->cursor;
    check->chain_version = event->chain_version;
    check->entity_count += event->seq == 1;
    return STATUS_OK;
}

enum status import_check_end(struct import_check *check, const char **reason) {
    if (!check->has_manifest)
        return refuse_log(reason, "the export has no manifest, so it is not complete");
    /* Parts differ in size, so each has twice the room. */
    check->part_count = 1 + 2 * check->entity_count / IMPORT_PART_ENTITIES_MAX;
    return STATUS_OK;
}

void import_check_begin_part(struct import_check *check, uint64_t part) {
    map_release(&check->heads);
    map_init(&check->heads, IMPORT_PART_ENTITIES_MAX);
    arena_reset(&check->memory);
    check->part = part;
    check->count = 0;
}

/* The head of an entity, which may be new: its seq is 0. STATUS_OK with *head NULL: the entity
 * belongs to another part. */
static enum status find_head(struct import_check *check, enum entity_kind entity_kind,
                             struct slice entity_id, struct head **head) {
    const uint8_t kind = (uint8_t)entity_kind;
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    uint64_t number;
    sha256_init(&hash);
    sha256_update(&hash, &kind, 1);
    sha256_update(&hash, entity_id.data, entity_id.size);
    sha256_final(&hash, digest);
    sha256_release(&hash);
    memcpy(&number, digest + KEY_BYTES, sizeof(number));
    *head = NULL;
    if (number % check->part_count != check->part)
        return STATUS_OK;
    *head = map_find(&check->heads, (struct slice){(const char *)digest, KEY_BYTES});
    if (*head)
        return STATUS_OK;
    struct head *made = arena_alloc(&check->memory, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    *made = (struct head){.seq = 0};
    memcpy(made->key, digest, KEY_BYTES);
    *head = made;
    return map_insert(&check->heads, (struct slice){(const char *)made->key, KEY_BYTES}, made);
}

/* The hash of an event's owner. It is all zero if each event of the entity has its own owner. */
static void owner_hash(const struct store_event *event, uint8_t digest[SHA256_BYTES]) {
    const struct slice parts[] = {event->owner.user_id, event->owner.guest_scope,
                                  event->owner.org_id};
    struct sha256 hash;
    memset(digest, 0, SHA256_BYTES);
    if (entity_row(event->entity_kind)->has_event_owner)
        return;
    sha256_init(&hash);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const uint64_t size = parts[i].data ? parts[i].size + 1 : 0;
        sha256_update(&hash, &size, sizeof(size));
        sha256_update(&hash, parts[i].data ? parts[i].data : "", parts[i].size);
    }
    sha256_final(&hash, digest);
    sha256_release(&hash);
}

/* A run may name a run of its owner as its parent, which is before it in the log. The parent's part
 * of the entities checks that. */
static enum status check_parent(struct import_check *check, const struct store_event *event,
                                const char **reason) {
    const struct json_limits limits = {SIZE_MAX, JSON_DEPTH_MAX};
    struct json_field field = {.name = SLICE("parent_run_id")};
    uint8_t owner[SHA256_BYTES];
    struct head *parent;
    struct buffer id;
    if (event->entity_kind != ENTITY_RUN || event->seq != 1 ||
        json_read_object(event->payload, &limits, &field, 1) != STATUS_OK || !field.present)
        return STATUS_OK;
    buffer_init(&id, APPEND_ID_BYTES_MAX);
    enum status status = json_string_decode(field.value, &id);
    if (status != STATUS_OK && status != STATUS_OUT_OF_MEMORY)
        status = refuse_log(reason, "parent_run_id is not the id of a run");
    if (status == STATUS_OK)
        status = find_head(check, ENTITY_RUN, buffer_slice(&id), &parent);
    buffer_release(&id);
    if (status != STATUS_OK || !parent)
        return status;
    owner_hash(event, owner);
    if (parent->seq == 0 || memcmp(parent->owner, owner, SHA256_BYTES) != 0)
        return refuse_log(reason, "parent_run_id names no earlier run of the owner");
    return STATUS_OK;
}

enum status import_check_link(struct import_check *check, const struct store_event *event,
                              const char **reason) {
    struct head *head;
    uint8_t owner[SHA256_BYTES];
    check->count++;
    enum status status = check_parent(check, event, reason);
    if (status == STATUS_OK)
        status = find_head(check, event->entity_kind, event->entity_id, &head);
    if (status != STATUS_OK || !head)
        return status;
    if (event->seq != head->seq + 1)
        return refuse_log(reason, "earlier events of the entity are missing");
    if (memcmp(event->prev_chain_hash, head->chain_hash, SHA256_BYTES) != 0)
        return refuse_log(reason, "the link to the previous event of the entity is broken");
    owner_hash(event, owner);
    if (event->seq == 1)
        memcpy(head->owner, owner, SHA256_BYTES);
    else if (memcmp(head->owner, owner, SHA256_BYTES) != 0)
        return refuse_log(reason, "the owner is not that of the entity's first event");
    head->seq = event->seq;
    memcpy(head->chain_hash, event->chain_hash, SHA256_BYTES);
    return STATUS_OK;
}

/* ---- event ids ---- */

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

enum status import_ids_add(struct import_ids *ids, const struct uuid *id) {
    ids->block[ids->count++ % IMPORT_IDS_BLOCK] = *id;
    if (ids->count % IMPORT_IDS_BLOCK != 0)
        return STATUS_OK;
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

/* Reads the block of ids that begins at first. The last block never left memory. */
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

bool import_ids_is_checked(const struct import_ids *ids) {
    return ids->part == part_count(ids);
}

/* Gathers the ids of the part. A part without room has ids that are used more than once, since the
 * hash spreads different ids evenly: then the first ones suffice. */
static enum status gather_part(struct import_ids *ids, struct uuid *room, size_t *count) {
    *count = 0;
    for (uint64_t first = 0; first < ids->count; first += IMPORT_IDS_BLOCK) {
        size_t block_count;
        enum status status = read_block(ids, first, &block_count);
        if (status != STATUS_OK)
            return status;
        for (size_t i = 0; i < block_count && *count < IMPORT_PART_IDS_MAX; i++) {
            const struct uuid *id = &ids->scratch[i];
            const struct slice text = {(const char *)id->bytes, sizeof(id->bytes)};
            if (siphash(siphash_process_key(), text) % part_count(ids) == ids->part)
                room[(*count)++] = *id;
        }
    }
    return STATUS_OK;
}

/* The line of the second use of an id. */
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
