#include "http/admit/operator_keys.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/limits.h"
#include "base/log.h"

/* A key and the one before its last rotation. */
#define SECRETS_MAX (2 * OPERATOR_KEYS_MAX)

struct secret {
    uint8_t digest[SHA256_BYTES];
    const struct principal *principal; /* its expiry is the end of a previous key */
};

struct secrets {
    struct secret all[SECRETS_MAX];
    size_t count;
    size_t name_count;
};

struct operator_keys {
    pthread_mutex_t lock; /* guards current; held for one lookup */
    struct secrets *current;
};

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

static enum status add_secret(struct secrets *secrets, const struct store_operator_key *row,
                              enum key_role role, bool is_previous) {
    struct secret *secret = &secrets->all[secrets->count];
    const struct principal principal = {
        .role = role,
        .read_all = role == KEY_ROLE_ADMIN || role == KEY_ROLE_READ,
        .subject = row->name,
        .token_id = is_previous ? row->previous_id : row->id,
        .expires_at_ms = is_previous ? row->previous_until_ms : 0,
    };
    memcpy(secret->digest, is_previous ? row->previous_digest : row->digest, SHA256_BYTES);
    enum status status = principal_new(&principal, &secret->principal);
    if (status == STATUS_OK)
        secrets->count++;
    return status;
}

static enum status read_row(void *user, const struct store_operator_key *row) {
    struct secrets *secrets = user;
    enum key_role role;
    if (secrets->name_count == OPERATOR_KEYS_MAX)
        return STATUS_LIMIT_REACHED;
    secrets->name_count++;
    /* A newer build may have stored it. */
    if (!key_role_parse(row->role, &role)) {
        log_event(LOG_WARN, "operator_key.role_unknown", log_slice("name", row->name),
                  log_slice("role", row->role), log_str("effect", "the key is refused"));
        return STATUS_OK;
    }
    enum status status = add_secret(secrets, row, role, false);
    return status == STATUS_OK && row->previous_id.data ? add_secret(secrets, row, role, true)
                                                        : status;
}

enum status operator_keys_read(struct operator_keys *keys, struct store_session *session) {
    struct secrets *read = calloc(1, sizeof(*read));
    if (!read)
        return STATUS_OUT_OF_MEMORY;
    enum status status = store_walk_operator_keys(session, read, read_row);
    if (status != STATUS_OK) {
        secrets_free(read);
        return status;
    }
    pthread_mutex_lock(&keys->lock);
    struct secrets *before = keys->current;
    keys->current = read;
    pthread_mutex_unlock(&keys->lock);
    secrets_free(before);
    return STATUS_OK;
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
        if (CRYPTO_memcmp(digest, secret->digest, SHA256_BYTES) == 0)
            found = secret->principal;
    }
    if (found)
        principal_ref(found);
    pthread_mutex_unlock(&keys->lock);
    if (found && principal_is_expired(found, now_ms)) {
        principal_unref(found);
        found = NULL;
    }
    *principal = found;
    return found ? STATUS_OK : STATUS_INVALID_TOKEN;
}

bool operator_keys_has(struct operator_keys *keys, struct slice name) {
    bool has = false;
    pthread_mutex_lock(&keys->lock);
    for (size_t i = 0; i < keys->current->count; i++)
        has = has || slice_equal(keys->current->all[i].principal->subject, name);
    pthread_mutex_unlock(&keys->lock);
    return has;
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
