#include "http/admit/operator_keys.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

/* A key and the one before its last rotation. */
#define SECRETS_MAX (2 * OPERATOR_KEYS_MAX)

struct secret {
    uint8_t digest[SHA256_BYTES];
    uint64_t until_ms; /* the end of a previous key; 0: none */
    /* Without a role if this build does not know it. Such a key is refused, and can be removed. */
    const struct principal *principal;
};

struct secrets {
    struct secret all[SECRETS_MAX];
    size_t count;
    size_t name_count;
};

struct operator_keys {
    pthread_mutex_t lock; /* guards the others; held for one lookup */
    struct secrets *current;
    bool has_ended; /* a key, since operator_keys_take_ended */
};

static bool is_valid(const struct secret *secret, uint64_t now_ms) {
    return principal_is_operator(secret->principal) &&
           (secret->until_ms == 0 || now_ms < secret->until_ms);
}

static const struct secret *find_id(const struct secrets *secrets, struct slice id) {
    for (size_t i = 0; i < secrets->count; i++)
        if (slice_equal(secrets->all[i].principal->token_id, id))
            return &secrets->all[i];
    return NULL;
}

static void secrets_free(struct secrets *secrets) {
    if (!secrets)
        return;
    for (size_t i = 0; i < secrets->count; i++)
        principal_unref(secrets->all[i].principal);
    free(secrets);
}

enum status operator_keys_open(struct operator_keys **keys) {
    struct operator_keys *opened = calloc(1, sizeof(*opened));
    struct secrets *none = calloc(1, sizeof(*none));
    if (!opened || !none) {
        free(opened);
        free(none);
        return STATUS_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&opened->lock, NULL);
    opened->current = none;
    *keys = opened;
    return STATUS_OK;
}

void operator_keys_close(struct operator_keys *keys) {
    if (!keys)
        return;
    secrets_free(keys->current);
    pthread_mutex_destroy(&keys->lock);
    free(keys);
}

/* ---- reading ---- */

struct reading {
    struct operator_keys *keys;
    struct secrets *read;
    uint64_t now_ms;
};

static enum status add_secret(struct secrets *secrets, const struct store_operator_key *row,
                              enum key_role role, bool is_previous) {
    struct secret *secret = &secrets->all[secrets->count];
    const struct principal principal = {
        .role = role,
        .read_all = role == KEY_ROLE_ADMIN || role == KEY_ROLE_READ,
        .subject = row->name,
        .token_id = is_previous ? row->previous_id : row->id,
    };
    secret->until_ms = is_previous ? row->previous_until_ms : 0;
    memcpy(secret->digest, is_previous ? row->previous_digest : row->digest, SHA256_BYTES);
    enum status status = principal_new(&principal, &secret->principal);
    if (status == STATUS_OK)
        secrets->count++;
    return status;
}

static enum status read_row(void *user, const struct store_operator_key *row) {
    struct reading *reading = user;
    struct operator_keys *keys = reading->keys;
    struct secrets *secrets = reading->read;
    enum key_role role = KEY_ROLE_NONE;
    if (secrets->name_count == OPERATOR_KEYS_MAX)
        return STATUS_LIMIT_REACHED;
    secrets->name_count++;
    /* A newer build may have stored it. */
    if (!key_role_parse(row->role, &role)) {
        pthread_mutex_lock(&keys->lock);
        bool is_logged = find_id(keys->current, row->id) != NULL;
        pthread_mutex_unlock(&keys->lock);
        if (!is_logged)
            log_event(LOG_WARN, "operator_key.role_unknown", log_slice("name", row->name),
                      log_slice("role", row->role), log_str("effect", "the key is refused"));
    }
    enum status status = add_secret(secrets, row, role, false);
    bool has_previous = row->previous_id.data && reading->now_ms < row->previous_until_ms;
    return status == STATUS_OK && has_previous ? add_secret(secrets, row, role, true) : status;
}

enum status operator_keys_read(struct operator_keys *keys, struct store_session *session) {
    struct secrets *read = calloc(1, sizeof(*read));
    if (!read)
        return STATUS_OUT_OF_MEMORY;
    struct reading reading = {keys, read, clock_now().wall_ms};
    enum status status = store_walk_operator_keys(session, &reading, read_row);
    if (status != STATUS_OK) {
        secrets_free(read);
        return status;
    }
    pthread_mutex_lock(&keys->lock);
    struct secrets *before = keys->current;
    keys->current = read;
    for (size_t i = 0; i < before->count; i++)
        if (!find_id(read, before->all[i].principal->token_id))
            keys->has_ended = true;
    pthread_mutex_unlock(&keys->lock);
    secrets_free(before);
    return STATUS_OK;
}

/* ---- ending ---- */

