/* Revocations of other nodes: reads them, ends the connections of revoked principals, and then lets
 * this node's row confirm them.
 * revoked_beat belongs to the writer's thread; the sweep runs on the loops.
 * Memory: one sweep at a time.
 * Errors: after a failure the revocations are not fresh for longer, and the next beat tries again.
 * A serial is confirmed only when nothing is delivered to its principals any more. */
#ifndef SERVER_REVOKED_H
#define SERVER_REVOKED_H

#include <pthread.h>

#include "authority/writer.h"
#include "http/sweep.h"

struct revoked {
    struct http *http;
    struct writer *_Atomic writer; /* set before the loops start */
    uint64_t read_serial;          /* of the last revocation in memory; of the writer's thread */
    uint64_t sweep_serial;         /* of the sweep under way */
    uint64_t sweep_boot_ms;
    pthread_mutex_t lock;   /* held while a sweep is posted */
    atomic_bool is_serving; /* all loops run */
    atomic_bool is_sweeping;
    _Atomic uint64_t swept_serial;
    struct sweep sweep;
};

/* Before the first client: loads all revocations of the store. */
MUST_CHECK enum status revoked_load(struct revoked *revoked, struct http *http,
                                    struct store *store);
/* All loops run: they can be swept from now on. */
void revoked_serve(struct revoked *revoked);
/* The loops have ended: after this call no sweep is posted to them. */
void revoked_stop(struct revoked *revoked);
/* progress was read after boot_ms, by clock_boot_ms, with that session. */
void revoked_beat(struct revoked *revoked, struct store_session *session,
                  const struct store_progress *progress, uint64_t boot_ms);
/* The last revocation that is in force on this node. */
uint64_t revoked_seen(const struct revoked *revoked);

#endif
