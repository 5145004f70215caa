/* Announces commits that the writer did not see succeed: the answer was lost, or another node
 * wrote. The writer's thread, with its session, while no batch is being formed. Rows live until the
 * announcement returns; nothing is kept. The statuses of the store's walks; what was announced
 * before a failure stays announced. Events come in the order of the log, then the heads of all
 * topics with journal rows. */
#ifndef AUTHORITY_MISSED_H
#define AUTHORITY_MISSED_H

#include "store/store.h"

struct missed {
    void *user;
    void (*announce)(void *user, const struct store_batch *batch,
                     const struct store_entity *states);
};

MUST_CHECK enum status missed_announce(struct store_session *session, uint64_t after_log_id,
                                       struct missed *missed);

#endif
