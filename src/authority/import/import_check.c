#include "authority/import/import_check.h"

#include "base/limits.h"

#define KEY_BYTES 16

/* The last link of an entity. */
struct head {
    uint8_t key[KEY_BYTES];
    uint8_t chain_hash[SHA256_BYTES];
    uint8_t owner[SHA256_BYTES]; /* a hash, if all events of the entity have the same owner */
    uint64_t seq;
};

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

static enum status refuse(const char **reason, const char *text) {
    *reason = text;
    return STATUS_IMPORT_REFUSED;
}

static enum status check_manifest(struct import_check *check, const struct import_line *line,
                                  const char **reason) {
    uint8_t digest[SHA256_BYTES];
    sha256_final(&check->hash, digest);
    check->has_manifest = true;
    check->has_fork = line->has_fork;
    check->fork_log_id = line->fork_log_id;
    if (line->count != check->count || memcmp(digest, line->sha256, SHA256_BYTES) != 0)
        return refuse(reason, "the lines are not those that the manifest counts and hashes");
    return STATUS_OK;
}

enum status import_check_line(struct import_check *check, const struct import_line *line,
                              struct slice text, const char **reason) {
    const struct store_event *event = &line->event;
    if (check->has_manifest)
        return refuse(reason, "a line follows the manifest");
    if (line->is_manifest)
        return check_manifest(check, line, reason);
    if (check->count > 0 && uuid_compare(&event->cursor, &check->cursor) <= 0)
        return refuse(reason, "the cursor is not above the cursor of the previous line");
    if (event->chain_version < check->chain_version)
        return refuse(reason, "a link of version 1 follows a link of version 2");
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
        return refuse(reason, "the export has no manifest, so it is not complete");
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

static void key_of(const struct store_event *event, uint8_t digest[SHA256_BYTES]) {
    struct sha256 hash;
    const uint8_t kind = (uint8_t)event->entity_kind;
    sha256_init(&hash);
    sha256_update(&hash, &kind, 1);
    sha256_update(&hash, event->entity_id.data, event->entity_id.size);
    sha256_final(&hash, digest);
    sha256_release(&hash);
}

/* STATUS_OK with *head NULL: the event is of another part. */
static enum status find_head(struct import_check *check, const struct store_event *event,
                             struct head **head) {
    uint8_t digest[SHA256_BYTES];
    uint64_t number;
    key_of(event, digest);
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

static void hash_text(struct sha256 *hash, struct slice text) {
    const uint64_t size = text.data ? text.size + 1 : 0;
    sha256_update(hash, &size, sizeof(size));
    sha256_update(hash, text.data ? text.data : "", text.size);
}

/* All zero for entities whose events have their own owners. */
static void owner_hash(const struct store_event *event, uint8_t digest[SHA256_BYTES]) {
    struct sha256 hash;
    memset(digest, 0, SHA256_BYTES);
    if (entity_row(event->entity_kind)->has_event_owner)
        return;
    sha256_init(&hash);
    hash_text(&hash, event->owner.user_id);
    hash_text(&hash, event->owner.guest_scope);
    hash_text(&hash, event->owner.org_id);
    sha256_final(&hash, digest);
    sha256_release(&hash);
}

enum status import_check_link(struct import_check *check, const struct store_event *event,
                              const char **reason) {
    struct head *head;
    uint8_t owner[SHA256_BYTES];
    check->count++;
    enum status status = find_head(check, event, &head);
    if (status != STATUS_OK || !head)
        return status;
    if (event->seq != head->seq + 1)
        return refuse(reason, "earlier events of the entity are missing");
    if (memcmp(event->prev_chain_hash, head->chain_hash, SHA256_BYTES) != 0)
        return refuse(reason, "the link to the previous event of the entity is broken");
    owner_hash(event, owner);
    if (event->seq == 1)
        memcpy(head->owner, owner, SHA256_BYTES);
    else if (memcmp(head->owner, owner, SHA256_BYTES) != 0)
        return refuse(reason, "the owner is not that of the entity's first event");
    head->seq = event->seq;
    memcpy(head->chain_hash, event->chain_hash, SHA256_BYTES);
    return STATUS_OK;
}
