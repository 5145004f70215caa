/* A set of keys is loaded as a whole: the secret of the settings, or else the file, and then the
 * previous secrets. A reload builds a new set and swaps it in under the lock. Checks that run keep
 * their reference to the old set. A rotation writes a new file: a fresh key, and the old ones with
 * an end. */
#include "auth/keys.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jose/jwk.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/token.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/uuid7.h"

/* Identifies the version of a file that was read. */
struct file_mark {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified;
};

struct keys {
    pthread_mutex_t lock; /* guards set while a reference is taken */
    struct key_set *set;
    char *secret;
    char *previous_secrets;   /* comma-separated */
    char path[KEYS_PATH_MAX]; /* empty: no file */
    struct file_mark mark;
    enum keys_source source;
};

/* ---- files ---- */

static struct file_mark mark_of(const struct stat *about) {
    return (struct file_mark){about->st_dev, about->st_ino, about->st_size, about->st_mtim};
}

static enum status read_file(const char *path, struct buffer *text, struct file_mark *mark) {
    struct stat about;
    char piece[4096];
    ssize_t size;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM_ERROR;
    enum status status = fstat(file, &about) == 0 ? STATUS_OK : STATUS_SYSTEM_ERROR;
    if (status == STATUS_OK && !S_ISREG(about.st_mode)) {
        errno = EINVAL;
        status = STATUS_SYSTEM_ERROR;
    }
    if (status == STATUS_OK)
        *mark = mark_of(&about);
    while (status == STATUS_OK && (size = read(file, piece, sizeof(piece))) != 0)
        status = size < 0 ? STATUS_SYSTEM_ERROR : buffer_append(text, piece, (size_t)size);
    int error = errno;
    OPENSSL_cleanse(piece, sizeof(piece));
    close(file);
    errno = error;
    return status;
}

/* ---- sets ---- */

static enum status explain(const struct keys *keys, enum status status,
                           struct key_message *message) {
    if (status == STATUS_SYSTEM_ERROR || status == STATUS_NOT_FOUND)
        snprintf(message->text, sizeof(message->text), "cannot read %s: %s", keys->path,
                 strerror(status == STATUS_NOT_FOUND ? ENOENT : errno));
    else if (status == STATUS_PAYLOAD_TOO_LARGE)
        snprintf(message->text, sizeof(message->text), "%s is larger than %d bytes", keys->path,
                 KEY_SET_BYTES_MAX);
    else
        snprintf(message->text, sizeof(message->text), "%s", status_message(status));
    return status == STATUS_NOT_FOUND ? STATUS_SYSTEM_ERROR : status;
}

static enum status add_file(struct keys *keys, struct key_set *set, struct key_message *message) {
    struct buffer text;
    struct key_message reason = {""};
    buffer_init(&text, KEY_SET_BYTES_MAX);
    enum status status = read_file(keys->path, &text, &keys->mark);
    if (status != STATUS_OK) {
        status = explain(keys, status, message);
    } else {
        status = key_set_add_jwks(set, buffer_slice(&text), &reason);
        if (status != STATUS_OK)
            snprintf(message->text, sizeof(message->text), "%s: %.400s", keys->path, reason.text);
    }
    if (text.data)
        OPENSSL_cleanse(text.data, text.size);
    buffer_release(&text);
    return status;
}

