/* What was revoked: sessions, devices and single tokens, each until no such token can be valid.
 * Any thread: looked up at every connect and by every open connection, written rarely; a reader
 * waits only while somebody writes, and not at all while nothing is revoked.
 * Owns copies of the ids. At most count_max of them; what has expired makes room first, and beyond
 * that adding is STATUS_LIMIT_REACHED: a revocation is never forgotten in silence.
 * Memory only: what must outlive the process is in the store, and added again at start. */
#ifndef AUTH_REVOCATION_H
#define AUTH_REVOCATION_H

#include "auth/principal.h"

/* Stored by number. */
enum revocation_kind {
    REVOCATION_SESSION,
    REVOCATION_DEVICE,
    REVOCATION_TOKEN,
    REVOCATION_KIND_COUNT,
};

#define REVOCATION_ID_BYTES_MAX 640

struct revocations;

MUST_CHECK enum status revocations_open(struct revocations **revocations, size_t count_max);
void revocations_close(struct revocations *revocations);
/* One that is there already keeps the later of the two times. */
MUST_CHECK enum status revocations_add(struct revocations *revocations, enum revocation_kind kind,
                                       struct slice id, uint64_t expires_at_ms, uint64_t now_ms);
/* Whether the principal's session, device or token is among them. */
bool revocations_has(struct revocations *revocations, const struct principal *principal);
size_t revocations_count(struct revocations *revocations);

#endif
