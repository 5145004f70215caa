#include "auth/revocation.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"

struct entry {
    uint64_t expires_at_ms;
    size_t key_size;
    char key[]; /* the kind as one byte, then the id */
};

struct revocations {
    pthread_rwlock_t lock;
    struct map entries;
    atomic_size_t count; /* as in entries, for who only wants to know whether there are any */
};

enum status revocations_open(struct revocations **revocations, size_t count_max) {
    struct revocations *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return STATUS_OUT_OF_MEMORY;
    int failed = pthread_rwlock_init(&opened->lock, NULL);
    assert(failed == 0);
    (void)failed;
    map_init(&opened->entries, count_max);
    *revocations = opened;
    return STATUS_OK;
}

void revocations_close(struct revocations *revocations) {
    if (!revocations)
        return;
    struct map_walk walk = map_walk_begin(&revocations->entries);
    for (const struct map_entry *entry; (entry = map_walk_next(&walk));)
        free(entry->value);
    map_release(&revocations->entries);
    pthread_rwlock_destroy(&revocations->lock);
    free(revocations);
}

static struct slice make_key(char *memory, enum revocation_kind kind, struct slice id) {
    memory[0] = (char)kind;
    memcpy(memory + 1, id.data, id.size);
    return (struct slice){memory, id.size + 1};
}

static void drop_expired(struct revocations *revocations, uint64_t now_ms) {
    struct map_walk walk = map_walk_begin(&revocations->entries);
    for (const struct map_entry *entry; (entry = map_walk_next(&walk));) {
        struct entry *old = entry->value;
        if (old->expires_at_ms <= now_ms) {
            map_remove(&revocations->entries, entry->key);
            free(old);
        }
    }
}

static enum status insert(struct revocations *revocations, struct slice key,
                          uint64_t expires_at_ms) {
    struct entry *made = malloc(sizeof(*made) + key.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->expires_at_ms = expires_at_ms;
    made->key_size = key.size;
    memcpy(made->key, key.data, key.size);
    enum status status =
        map_insert(&revocations->entries, (struct slice){made->key, made->key_size}, made);
    if (status != STATUS_OK)
        free(made);
    return status;
}

enum status revocations_add(struct revocations *revocations, enum revocation_kind kind,
                            struct slice id, uint64_t expires_at_ms, uint64_t now_ms) {
    char memory[REVOCATION_ID_BYTES_MAX + 1];
    assert((unsigned)kind < REVOCATION_KIND_COUNT);
    if (id.size == 0 || id.size > REVOCATION_ID_BYTES_MAX)
        return STATUS_INVALID_REQUEST;
    struct slice key = make_key(memory, kind, id);
    pthread_rwlock_wrlock(&revocations->lock);
    enum status status = STATUS_OK;
    struct entry *known = map_find(&revocations->entries, key);
    if (known) {
        known->expires_at_ms =
            known->expires_at_ms > expires_at_ms ? known->expires_at_ms : expires_at_ms;
    } else {
        status = insert(revocations, key, expires_at_ms);
        if (status == STATUS_LIMIT_REACHED) {
            drop_expired(revocations, now_ms);
            status = insert(revocations, key, expires_at_ms);
        }
    }
    atomic_store(&revocations->count, revocations->entries.count);
    pthread_rwlock_unlock(&revocations->lock);
    return status;
}

static bool has(const struct revocations *revocations, enum revocation_kind kind, struct slice id) {
    char memory[REVOCATION_ID_BYTES_MAX + 1];
    return id.data && id.size <= REVOCATION_ID_BYTES_MAX &&
           map_find(&revocations->entries, make_key(memory, kind, id)) != NULL;
}

/* Without looking at the time: who was revoked stays so, also by a clock that steps. */
bool revocations_has(struct revocations *revocations, const struct principal *principal) {
    if (atomic_load(&revocations->count) == 0)
        return false;
    pthread_rwlock_rdlock(&revocations->lock);
    bool found = has(revocations, REVOCATION_SESSION, principal->session_id) ||
                 has(revocations, REVOCATION_DEVICE, principal->device_id) ||
                 has(revocations, REVOCATION_TOKEN, principal->token_id);
    pthread_rwlock_unlock(&revocations->lock);
    return found;
}

size_t revocations_count(struct revocations *revocations) {
    return atomic_load(&revocations->count);
}
