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

#define TOO_MANY_KEYS "there are more than 64 keys"
_Static_assert(KEY_SET_COUNT_MAX == 64, "the message names it");

/* Moves the key into the set, or releases it and returns the reason. */
static const char *add(struct key_set *set, struct key *key) {
    bool is_full = set->count == KEY_SET_COUNT_MAX;
    if (!is_full && !key_set_find(set, slice_of(key->id))) {
        set->keys[set->count++] = *key;
        return NULL;
    }
    key_release(key);
    return is_full ? TOO_MANY_KEYS : "an earlier key has the same id";
}

enum status key_set_add_secret(struct key_set *set, struct slice id, struct slice secret,
                               struct key_message *message) {
    struct key key;
    snprintf(message->text, sizeof(message->text), "a secret is 1 to %d bytes",
             KEY_SECRET_BYTES_MAX);
    enum status status = key_init_secret(&key, id, secret);
    const char *reason = status == STATUS_OK ? add(set, &key) : NULL;
    if (!reason)
        return status;
    snprintf(message->text, sizeof(message->text), "%s", reason);
    return STATUS_INVALID_CONFIG;
}

enum status key_set_add_previous(struct key_set *set, struct slice id, struct slice secret,
                                 struct key_message *message) {
    struct key key;
    if (set->count == KEY_SET_COUNT_MAX) {
        snprintf(message->text, sizeof(message->text), TOO_MANY_KEYS);
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

/* An issuer's set with one bad key must not lock out the users of its other keys, so a bad key is
 * remembered as refused. */
static enum status add_jwk(struct key_set *set, const json_t *jwk, size_t index) {
    struct key key;
    const char *reason = "";
    enum status status = key_init_jwk(&key, jwk, &reason);
    if (status == STATUS_OK)
        reason = add(set, &key);
    if (status == STATUS_NOT_FOUND || (status == STATUS_OK && !reason))
        return STATUS_OK;
    if (status == STATUS_OUT_OF_MEMORY)
        return status;
    if (set->refused_count < KEY_SET_COUNT_MAX) {
        struct key_refusal *refusal = &set->refused[set->refused_count];
        refusal->reason = reason;
        if (key.id[0] != '\0')
            memcpy(refusal->id, key.id, sizeof(refusal->id));
        else
            snprintf(refusal->id, sizeof(refusal->id), "#%zu", index);
    }
    set->refused_count++;
    return STATUS_OK;
}

enum status key_set_add_jwks(struct key_set *set, struct slice text, struct key_message *message) {
    json_error_t error;
    size_t before = set->count;
    size_t refused_before = set->refused_count;
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
    const json_t *keys = json_object_get(root, "keys");
    enum status status = keys ? STATUS_OK : add_jwk(set, root, 0);
    for (size_t i = 0; status == STATUS_OK && i < json_array_size(keys); i++)
        status = add_jwk(set, json_array_get(keys, i), i);
    json_decref(root);
    if (status != STATUS_OK)
        snprintf(message->text, sizeof(message->text), "out of memory");
    if (status != STATUS_OK || set->count > before)
        return status;
    if (refused_before < key_set_refusals(set))
        snprintf(message->text, sizeof(message->text), "the key '%s' cannot be used: %s",
                 set->refused[refused_before].id, set->refused[refused_before].reason);
    else
        snprintf(message->text, sizeof(message->text), "it holds no key for HS256, RS256 or ES256");
    return STATUS_INVALID_CONFIG;
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

const struct key *key_set_signer(const struct key_set *set, uint64_t now_s) {
    const struct key *signer = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const struct key *key = &set->keys[i];
        if (key->signs && key->signs_from_s <= now_s && !key_has_ended(key, now_s) &&
            (!signer || key->signs_from_s > signer->signs_from_s))
            signer = key;
    }
    return signer;
}
