#include "auth/principal.h"

#include <stdio.h>

#include <assert.h>
#include <stdlib.h>

#include "auth/claims.h"
#include "base/siphash.h"

_Static_assert(PRINCIPAL_KEY_BYTES_MAX > CLAIMS_TEXT_BYTES_MAX, "a key has a whole name");

const struct principal principal_operator = {.read_all = true};

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
        .read_all = from->read_all,
        .scopes = from->scopes,
    };
    copy->topics = copy_list(&names, &at, &from->topics);
    copy->streams = copy_list(&names, &at, &from->streams);
    atomic_init(&copy->ref_count, 1);
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

void principal_unref(const struct principal *principal) {
    atomic_uint *count = principal ? counted(principal) : NULL;
    if (count && atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1)
        free((void *)principal);
}

/* ---- ownership ---- */

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
    return principal == &principal_operator || principal->scopes & SCOPE_REPLAY_ALL;
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
    size_t chosen = 0;
    while (chosen < sizeof(names) / sizeof(names[0]) && !names[chosen].name.data)
        chosen++;
    key[0] = principal == &principal_operator ? '*' : '-';
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
    if (!id.data) {
        kind = principal == &principal_operator ? "operator" : "service";
        id = SLICE("");
    }
    int size = snprintf(text, PRINCIPAL_NAME_BYTES_MAX, "%s%.*s", kind, (int)id.size, id.data);
    return size < PRINCIPAL_NAME_BYTES_MAX ? (size_t)size : PRINCIPAL_NAME_BYTES_MAX - 1;
}
