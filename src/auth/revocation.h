/* The set of revoked sessions, devices and tokens. An entry stays until no such token can be
 * valid. The set is in memory only: the store keeps revocations, and the server adds them at start
 * and when another node has revoked.
 * Thread: any. Lookups use no lock and never wait. Writers wait for one another only.
 * Memory: copies of the ids, at most count_max of them. Expired entries are removed to make room.
 * Errors: STATUS_LIMIT_REACHED if the set is still full then.
 * Invariant: a revocation is never dropped silently. */
#ifndef AUTH_REVOCATION_H
#define AUTH_REVOCATION_H

#include "auth/principal.h"

/* The store holds these numbers. */
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
/* An entry that exists keeps the later of the two expiry times. */
MUST_CHECK enum status revocations_add(struct revocations *revocations, enum revocation_kind kind,
                                       struct slice id, uint64_t expires_at_ms, uint64_t now_ms);
/* Other nodes revoke too: the set is fresh for so long after a read of their revocations began. */
void revocations_expire_after(struct revocations *revocations, uint64_t age_ms_max);
/* The set holds all revocations of all nodes at that time, as of clock_boot_ms. */
void revocations_note_read(struct revocations *revocations, uint64_t boot_ms);
/* False: a principal that is not in the set may be revoked, and nothing may be delivered to it. A
 * set that never expires is always fresh, and so is NULL. */
bool revocations_is_fresh(const struct revocations *revocations);
/* Whether the set holds the principal's session, device or token. */
bool revocations_has(struct revocations *revocations, const struct principal *principal);

#endif