/* With the lock held: drops the keys of that name, and those that have ended by that time. */
static void drop(struct operator_keys *keys, struct slice name, uint64_t now_ms) {
    struct secrets *secrets = keys->current;
    size_t kept = 0;
    for (size_t i = 0; i < secrets->count; i++) {
        const struct secret *secret = &secrets->all[i];
        bool is_over = secret->until_ms > 0 && now_ms >= secret->until_ms;
        if (is_over || slice_equal(secret->principal->subject, name)) {
            principal_unref(secret->principal);
            keys->has_ended = true;
        } else {
            secrets->all[kept++] = *secret;
        }
    }
    secrets->count = kept;
}

void operator_keys_drop(struct operator_keys *keys, struct slice name) {
    pthread_mutex_lock(&keys->lock);
    drop(keys, name, 0);
    pthread_mutex_unlock(&keys->lock);
}

bool operator_keys_take_ended(struct operator_keys *keys, uint64_t now_ms) {
    pthread_mutex_lock(&keys->lock);
    drop(keys, (struct slice){NULL, 0}, now_ms);
    bool has_ended = keys->has_ended;
    keys->has_ended = false;
    pthread_mutex_unlock(&keys->lock);
    return has_ended;
}

bool operator_keys_has_ended(struct operator_keys *keys, const struct principal *principal,
                             uint64_t now_ms) {
    if (!principal_is_operator(principal) || !principal_is_revocable(principal))
        return false;
    pthread_mutex_lock(&keys->lock);
    const struct secret *secret = find_id(keys->current, principal->token_id);
    bool has_ended = !secret || !is_valid(secret, now_ms);
    pthread_mutex_unlock(&keys->lock);
    return has_ended;
}

/* ---- looking up ---- */

enum status operator_keys_find(struct operator_keys *keys, struct slice text, uint64_t now_ms,
                               const struct principal **principal) {
    uint8_t digest[SHA256_BYTES];
    const struct principal *found = NULL;
    if (text.size != OPERATOR_KEY_TEXT_SIZE || !slice_starts(text, SLICE(OPERATOR_KEY_PREFIX)))
        return STATUS_INVALID_TOKEN;
    sha256(text.data, text.size, digest);
    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; i < keys->current->count; i++) {
        const struct secret *secret = &keys->current->all[i];
        if (CRYPTO_memcmp(digest, secret->digest, SHA256_BYTES) == 0 && is_valid(secret, now_ms))
            found = secret->principal;
    }
    if (found)
        principal_ref(found);
    pthread_mutex_unlock(&keys->lock);
    *principal = found;
    return found ? STATUS_OK : STATUS_INVALID_TOKEN;
}

const struct principal *operator_keys_named(struct operator_keys *keys, struct slice name) {
    const struct principal *found = NULL;
    pthread_mutex_lock(&keys->lock);
    /* The present key of a name stands before its previous one. */
    for (size_t i = 0; !found && i < keys->current->count; i++)
        if (slice_equal(keys->current->all[i].principal->subject, name))
            found = principal_ref(keys->current->all[i].principal);
    pthread_mutex_unlock(&keys->lock);
    return found;
}

bool operator_keys_is_full(struct operator_keys *keys) {
    pthread_mutex_lock(&keys->lock);
    bool is_full = keys->current->name_count == OPERATOR_KEYS_MAX;
    pthread_mutex_unlock(&keys->lock);
    return is_full;
}

/* ---- making ---- */

const char *operator_key_name_problem(struct slice name) {
    static const char *const problem =
        "The name of a key is 1 to 64 of a-z, 0-9, '.', '_' and '-', and begins with a letter or "
        "digit.";
    if (name.size == 0 || name.size > OPERATOR_KEY_NAME_BYTES_MAX)
        return problem;
    for (size_t i = 0; i < name.size; i++) {
        char one = name.data[i];
        bool is_word = (one >= 'a' && one <= 'z') || (one >= '0' && one <= '9');
        bool is_sign = i > 0 && (one == '.' || one == '_' || one == '-');
        if (!is_word && !is_sign)
            return problem;
    }
    return slice_equal(name, SLICE(PRINCIPAL_OPERATOR_NAME))
               ? "The name operator belongs to the key of the settings or of operator.key."
               : NULL;
}

enum status operator_key_make(char text[OPERATOR_KEY_TEXT_SIZE + 1], uint8_t digest[SHA256_BYTES]) {
    uint8_t secret[OPERATOR_KEY_RANDOM_BYTES];
    size_t prefix_size = sizeof(OPERATOR_KEY_PREFIX) - 1;
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return STATUS_SYSTEM_ERROR;
    memcpy(text, OPERATOR_KEY_PREFIX, prefix_size);
    size_t size = prefix_size + base64url_encode(secret, sizeof(secret), text + prefix_size);
    text[size] = '\0';
    OPENSSL_cleanse(secret, sizeof(secret));
    sha256(text, size, digest);
    return STATUS_OK;
}
