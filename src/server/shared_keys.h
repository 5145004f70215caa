/* Keys that the server generates, kept in the store as well as in files of the data folder, and the
 * record of changed signing keys in the audit log.
 * Thread: main, at start or during a move; shared_keys_renew belongs to the thread of its session.
 * The writer's thread frees a record.
 * Memory: one file at a time; copies of keys are cleared. One record until the writer has answered.
 * Errors: STATUS_SYSTEM_ERROR with errno if a file cannot be read or written; those of the store. A
 * record that fails is logged.
 * Invariant: the key in the store wins, so that every server of one database uses the same keys.
 * The same keys are recorded once, however often and on however many nodes they are read. */
#ifndef SERVER_SHARED_KEYS_H
#define SERVER_SHARED_KEYS_H

#include "auth/keys.h"
#include "store/store.h"

struct gate;
struct writer;

/* A node reads rotated keys after this time, and a new key signs after the delay. A node that is
 * cut off for longer refuses everything until it has read the revocations, and reads the keys with
 * them. */
#define SHARED_KEYS_RENEW_MS 10000
#define SHARED_KEYS_DELAY_S  30

/* A store, and the folder of its keys if the store does not keep them itself. */
struct key_place {
    struct store *store;
    const char *folder;
};

/* Writes the files of the keys that the store has. Before the keys are loaded. Until the caller
 * closes lock, no other server passes this call, so that one server generates the keys of all. On
 * failure lock may be open too. It stays NULL if the store keeps no keys. */
MUST_CHECK enum status shared_keys_fetch(struct store *store, const char *folder,
                                         struct store_session **lock);
/* Keeps the keys of the files in the store. After they were loaded or generated. */
MUST_CHECK enum status shared_keys_keep(struct store_session *lock, const char *folder);
/* On a shared store: writes the file of the signing keys if the store has other ones, because they
 * were rotated. */
MUST_CHECK enum status shared_keys_renew(struct store_session *side, const char *folder);
/* Rotates the generated signing keys, in the store that keeps them or else in their file. id
 * becomes that of the new key. STATUS_NOT_FOUND: none was generated. STATUS_INVALID_CONFIG: their
 * file is damaged. */
MUST_CHECK enum status shared_keys_rotate(const struct key_place *place,
                                          const struct keys_rotation *rotation,
                                          char id[KEY_ID_BYTES_MAX + 1]);
/* Copies the generated keys of one store for another. */
MUST_CHECK enum status shared_keys_copy(const struct key_place *source,
                                        const struct key_place *target);

/* The gate has read its keys. Records them (operator.signing_keys_changed) if they are other ones
 * than those of the digest, which becomes that of these keys. Without a writer, at start, nothing
 * is recorded; nor on a node that is not the writer, because each node reads the keys. */
void keys_record(struct writer *writer, const struct gate *gate, uint8_t digest[SHA256_BYTES]);

#endif
