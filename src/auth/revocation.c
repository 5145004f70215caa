/* A hash table of chains that lookups walk without a lock.
 *
 * A writer holds the lock. It fills an entry first and then links it at the front of its chain.
 * A lookup may still read a removed entry, so the entry is freed only after every lookup that was
 * running has ended. There are two counters. A lookup counts itself in the one that `turn` names.
 * The writer moves `turn` to the other counter and waits until the first one is zero, which new
 * lookups cannot delay. It does so for both counters, because a lookup may read `turn` and be
 * suspended before it counts itself.
 *
 * All atomic operations are sequentially consistent. The argument above needs a total order. */
#include "auth/revocation.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/siphash.h"

/* The mean length of a chain in a full set. */
#define ENTRIES_PER_BUCKET 4

struct entry {
    struct entry *_Atomic next;
    uint64_t expires_at_ms; /* read and written by writers only */
    size_t id_size;
    enum revocation_kind kind;
    char id[];
};

_Static_assert(GATE_REVOCATIONS_MAX *(sizeof(struct entry) + REVOCATION_ID_BYTES_MAX +
                                      sizeof(struct entry *)) <= GATE_REVOCATIONS_BYTES_MAX,
               "the limit counts the longest ids and the buckets");

struct revocations {
    pthread_mutex_t lock; /* held by the writer */
    struct siphash_key secret;
    size_t bucket_mask;
    size_t count_max;
    atomic_size_t count;
    atomic_uint turn;
    atomic_size_t lookups[2];
    _Atomic uint64_t age_ms_max; /* 0: never expires */
    _Atomic uint64_t read_boot_ms;
    struct entry *_Atomic buckets[]; /* the first of each chain */
};

enum status revocations_open(struct revocations **revocations, size_t count_max) {
    size_t bucket_count = 1;
    while (bucket_count < count_max / ENTRIES_PER_BUCKET)
        bucket_count *= 2;
    struct revocations *opened =
        calloc(1, sizeof(*opened) + bucket_count * sizeof(opened->buckets[0]));
    if (!opened)
        return STATUS_OUT_OF_MEMORY;
    int failed = pthread_mutex_init(&opened->lock, NULL);
    assert(failed == 0);
    (void)failed;
    opened->secret = siphash_process_key();
    opened->bucket_mask = bucket_count - 1;
    opened->count_max = count_max;
    *revocations = opened;
    return STATUS_OK;
}

void revocations_close(struct revocations *revocations) {
    if (!revocations)
        return;
    for (size_t i = 0; i <= revocations->bucket_mask; i++) {
        struct entry *next;
        for (struct entry *entry = revocations->buckets[i]; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    pthread_mutex_destroy(&revocations->lock);
    free(revocations);
}

/* The kind is not part of the hash; the chain is searched by kind and id. */
static struct entry *_Atomic *bucket_of(struct revocations *revocations, struct slice id) {
    return &revocations->buckets[siphash(revocations->secret, id) & revocations->bucket_mask];
}

static struct entry *find(struct revocations *revocations, enum revocation_kind kind,
                          struct slice id) {
    struct entry *entry = *bucket_of(revocations, id);
    while (entry &&
           !(entry->kind == kind && slice_equal((struct slice){entry->id, entry->id_size}, id)))
        entry = entry->next;
    return entry;
}

/* ---- freshness ---- */

void revocations_expire_after(struct revocations *revocations, uint64_t age_ms_max) {
    atomic_store(&revocations->age_ms_max, age_ms_max);
}

void revocations_note_read(struct revocations *revocations, uint64_t boot_ms) {
    atomic_store(&revocations->read_boot_ms, boot_ms);
}

bool revocations_is_fresh(const struct revocations *revocations) {
    uint64_t age_ms_max =
        revocations ? atomic_load_explicit(&revocations->age_ms_max, memory_order_relaxed) : 0;
    return age_ms_max == 0 ||
           clock_boot_ms() <= atomic_load(&revocations->read_boot_ms) + age_ms_max;
}

/* ---- lookups ---- */

static bool has(struct revocations *revocations, enum revocation_kind kind, struct slice id) {
    return id.data && find(revocations, kind, id) != NULL;
}

/* The time does not matter: a revoked token stays revoked, also when the clock steps. */
bool revocations_has(struct revocations *revocations, const struct principal *principal) {
    if (revocations->count == 0)
        return false;
    atomic_size_t *lookups = &revocations->lookups[revocations->turn];
    ++*lookups;
    bool found = has(revocations, REVOCATION_SESSION, principal->session_id) ||
                 has(revocations, REVOCATION_DEVICE, principal->device_id) ||
                 has(revocations, REVOCATION_TOKEN, principal->token_id);
    --*lookups;
    return found;
}

/* ---- writers ---- */

/* Removed entries keep their next pointer until lookups are over, and are listed in an array. */
static enum status drop_expired(struct revocations *revocations, uint64_t now_ms) {
    struct entry **removed = malloc(revocations->count * sizeof(struct entry *));
    size_t removed_count = 0;
    if (!removed)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i <= revocations->bucket_mask; i++) {
        struct entry *_Atomic *at = &revocations->buckets[i];
        for (struct entry *entry = *at; entry; entry = *at) {
            if (entry->expires_at_ms > now_ms) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            removed[removed_count++] = entry;
        }
    }
    revocations->count -= removed_count;
    /* Waits until every lookup that was running has ended. A lookup takes microseconds. */
    for (int i = 0; i < 2; i++) {
        unsigned turn = revocations->turn;
        revocations->turn = turn ^ 1;
        while (revocations->lookups[turn] > 0)
            sched_yield();
    }
    for (size_t i = 0; i < removed_count; i++)
        free(removed[i]);
    free(removed);
    return STATUS_OK;
}

enum status revocations_add(struct revocations *revocations, enum revocation_kind kind,
                            struct slice id, uint64_t expires_at_ms, uint64_t now_ms) {
    struct entry *made = NULL;
    assert((unsigned)kind < REVOCATION_KIND_COUNT);
    if (id.size == 0 || id.size > REVOCATION_ID_BYTES_MAX)
        return STATUS_INVALID_REQUEST;
    pthread_mutex_lock(&revocations->lock);
    enum status status = STATUS_OK;
    struct entry *known = find(revocations, kind, id);
    if (known) {
        known->expires_at_ms =
            known->expires_at_ms > expires_at_ms ? known->expires_at_ms : expires_at_ms;
        goto out;
    }
    if (revocations->count == revocations->count_max)
        status = drop_expired(revocations, now_ms);
    if (status == STATUS_OK && revocations->count == revocations->count_max)
        status = STATUS_LIMIT_REACHED;
    if (status != STATUS_OK)
        goto out;
    status = STATUS_OUT_OF_MEMORY;
    made = malloc(sizeof(*made) + id.size);
    if (!made)
        goto out;
    struct entry *_Atomic *bucket = bucket_of(revocations, id);
    made->next = *bucket;
    made->expires_at_ms = expires_at_ms;
    made->kind = kind;
    made->id_size = id.size;
    memcpy(made->id, id.data, id.size);
    *bucket = made;
    revocations->count++;
    status = STATUS_OK;
out:
    pthread_mutex_unlock(&revocations->lock);
    return status;
}
