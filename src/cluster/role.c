#include "cluster/role.h"

#include <assert.h>

#include "base/metrics.h"

#define TO(state) (1u << WRITER_ROLE_##state)

/* An attempt may end as the one before. */
static const unsigned edges[] = {
    [WRITER_ROLE_LOST] = TO(LOST) | TO(ELSEWHERE) | TO(BEHIND),
    [WRITER_ROLE_ELSEWHERE] = TO(LOST) | TO(ELSEWHERE) | TO(BEHIND),
    [WRITER_ROLE_BEHIND] = TO(LOST) | TO(HELD),
    [WRITER_ROLE_HELD] = TO(LOST),
};

/* A store of one node has no series about nodes. */
static void show(const struct role *role, enum writer_role state) {
    if (role->is_shared)
        metrics_set(METRIC_CLUSTER_WRITER, METRIC_PLAIN, role_is_writer(state));
}

void role_init(struct role *role, enum writer_role state, bool is_shared) {
    atomic_init(&role->state, state);
    role->is_shared = is_shared;
    role->changes = 0;
    show(role, state);
}

void role_set(struct role *role, enum writer_role state) {
    enum writer_role before = role_get(role);
    assert(edges[before] & 1u << state);
    atomic_store(&role->state, state);
    if (role_is_writer(before) == role_is_writer(state))
        return;
    role->changes++;
    show(role, state);
}

enum writer_role role_answered(enum status status) {
    if (status == STATUS_OK)
        return WRITER_ROLE_BEHIND;
    return status == STATUS_NOT_WRITER ? WRITER_ROLE_ELSEWHERE : WRITER_ROLE_LOST;
}

enum status role_refusal(enum writer_role state) {
    assert(!role_is_writer(state));
    return state == WRITER_ROLE_ELSEWHERE ? STATUS_NOT_WRITER : STATUS_WRITER_LOST;
}
