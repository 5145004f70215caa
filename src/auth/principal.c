/* A principal is one block: the struct, its granted names, its texts. Principals with the same
 * content are shared, so that many connections of one token hold one. The table of shared
 * principals finds them by a hash of the content, which a lock guards. The lock is not needed to
 * count references, except for the last one of a shared principal. */
#include "auth/principal.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "auth/claims.h"
#include "base/map.h"
#include "base/siphash.h"

_Static_assert(PRINCIPAL_KEY_BYTES_MAX > CLAIMS_TEXT_BYTES_MAX, "a key has a whole name");

const struct principal principal_operator = {
    .role = KEY_ROLE_ADMIN, .read_all = true, .subject = SLICE(PRINCIPAL_OPERATOR_NAME)};
const struct principal principal_mint_key = {.role = KEY_ROLE_MINT,
                                             .subject = SLICE("KHALA_MINT_KEY")};

/* ---- roles ---- */

const char *key_role_name(enum key_role role) {
    static const char *const names[KEY_ROLE_COUNT] = {"none", "admin", "append",
                                                      "mint", "read",  "metrics"};
    return names[role];
}

bool key_role_parse(struct slice name, enum key_role *role) {
    for (unsigned i = KEY_ROLE_NONE + 1; i < KEY_ROLE_COUNT; i++)
        if (slice_equal(name, slice_of(key_role_name((enum key_role)i)))) {
            *role = (enum key_role)i;
            return true;
        }
    return false;
}

/* ---- copies ---- */

static size_t list_bytes(const struct grant_list *list) {
    size_t bytes = 0;
    for (size_t i = 0; i < list->count; i++)
        bytes += list->names[i].size;
    return bytes;
}

static struct slice copy_text(char **at, struct slice text) {
    if (!text.data)
        return text;
    struct slice copy = {*at, text.size};
    memcpy(*at, text.data, text.size);
    *at += text.size;
    return copy;
}

static struct grant_list copy_list(struct slice **names, char **at, const struct grant_list *list) {
    struct grant_list copy = {*names, list->count};
    for (size_t i = 0; i < list->count; i++)
        *(*names)++ = copy_text(at, list->names[i]);
    return copy;
}

enum status principal_new(const struct principal *from, const struct principal **made) {
    size_t name_count = from->topics.count + from->streams.count;
    size_t bytes = from->identity.user_id.size + from->identity.guest_scope.size +
                   from->identity.org_id.size + from->session_id.size + from->device_id.size +
                   from->subject.size + from->token_id.size + list_bytes(&from->topics) +
                   list_bytes(&from->streams);
    struct principal *copy = malloc(sizeof(*copy) + name_count * sizeof(struct slice) + bytes);
    if (!copy)
        return STATUS_OUT_OF_MEMORY;
    struct slice *names = (struct slice *)(copy + 1);
    char *at = (char *)(names + name_count);
    *copy = (struct principal){
        .identity.user_id = copy_text(&at, from->identity.user_id),
        .identity.guest_scope = copy_text(&at, from->identity.guest_scope),
        .identity.org_id = copy_text(&at, from->identity.org_id),
        .session_id = copy_text(&at, from->session_id),
        .device_id = copy_text(&at, from->device_id),
        .subject = copy_text(&at, from->subject),
        .token_id = copy_text(&at, from->token_id),
        .expires_at_ms = from->expires_at_ms,
        .role = from->role,
        .read_all = from->read_all,
        .scopes = from->scopes,
    };
    copy->topics = copy_list(&names, &at, &from->topics);
    copy->streams = copy_list(&names, &at, &from->streams);
    atomic_init(&copy->ref_count, 1);
    atomic_init(&copy->is_shared, false);
    *made = copy;
    return STATUS_OK;
}

/* The counter of a heap object; NULL for a constant, which may lie in read-only memory. */
static atomic_uint *counted(const struct principal *principal) {
    atomic_uint *count = (atomic_uint *)&principal->ref_count;
    return atomic_load_explicit(count, memory_order_relaxed) == 0 ? NULL : count;
}

const struct principal *principal_ref(const struct principal *principal) {
    atomic_uint *count = counted(principal);
    if (count)
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    return principal;
}

/* ---- sharing ---- */

/* The shared principals by the hash of their content. The table holds no references. */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct map shared;

