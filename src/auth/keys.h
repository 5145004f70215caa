/* The current keys: read from the place that the settings name, and read again when it changes.
 * Thread: the main thread's for keys_open, keys_reload and keys_close; any for keys_current.
 * Memory: one set. Each caller gets its own reference, so a reload does not disturb a running
 * check.
 * Errors: STATUS_INVALID_CONFIG for unusable keys, STATUS_SYSTEM_ERROR from the file system; the
 * message has the reason. A reload that fails is logged and keeps the old set.
 * Invariant: from keys_open to keys_close there is always a current set. */
#ifndef AUTH_KEYS_H
#define AUTH_KEYS_H

#include "auth/key_set.h"

#define KEYS_SECRET_ID "sync-auth-v1"
#define KEYS_FILE      "sync-signing.jwk"
#define KEYS_PATH_MAX  1024

/* A secret signs. Keys of the file verify, and sign when there is no secret. With neither, the key
 * in the folder is used, and generated if it is missing. Previous secrets, comma-separated, only
 * verify. Absent texts are "". */
struct keys_options {
    const char *jwks_file;
    const char *secret;
    const char *folder;
    const char *previous_secrets;
};

enum keys_source { KEYS_GIVEN, KEYS_READ, KEYS_GENERATED };

struct keys;

MUST_CHECK enum status keys_open(struct keys **keys, const struct keys_options *options,
                                 struct key_message *message);
void keys_close(struct keys *keys);
/* Reads the file again: always, or only if it has changed. True: there is a new set. */
bool keys_reload(struct keys *keys, bool always);

/* When generated keys change. The new key signs after a delay, in which every node reads it. The
 * old keys verify until the last token that they signed has ended, or end at once. */
struct keys_rotation {
    uint64_t now_s;
    uint64_t delay_s;
    bool ends_old;
};

/* Any thread: appends the JWKS of a file of generated keys with a new key before the old ones. id
 * becomes the new key's. STATUS_INVALID_CONFIG: the text is no JWKS. */
MUST_CHECK enum status keys_rotate(struct slice text, const struct keys_rotation *rotation,
                                   struct buffer *out, char id[KEY_ID_BYTES_MAX + 1]);

/* Any thread. The caller owns the reference. */
struct key_set *keys_current(struct keys *keys);
/* The source at start. */
enum keys_source keys_source(const struct keys *keys);
/* The file of the keys; empty if there is only a secret. */
const char *keys_path(const struct keys *keys);

#endif
