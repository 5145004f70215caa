/* The operator key, which permits appends and reads of the log over HTTP.
 * Thread: loaded on the main thread before other threads start; read-only afterwards.
 * Memory: the struct holds everything.
 * Errors: STATUS_INVALID_CONFIG for a key that is not 1 to 256 visible ASCII characters;
 * STATUS_SYSTEM_ERROR with errno set for a failure of the file system.
 * Invariant: the key is compared in constant time and never logged. Only the owner may read its
 * file. */
#ifndef HTTP_ADMIT_OPERATOR_KEY_H
#define HTTP_ADMIT_OPERATOR_KEY_H

#include "base/sha256.h"
#include "wire/http1_request.h"

#define OPERATOR_KEY_BYTES_MAX 256
#define OPERATOR_KEY_PATH_MAX  1024
#define OPERATOR_KEY_FILE      "operator.key"

enum operator_key_source { OPERATOR_KEY_GIVEN, OPERATOR_KEY_READ, OPERATOR_KEY_GENERATED };

struct operator_key {
    enum operator_key_source source;
    char text[OPERATOR_KEY_BYTES_MAX + 1];
    char path[OPERATOR_KEY_PATH_MAX]; /* of the file; empty when the key was given */
    uint8_t digest[SHA256_BYTES];
    bool has_previous;
    uint8_t previous_digest[SHA256_BYTES];
};

/* Takes the given key. If it is empty, reads the file in the folder, or generates that file. */
MUST_CHECK enum status operator_key_load(struct operator_key *key, const char *given,
                                         const char *folder);
/* Reads the file in the folder. STATUS_NOT_FOUND: there is no file. */
MUST_CHECK enum status operator_key_read(struct operator_key *key, const char *folder);
/* A second key that is also accepted, after a load. Empty: none. */
void operator_key_set_previous(struct operator_key *key, struct slice previous);
/* The key in the header of a request, right or wrong; otherwise one of the 401 statuses. */
MUST_CHECK enum status operator_key_given(const struct http1_request *request, struct slice *given);
/* Whether the text is the key or the previous one. */
bool operator_key_is(const struct operator_key *key, struct slice given);
/* The same for the SHA-256 of the text. */
bool operator_key_has(const struct operator_key *key, const uint8_t digest[SHA256_BYTES]);

#endif