/* Loads the secret, the file and the previous secrets into a new set. */
static enum status load(struct keys *keys, struct key_set **loaded, struct key_message *message) {
    struct key_set *set = key_set_new();
    if (!set)
        return explain(keys, STATUS_OUT_OF_MEMORY, message);
    enum status status = STATUS_OK;
    if (*keys->secret)
        status = key_set_add_secret(set, SLICE(KEYS_SECRET_ID), slice_of(keys->secret), message);
    if (status == STATUS_OK && *keys->path)
        status = add_file(keys, set, message);
    for (const char *at = keys->previous_secrets; status == STATUS_OK && *at;) {
        const struct slice secret = {at, strcspn(at, ",")};
        if (secret.size > 0)
            status = key_set_add_previous(set, SLICE(KEYS_SECRET_ID), secret, message);
        at += secret.size + (at[secret.size] == ',');
    }
    if (status != STATUS_OK)
        goto out;
    for (size_t i = 0; i < set->count; i++)
        if (key_is_short(&set->keys[i]))
            log_event(LOG_WARN, "signing_key.short", log_str("kid", set->keys[i].id),
                      log_int("bytes", (int64_t)set->keys[i].secret_bytes),
                      log_int("wanted", KEY_SECRET_BYTES_SHORT));
    for (size_t i = 0; i < key_set_refusals(set); i++)
        log_event(LOG_ERROR, "signing_key.refused", log_str("kid", set->refused[i].id),
                  log_str("reason", set->refused[i].reason), log_str("path", keys->path));
    metrics_set(METRIC_SIGNING_KEYS_REFUSED, METRIC_PLAIN, set->refused_count);
    *loaded = set;
    set = NULL;
out:
    key_set_unref(set);
    return status;
}

/* Ends an old key. False: it has ended. */
static bool end_old(json_t *jwk, const struct keys_rotation *rotation) {
    json_int_t now_s = (json_int_t)rotation->now_s;
    json_int_t until_s = now_s + (json_int_t)rotation->delay_s + TOKEN_TTL_S_MAX + TOKEN_SKEW_S;
    const json_t *before = json_object_get(jwk, KEY_VERIFIES_UNTIL);
    if (json_is_integer(before) && json_integer_value(before) < until_s)
        until_s = json_integer_value(before);
    return !rotation->ends_old && until_s > now_s &&
           json_object_set_new(jwk, KEY_VERIFIES_UNTIL, json_integer(until_s)) == 0;
}

enum status keys_rotate(struct slice text, const struct keys_rotation *rotation, struct buffer *out,
                        char id[KEY_ID_BYTES_MAX + 1]) {
    struct uuid7_generator ids;
    char name[UUID_TEXT_SIZE];
    json_t *root = json_loadb(text.data ? text.data : "", text.size, JSON_REJECT_DUPLICATES, NULL);
    json_t *old = json_object_get(root, "keys");
    json_t *keys = json_array();
    enum status status = STATUS_INVALID_CONFIG;
    char *made = NULL;
    if (!json_is_object(root))
        goto out;
    status = uuid7_generator_init(&ids, NULL);
    if (status != STATUS_OK)
        goto out;
    const struct uuid unique = uuid7_next(&ids, rotation->now_s * 1000);
    uuid_format(&unique, name);
    snprintf(id, KEY_ID_BYTES_MAX + 1, KEYS_SECRET_ID "-%.*s", UUID_TEXT_SIZE, name);
    status = STATUS_OUT_OF_MEMORY;
    json_int_t signs_from_s = (json_int_t)rotation->now_s;
    if (!rotation->ends_old)
        signs_from_s += (json_int_t)rotation->delay_s;
    json_t *fresh = json_pack("{s:s, s:s, s:s, s:I}", "alg", "HS256", "kid", id, "use", "sig",
                              KEY_SIGNS_FROM, signs_from_s);
    if (!fresh || !jose_jwk_gen(NULL, fresh) || json_array_append_new(keys, fresh) != 0)
        goto out;
    for (size_t i = 0; i < (old ? json_array_size(old) : 1); i++) {
        json_t *jwk = old ? json_array_get(old, i) : root;
        if (end_old(jwk, rotation) && json_array_append(keys, jwk) != 0)
            goto out;
    }
    json_t *set = json_pack("{s:O}", "keys", keys);
    made = set ? json_dumps(set, JSON_COMPACT) : NULL;
    json_decref(set);
    if (made)
        status = buffer_append_slice(out, slice_of(made));
out:
    if (made)
        OPENSSL_cleanse(made, strlen(made));
    free(made);
    json_decref(keys);
    json_decref(root);
    return status;
}