static uint64_t hash_text(uint64_t hash, struct slice text) {
    struct siphash_key key = siphash_process_key();
    key.low ^= hash;
    key.high ^= text.data ? 1 : 0;
    return siphash(key, text);
}

static uint64_t hash_list(uint64_t hash, const struct grant_list *list) {
    for (size_t i = 0; i < list->count; i++)
        hash = hash_text(hash, list->names[i]);
    return hash ^ list->count;
}

static uint64_t hash_of(const struct principal *principal) {
    uint64_t hash = hash_text(principal->expires_at_ms, principal->identity.user_id);
    hash = hash_text(hash, principal->identity.guest_scope);
    hash = hash_text(hash, principal->identity.org_id);
    hash = hash_text(hash, principal->session_id);
    hash = hash_text(hash, principal->device_id);
    hash = hash_text(hash, principal->subject);
    hash = hash_text(hash, principal->token_id);
    return hash_list(hash_list(hash, &principal->topics), &principal->streams);
}

static bool same_text(struct slice a, struct slice b) {
    if (!a.data || !b.data)
        return !a.data && !b.data;
    return slice_equal(a, b);
}

static bool same_list(const struct grant_list *a, const struct grant_list *b) {
    size_t i = 0;
    while (i < a->count && i < b->count && same_text(a->names[i], b->names[i]))
        i++;
    return i == a->count && i == b->count;
}

static bool same_content(const struct principal *a, const struct principal *b) {
    return a->expires_at_ms == b->expires_at_ms && a->read_all == b->read_all &&
           a->role == b->role && a->scopes == b->scopes &&
           same_text(a->identity.user_id, b->identity.user_id) &&
           same_text(a->identity.guest_scope, b->identity.guest_scope) &&
           same_text(a->identity.org_id, b->identity.org_id) &&
           same_text(a->session_id, b->session_id) && same_text(a->device_id, b->device_id) &&
           same_text(a->subject, b->subject) && same_text(a->token_id, b->token_id) &&
           same_list(&a->topics, &b->topics) && same_list(&a->streams, &b->streams);
}

static struct slice hash_slice(const struct principal *principal) {
    return (struct slice){(const char *)&principal->content_hash, sizeof(principal->content_hash)};
}

const struct principal *principal_shared(const struct principal *principal) {
    if (!counted(principal) || atomic_load(&principal->is_shared))
        return principal_ref(principal);
    uint64_t hash = hash_of(principal);
    const struct slice key = {(const char *)&hash, sizeof(hash)};
    pthread_mutex_lock(&shared_lock);
    if (shared.count_max == 0)
        map_init(&shared, MAP_COUNT_MAX);
    const struct principal *found = map_find(&shared, key);
    if (!found) {
        found = principal;
        ((struct principal *)principal)->content_hash = hash;
        /* Without memory the principal is not shared. */
        if (map_insert(&shared, hash_slice(principal), (void *)principal) == STATUS_OK)
            atomic_store(&((struct principal *)principal)->is_shared, true);
    } else if (!same_content(found, principal)) {
        found = principal;
    }
    principal_ref(found);
    pthread_mutex_unlock(&shared_lock);
    return found;
}

void principal_unref(const struct principal *principal) {
    atomic_uint *count = principal ? counted(principal) : NULL;
    if (!count)
        return;
    unsigned seen = atomic_load(count);
    while (seen > 1)
        if (atomic_compare_exchange_weak(count, &seen, seen - 1))
            return;
    /* With the last reference here, no other thread can begin to share it. */
    bool is_last = true;
    if (atomic_load(&principal->is_shared)) {
        /* With the lock held, no other thread finds the principal between its last reference and
         * its removal from the table. */
        pthread_mutex_lock(&shared_lock);
        is_last = atomic_fetch_sub(count, 1) == 1;
        if (is_last)
            (void)map_remove(&shared, hash_slice(principal));
        if (shared.count == 0)
            map_release(&shared);
        pthread_mutex_unlock(&shared_lock);
    }
    if (is_last)
        free((void *)principal);
}

/* ---- ownership ---- */

/* Two absent names are not the same. */
static bool same(struct slice a, struct slice b) {
    return a.data && b.data && slice_equal(a, b);
}

