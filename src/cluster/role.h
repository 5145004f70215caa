/* The writer role of this node, as one state. role_set alone changes it.
 *
 *   LOST ──▶ ELSEWHERE ──▶ BEHIND ──▶ HELD     An attempt to take the role goes to ELSEWHERE or
 *    ▲ └───────────────────▶ │         │       BEHIND. A pass over the log goes from BEHIND to
 *    └──────┴────────────────┴─────────┘       HELD. A lost session leads back to LOST.
 *
 *   state       set by                    appends and jobs           beats     forwarding
 *   LOST        a commit, a ping or an    503 writer_lost            follower  if others live
 *               attempt that failed
 *   ELSEWHERE   an attempt: another node  503 not_writer             follower  always; it waits for
 *               has the role or may                                            the writer's row
 *   BEHIND      an attempt: taken         appends wait for the pass  writer    never
 *   HELD        a pass; or a start that   accepted                   writer    never
 *               found the role free
 *
 * An append that meets LOST or ELSEWHERE first makes an attempt, and the writer makes one four
 * times a second. Jobs that any node may run do so in every state. A store that nodes cannot share
 * begins with HELD.
 * The states are about the node. The session of the store knows only the term that it has taken,
 * and answers an attempt by a status (role_answered). So the store needs none of this.
 * Thread: the writer's; role_get from any thread.
 * Invariant: a node appends in HELD only, so never before it has announced what others wrote.
 */
#ifndef CLUSTER_ROLE_H
#define CLUSTER_ROLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "spec/codes.h"

enum writer_role {
    WRITER_ROLE_LOST,
    WRITER_ROLE_ELSEWHERE,
    WRITER_ROLE_BEHIND,
    WRITER_ROLE_HELD,
};

struct role {
    _Atomic(enum writer_role) state;
    bool is_shared;   /* several nodes can share the store */
    uint64_t changes; /* how often the node became the writer, or ceased to be it */
};

void role_init(struct role *role, enum writer_role state, bool is_shared);
/* Asserts that the change is legal. Shows it in the metrics, and makes a beat due. */
void role_set(struct role *role, enum writer_role state);

static inline enum writer_role role_get(const struct role *role) {
    return atomic_load(&role->state);
}

/* The node is the writer. */
static inline bool role_is_writer(enum writer_role state) {
    return state == WRITER_ROLE_BEHIND || state == WRITER_ROLE_HELD;
}

/* The state after store_take_role has answered. */
enum writer_role role_answered(enum status status);
/* The status of appends and jobs on a node that is not the writer. */
enum status role_refusal(enum writer_role state);

#endif