/* Finds the file of the keys, and generates the server's own if it does not exist. */
static enum status find_file(struct keys *keys, const struct keys_options *options) {
    bool is_ours = !*options->jwks_file && !*options->secret;
    int size = is_ours ? snprintf(keys->path, sizeof(keys->path), "%s/" KEYS_FILE, options->folder)
                       : snprintf(keys->path, sizeof(keys->path), "%s", options->jwks_file);
    if (size < 0 || (size_t)size >= sizeof(keys->path))
        return STATUS_INVALID_CONFIG;
    keys->source = is_ours ? KEYS_READ : KEYS_GIVEN;
    if (!is_ours || access(keys->path, F_OK) == 0)
        return STATUS_OK;
    keys->source = KEYS_GENERATED;
    json_t *jwk = json_pack("{s:s, s:s, s:s}", "alg", "HS256", "kid", KEYS_SECRET_ID, "use", "sig");
    char *text = jwk && jose_jwk_gen(NULL, jwk) ? json_dumps(jwk, JSON_COMPACT) : NULL;
    enum status status = text ? file_replace(keys->path, slice_of(text)) : STATUS_OUT_OF_MEMORY;
    if (text)
        OPENSSL_cleanse(text, strlen(text));
    free(text);
    json_decref(jwk);
    return status;
}

enum status keys_open(struct keys **keys, const struct keys_options *options,
                      struct key_message *message) {
    enum status status = STATUS_OUT_OF_MEMORY;
    struct keys *opened = calloc(1, sizeof(*opened));
    snprintf(message->text, sizeof(message->text), "out of memory");
    if (!opened)
        return status;
    int failed = pthread_mutex_init(&opened->lock, NULL);
    assert(failed == 0);
    (void)failed;
    opened->secret = strdup(options->secret);
    opened->previous_secrets = strdup(options->previous_secrets);
    if (!opened->secret || !opened->previous_secrets)
        goto out;
    status = find_file(opened, options);
    if (status != STATUS_OK) {
        snprintf(message->text, sizeof(message->text), "cannot create %s: %s", opened->path,
                 status == STATUS_SYSTEM_ERROR ? strerror(errno) : status_message(status));
        goto out;
    }
    status = load(opened, &opened->set, message);
    if (status != STATUS_OK)
        goto out;
    *keys = opened;
    opened = NULL;
out:
    keys_close(opened);
    return status;
}

static void secret_free(char *secret) {
    if (secret)
        OPENSSL_cleanse(secret, strlen(secret));
    free(secret);
}

void keys_close(struct keys *keys) {
    if (!keys)
        return;
    key_set_unref(keys->set);
    pthread_mutex_destroy(&keys->lock);
    secret_free(keys->secret);
    secret_free(keys->previous_secrets);
    free(keys);
}

bool keys_reload(struct keys *keys, bool always) {
    struct key_set *set;
    struct key_message message = {""};
    struct stat about;
    /* A missing file is being replaced. The next call finds it. */
    if (!always && (!*keys->path || stat(keys->path, &about) != 0))
        return false;
    if (!always) {
        const struct file_mark now = mark_of(&about), known = keys->mark;
        if (now.device == known.device && now.inode == known.inode && now.size == known.size &&
            now.modified.tv_sec == known.modified.tv_sec &&
            now.modified.tv_nsec == known.modified.tv_nsec)
            return false;
        /* The version is remembered even if it cannot be loaded, so that a bad file is logged once.
         */
        keys->mark = now;
    }
    if (load(keys, &set, &message) != STATUS_OK) {
        log_event(LOG_ERROR, "signing_keys.kept", log_str("reason", message.text));
        return false;
    }
    pthread_mutex_lock(&keys->lock);
    struct key_set *old = keys->set;
    keys->set = set;
    pthread_mutex_unlock(&keys->lock);
    key_set_unref(old);
    log_event(LOG_INFO, "signing_keys.loaded", log_int("keys", (int64_t)set->count),
              log_str("path", keys->path));
    return true;
}

struct key_set *keys_current(struct keys *keys) {
    pthread_mutex_lock(&keys->lock);
    struct key_set *set = key_set_ref(keys->set);
    pthread_mutex_unlock(&keys->lock);
    return set;
}

enum keys_source keys_source(const struct keys *keys) {
    return keys->source;
}

const char *keys_path(const struct keys *keys) {
    return keys->path;
}