bool principal_owns(const struct principal *principal, const struct owner *owner) {
    const struct owner *identity = &principal->identity;
    if (owner->user_id.data || owner->guest_scope.data)
        return same(identity->user_id, owner->user_id) ||
               same(identity->guest_scope, owner->guest_scope);
    return same(identity->org_id, owner->org_id);
}

bool principal_may_read(const struct principal *principal, const struct owner *owner) {
    return principal->read_all || principal_owns(principal, owner);
}

enum key_kind { KEY_USER, KEY_GUEST, KEY_ORG, KEY_NONE };

static uint32_t key_of(enum key_kind kind, struct slice id) {
    struct siphash_key secret = siphash_process_key();
    secret.low ^= kind;
    return (uint32_t)siphash(secret, id);
}

static size_t person_key(const struct owner *owner, uint32_t *key) {
    assert(!owner->user_id.data || !owner->guest_scope.data);
    if (owner->user_id.data)
        *key = key_of(KEY_USER, owner->user_id);
    else if (owner->guest_scope.data)
        *key = key_of(KEY_GUEST, owner->guest_scope);
    return owner->user_id.data || owner->guest_scope.data;
}

size_t principal_keys(const struct principal *principal, uint32_t keys[PRINCIPAL_KEYS_MAX]) {
    const struct owner *identity = &principal->identity;
    size_t count = person_key(identity, keys);
    if (identity->org_id.data)
        keys[count++] = key_of(KEY_ORG, identity->org_id);
    /* No data has this key. */
    if (count == 0)
        keys[count++] = key_of(KEY_NONE, SLICE(""));
    return count;
}

/* The organisation matters only for data without user and guest, as in principal_may_read. */
size_t owner_keys(const struct owner *owner, uint32_t keys[PRINCIPAL_KEYS_MAX]) {
    size_t count = person_key(owner, keys);
    if (count == 0 && owner->org_id.data)
        keys[count++] = key_of(KEY_ORG, owner->org_id);
    return count;
}

bool principal_may_replay_all(const struct principal *principal) {
    return (principal_is_operator(principal) && principal->read_all) ||
           principal->scopes & SCOPE_REPLAY_ALL;
}

struct slice principal_key(const struct principal *principal, char key[PRINCIPAL_KEY_BYTES_MAX]) {
    const struct {
        char kind;
        struct slice name;
    } names[] = {
        {'u', principal->identity.user_id}, {'g', principal->identity.guest_scope},
        {'o', principal->identity.org_id},  {'s', principal->subject},
        {'j', principal->token_id},
    };
    /* A key is no token, whatever the token says in its claims. */
    if (principal_is_operator(principal)) {
        key[0] = '*';
        memcpy(key + 1, principal->subject.data, principal->subject.size);
        return (struct slice){key, 1 + principal->subject.size};
    }
    size_t chosen = 0;
    while (chosen < sizeof(names) / sizeof(names[0]) && !names[chosen].name.data)
        chosen++;
    key[0] = '-';
    if (chosen == sizeof(names) / sizeof(names[0]))
        return (struct slice){key, 1};
    struct slice name = names[chosen].name;
    assert(name.size < PRINCIPAL_KEY_BYTES_MAX);
    key[0] = names[chosen].kind;
    memcpy(key + 1, name.data, name.size);
    return (struct slice){key, 1 + name.size};
}

size_t principal_name(const struct principal *principal, char text[PRINCIPAL_NAME_BYTES_MAX]) {
    const struct owner *identity = &principal->identity;
    const char *kind = identity->user_id.data       ? "user:"
                       : identity->guest_scope.data ? "guest:"
                                                    : "org:";
    struct slice id = identity->user_id.data       ? identity->user_id
                      : identity->guest_scope.data ? identity->guest_scope
                                                   : identity->org_id;
    if (principal == &principal_operator) {
        kind = "";
        id = principal->subject;
    } else if (principal_is_operator(principal)) {
        kind = "key:";
        id = principal->subject;
    } else if (!id.data) {
        kind = "service";
        id = SLICE("");
    }
    int size = snprintf(text, PRINCIPAL_NAME_BYTES_MAX, "%s%.*s", kind, (int)id.size, id.data);
    return size < PRINCIPAL_NAME_BYTES_MAX ? (size_t)size : PRINCIPAL_NAME_BYTES_MAX - 1;
}
