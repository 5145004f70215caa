/* The replay budget and the lag of a cursor, as one reader sees them. On a shared topic only the
 * frames that the reader may see count. On a summary topic a cursor whose next frame is younger
 * than two cadences is never over the budget, so that a client can always follow the snapshot that
 * it fetched.
 * Thread: that of its store session.
 * Memory: the owners of some entities.
 * Errors: the store's.
 * Invariant: if the owners of all rows are known, no row is read. Otherwise at most
 * REPLAY_COUNT_ROWS_MAX are examined, and only for a cursor that would be over the budget; beyond
 * that the cursor stays stale. A lag is counted within REPLAY_LAG_ROWS_MAX, because a client may
 * ask for it with each poll. One call examines at most STORE_TASK_ROWS: while has_more, it must be
 * called again. */
#ifndef DELIVERY_REPLAY_BUDGET_H
#define DELIVERY_REPLAY_BUDGET_H

#include "auth/grant.h"
#include "hub/owner_map.h"
#include "store/store.h"
#include "topic/continuity.h"
#include "topic/policy.h"

struct replay_reader {
    const struct policy *policy; /* the topic's */
    const struct principal *principal;
    enum grant_view view;
    uint64_t now_ms;
    uint64_t rows_max;           /* examined to judge a cursor */
    struct owner_map *owner_map; /* for a shared topic; NULL: every frame is looked up */
};

/* A count of several calls: zeroed before the first. */
struct replay_progress {
    bool is_begun;
    bool has_more;      /* the result is not known yet */
    bool is_short;      /* rows_max rows were examined, and there are more */
    uint64_t rows;      /* examined; a bootstrap may examine a row twice */
    uint64_t after_seq; /* the last row examined */
    uint64_t own;       /* frames of the reader */
    uint64_t skip;      /* frames of the reader before the one of found_seq */
    uint64_t found_seq; /* 0: none */
    uint64_t from_seq;  /* the first row of a bootstrap, and the last one */
    uint64_t until_seq;
};

/* Moves the start of a bootstrap of the topic back, so that frames of other owners do not use up
 * the budget. At most REPLAY_BOOTSTRAP_ROWS_MAX rows before the head are examined. */
MUST_CHECK enum status replay_budget_bootstrap(struct store_session *session,
                                               const struct store_topic *topic,
                                               const struct replay_reader *reader,
                                               struct continuity_bootstrap *bootstrap,
                                               struct replay_progress *progress);

struct replay_lag {
    uint64_t frames;
    bool is_minimum; /* not all rows were examined */
};

/* Lifts the reason replay_budget_exceeded of a plan that has no other, where it does not apply to
 * the reader. replay_lag becomes the number of frames of the reader, if they were counted. */
MUST_CHECK enum status replay_budget_judge(struct store_session *session,
                                           const struct store_topic *topic,
                                           const struct replay_reader *reader,
                                           struct continuity *plan,
                                           struct replay_progress *progress);
/* Counts the frames behind after_seq that the reader may see. */
MUST_CHECK enum status replay_lag_count(struct store_session *session, struct slice topic,
                                        const struct replay_reader *reader, uint64_t after_seq,
                                        struct replay_progress *progress, struct replay_lag *lag);

#endif
