/* The current keys: read from the place that the settings name, and read again when it changes.
 * keys_open, keys_reload and keys_close belong to the main thread; keys_current to any.
 * Holds one set. Each caller gets its own reference, so a reload does not disturb a running check.
 * STATUS_INVALID_CONFIG for unusable keys, STATUS_SYSTEM_ERROR from the file system; the message
 * has the reason. A reload that fails is logged and keeps the old set. From keys_open to keys_close
 * there is always a current set. */
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

/* Any thread. The caller owns the reference. */
struct key_set *keys_current(struct keys *keys);
/* The source at start. */
enum keys_source keys_source(const struct keys *keys);
/* The file of the keys; empty where there is only a secret. */
const char *keys_path(const struct keys *keys);

#endif
