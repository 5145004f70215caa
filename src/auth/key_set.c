#include "auth/key_set.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"

struct key_set *key_set_new(void) {
    struct key_set *set = calloc(1, sizeof(*set));
    if (set)
        atomic_init(&set->ref_count, 1);
    return set;
}

struct key_set *key_set_ref(struct key_set *set) {
    atomic_fetch_add_explicit(&set->ref_count, 1, memory_order_relaxed);
    return set;
}

void key_set_unref(struct key_set *set) {
    if (!set || atomic_fetch_sub_explicit(&set->ref_count, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < set->count; i++)
        key_release(&set->keys[i]);
    free(set);
}

/* Moves the key into the set, or releases it. */
static enum status add(struct key_set *set, struct key *key, struct key_message *message) {
    if (set->count < KEY_SET_COUNT_MAX && !key_set_find(set, slice_of(key->id))) {
        set->keys[set->count++] = *key;
        return STATUS_OK;
    }
    if (set->count == KEY_SET_COUNT_MAX)
        snprintf(message->text, sizeof(message->text), "there are more than %d keys",
                 KEY_SET_COUNT_MAX);
    else
        snprintf(message->text, sizeof(message->text), "two keys have the id '%s'", key->id);
    key_release(key);
    return STATUS_INVALID_CONFIG;
}

enum status key_set_add_secret(struct key_set *set, struct slice id, struct slice secret,
                               struct key_message *message) {
    struct key key;
    snprintf(message->text, sizeof(message->text), "a secret is 1 to %d bytes",
             KEY_SECRET_BYTES_MAX);
    enum status status = key_init_secret(&key, id, secret);
    return status == STATUS_OK ? add(set, &key, message) : status;
}

enum status key_set_add_previous(struct key_set *set, struct slice id, struct slice secret,
                                 struct key_message *message) {
    struct key key;
    if (set->count == KEY_SET_COUNT_MAX) {
        snprintf(message->text, sizeof(message->text), "there are more than %d keys",
                 KEY_SET_COUNT_MAX);
        return STATUS_INVALID_CONFIG;
    }
    snprintf(message->text, sizeof(message->text), "a previous secret is 1 to %d bytes",
             KEY_SECRET_BYTES_MAX);
    enum status status = key_init_secret(&key, id, secret);
    if (status != STATUS_OK)
        return status;
    key.signs = false;
    set->keys[set->count++] = key;
    return STATUS_OK;
}

static enum status add_jwk(struct key_set *set, const json_t *jwk, size_t index,
                           struct key_message *message) {
    struct key key;
    const char *reason = "";
    enum status status = key_init_jwk(&key, jwk, &reason);
    if (status == STATUS_OK)
        return add(set, &key, message);
    if (status == STATUS_INVALID_CONFIG)
        snprintf(message->text, sizeof(message->text), "key %zu cannot be used: %s", index, reason);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status add_all(struct key_set *set, const json_t *root, struct key_message *message) {
    const json_t *keys = json_object_get(root, "keys");
    size_t before = set->count;
    enum status status = STATUS_OK;
    snprintf(message->text, sizeof(message->text), "out of memory");
    if (!keys)
        status = add_jwk(set, root, 0, message);
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(keys); i++)
        status = add_jwk(set, json_array_get(keys, i), i, message);
    if (status != STATUS_OK || set->count > before)
        return status;
    snprintf(message->text, sizeof(message->text), "it holds no key for HS256, RS256 or ES256");
    return STATUS_INVALID_CONFIG;
}

enum status key_set_add_jwks(struct key_set *set, struct slice text, struct key_message *message) {
    json_error_t error;
    if (text.size > KEY_SET_BYTES_MAX) {
        snprintf(message->text, sizeof(message->text), "it is larger than %d bytes",
                 KEY_SET_BYTES_MAX);
        return STATUS_INVALID_CONFIG;
    }
    json_t *root =
        json_loadb(text.data ? text.data : "", text.size, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        /* The message of the parser is not used: it quotes the text, which holds secrets. */
        snprintf(message->text, sizeof(message->text), "it is not JSON (line %d, column %d)",
                 error.line, error.column);
        return STATUS_INVALID_CONFIG;
    }
    enum status status = add_all(set, root, message);
    json_decref(root);
    return status;
}

static const struct key *find_from(const struct key_set *set, size_t index, struct slice id) {
    for (size_t i = index; i < set->count; i++)
        if (slice_equal(id, slice_of(set->keys[i].id)))
            return &set->keys[i];
    return NULL;
}

const struct key *key_set_find(const struct key_set *set, struct slice id) {
    if (id.data)
        return find_from(set, 0, id);
    for (size_t i = 1; i < set->count; i++)
        if (strcmp(set->keys[i].id, set->keys[0].id) != 0)
            return NULL;
    return set->count > 0 ? &set->keys[0] : NULL;
}

const struct key *key_set_next(const struct key_set *set, const struct key *key) {
    return find_from(set, (size_t)(key - set->keys) + 1, slice_of(key->id));
}

const struct key *key_set_signer(const struct key_set *set) {
    for (size_t i = 0; i < set->count; i++)
        if (set->keys[i].signs)
            return &set->keys[i];
    return NULL;
}
