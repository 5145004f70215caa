#include "http/admit/operator_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64url.h"
#include "base/file.h"
#include "base/log.h"

#define RANDOM_BYTES 32

static enum status key_accept(struct operator_key *key, struct slice text,
                              enum operator_key_source source) {
    if (text.size == 0 || text.size > OPERATOR_KEY_BYTES_MAX)
        return STATUS_INVALID_CONFIG;
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] <= ' ' || text.data[i] > '~')
            return STATUS_INVALID_CONFIG;
    memmove(key->text, text.data, text.size);
    key->text[text.size] = '\0';
    key->source = source;
    key->has_previous = false;
    sha256(text.data, text.size, key->digest);
    return STATUS_OK;
}

enum status operator_key_read(struct operator_key *key, const char *folder) {
    /* One byte more than the largest key with its line end, so that a longer key is detected. */
    char text[OPERATOR_KEY_BYTES_MAX + 3];
    int path_size = snprintf(key->path, sizeof(key->path), "%s/" OPERATOR_KEY_FILE, folder);
    if (path_size <= 0 || (size_t)path_size >= sizeof(key->path))
        return STATUS_INVALID_CONFIG;
    int file = open(key->path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM_ERROR;
    struct stat about;
    ssize_t size = read(file, text, sizeof(text));
    if (fstat(file, &about) == 0 && (about.st_mode & 077) != 0)
        log_event(LOG_WARN, "operator_key.readable_by_others", log_str("path", key->path));
    close(file);
    if (size < 0)
        return STATUS_SYSTEM_ERROR;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        size--;
    return key_accept(key, (struct slice){text, (size_t)size}, OPERATOR_KEY_READ);
}

static enum status key_generate(struct operator_key *key) {
    uint8_t secret[RANDOM_BYTES];
    char text[BASE64URL_SIZE(RANDOM_BYTES)];
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        return STATUS_SYSTEM_ERROR;
    size_t size = base64url_encode(secret, sizeof(secret), text);
    enum status status = key_accept(key, (struct slice){text, size}, OPERATOR_KEY_GENERATED);
    if (status != STATUS_OK)
        return status;
    char line[OPERATOR_KEY_BYTES_MAX + 2];
    int line_size = snprintf(line, sizeof(line), "%s\n", key->text);
    /* A truncated key would be valid, so the file is replaced whole. */
    status = file_replace(key->path, (struct slice){line, (size_t)line_size});
    OPENSSL_cleanse(line, sizeof(line));
    return status;
}

enum status operator_key_load(struct operator_key *key, const char *given, const char *folder) {
    key->path[0] = '\0';
    if (given[0] != '\0')
        return key_accept(key, slice_of(given), OPERATOR_KEY_GIVEN);
    enum status status = operator_key_read(key, folder);
    return status == STATUS_NOT_FOUND ? key_generate(key) : status;
}

void operator_key_set_previous(struct operator_key *key, struct slice previous) {
    key->has_previous = previous.size > 0;
    if (key->has_previous)
        sha256(previous.data, previous.size, key->previous_digest);
}

static bool is_bearer(struct slice scheme) {
    static const char wanted[] = "bearer";
    if (scheme.size != sizeof(wanted) - 1)
        return false;
    for (size_t i = 0; i < scheme.size; i++)
        if ((scheme.data[i] | 0x20) != wanted[i])
            return false;
    return true;
}

/* Digests are compared, so that the time reveals neither the key nor its length. */
bool operator_key_has(const struct operator_key *key, const uint8_t digest[SHA256_BYTES]) {
    bool is_current = CRYPTO_memcmp(digest, key->digest, SHA256_BYTES) == 0;
    bool is_previous =
        key->has_previous && CRYPTO_memcmp(digest, key->previous_digest, SHA256_BYTES) == 0;
    return is_current || is_previous;
}

bool operator_key_is(const struct operator_key *key, struct slice given) {
    uint8_t digest[SHA256_BYTES];
    sha256(given.data, given.size, digest);
    return operator_key_has(key, digest);
}

enum status operator_key_given(const struct http1_request *request, struct slice *given) {
    struct slice value;
    if (!http1_header_find(request, SLICE("authorization"), &value) || value.size == 0)
        return STATUS_MISSING_AUTHORIZATION;
    const char *space = memchr(value.data, ' ', value.size);
    size_t scheme_size = space ? (size_t)(space - value.data) : value.size;
    if (!is_bearer((struct slice){value.data, scheme_size}))
        return STATUS_INVALID_AUTHORIZATION_SCHEME;
    *given = slice_from(value, scheme_size);
    while (given->size > 0 && given->data[0] == ' ')
        *given = slice_from(*given, 1);
    return STATUS_OK;
}
