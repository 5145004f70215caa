/* Puts hooks before some calls of a store's engine: counts them, and makes them fail on demand.
 * Set before the writer starts; the counters are read when no group is with the writer. */
#ifndef HOOKED_STORE_H
#define HOOKED_STORE_H

#include "store/store_engine.h"

static struct hooked_store {
    const struct store_engine *engine; /* the real one */
    struct store_engine hooked;
    _Atomic(enum status) commit_answer; /* STATUS_OK: the real one's */
    _Atomic(enum status) prefetch_answer;
    _Atomic uint64_t commits;
    _Atomic uint64_t prefetches;
    _Atomic uint64_t other_reads; /* reads one at a time */
} hooks;

static inline enum status hooked_session_open(struct store *store, enum store_mode mode,
                                              struct store_session **session) {
    enum status status = hooks.engine->session_open(store, mode, session);
    if (status == STATUS_OK && mode == STORE_WRITE)
        (*session)->engine = &hooks.hooked;
    return status;
}

static inline enum status hooked_commit(struct store_session *session,
                                        const struct store_batch *batch) {
    hooks.commits++;
    enum status answer = hooks.commit_answer;
    return answer == STATUS_OK ? hooks.engine->commit(session, batch) : answer;
}

static inline enum status hooked_prefetch(struct store_session *session,
                                          struct store_prefetch *prefetch) {
    hooks.prefetches++;
    enum status answer = hooks.prefetch_answer;
    return answer == STATUS_OK ? hooks.engine->prefetch(session, prefetch) : answer;
}

static inline enum status hooked_read_state(struct store_session *session,
                                            struct store_state *state) {
    hooks.other_reads++;
    return hooks.engine->read_state(session, state);
}

static inline enum status hooked_load(struct store_session *session,
                                      const struct store_query *query, struct arena *arena,
                                      void *row) {
    hooks.other_reads++;
    return hooks.engine->load(session, query, arena, row);
}

static inline enum status hooked_walk(struct store_session *session,
                                      const struct store_query *query, void *user,
                                      store_row_cb *callback) {
    hooks.other_reads++;
    return hooks.engine->walk(session, query, user, callback);
}

static inline void hook_store(struct store *store) {
    hooks.engine = store->engine;
    hooks.hooked = *store->engine;
    hooks.hooked.session_open = hooked_session_open;
    hooks.hooked.commit = hooked_commit;
    hooks.hooked.prefetch = hooked_prefetch;
    hooks.hooked.read_state = hooked_read_state;
    hooks.hooked.load = hooked_load;
    hooks.hooked.walk = hooked_walk;
    hooks.commit_answer = hooks.prefetch_answer = STATUS_OK;
    hooks.commits = hooks.prefetches = hooks.other_reads = 0;
    store->engine = &hooks.hooked;
}

#endif
