/* The keys in force: read from where the settings say, and again when that changes.
 * keys_open, keys_reload and keys_close belong to the main thread; keys_current to any.
 * Holds one set; whoever asks gets a reference of its own, so a reload pulls nothing from under a
 * check that is under way.
 * What cannot be used is STATUS_INVALID_CONFIG, what the file system refuses STATUS_SYSTEM_ERROR;
 * the message says it. A reload that fails is logged and changes nothing.
 * There is always a set in force, from keys_open to keys_close. */
#ifndef AUTH_KEYS_H
#define AUTH_KEYS_H

#include "auth/key_set.h"

#define KEYS_SECRET_ID "sync-auth-v1"
#define KEYS_FILE      "sync-signing.jwk"
#define KEYS_PATH_MAX  1024

/* A given secret signs; keys of the file check beside it, and sign where there is no secret. With
 * neither, the key of the folder is used, and made when there is none. Absent texts are "". */
struct keys_options {
    const char *jwks_file;
    const char *secret;
    const char *folder;
};

enum keys_source { KEYS_GIVEN, KEYS_READ, KEYS_GENERATED };

struct keys;

MUST_CHECK enum status keys_open(struct keys **keys, const struct keys_options *options,
                                 struct key_message *message);
void keys_close(struct keys *keys);
/* Reads the file again: always, or only if it is not as it was. True: another set is in force. */
bool keys_reload(struct keys *keys, bool always);

/* Any thread. A reference for the caller. */
struct key_set *keys_current(struct keys *keys);
/* Where they came from at the start. */
enum keys_source keys_source(const struct keys *keys);
/* The file they come from; empty where a secret alone was given. */
const char *keys_path(const struct keys *keys);

#endif
