/* Ids of events: the writer mints strictly rising UUIDv7 that carry the store's mark, and
 * remembers the ids that clients supplied last, so that it recognises most repeated ids and most
 * new ids without asking the store.
 * Thread: the writer's.
 * Memory: a fixed number of supplied ids, allocated on first use; none for minting.
 * Errors: STATUS_OUT_OF_MEMORY from recent_ids_reset only. id_minter_init asks the system for
 * random bytes: STATUS_SYSTEM_ERROR; STATUS_LIMIT_REACHED if the last id leaves no room above it.
 * Invariant: a minted id is greater than the one before and than the last id of the log, for any
 * clock. The set holds every supplied id of the log that is above the floor. So an id above the
 * floor that is not in the set, and that the server cannot have minted, is new. */
#ifndef AUTHORITY_EVENT_IDS_H
#define AUTHORITY_EVENT_IDS_H

#include "base/limits.h"
#include "base/uuid7.h"
#include "spec/codes.h"
#include "store/id_mark.h"

struct id_minter {
    struct uuid7_generator generator;
    struct id_mark mark;
    struct uuid last;
};

/* last: the last id of the log; NULL: the log is empty. */
MUST_CHECK enum status id_minter_init(struct id_minter *minter, const struct id_mark *mark,
                                      const struct uuid *last);
struct uuid id_minter_next(struct id_minter *minter, uint64_t now_ms);

struct recent_id {
    struct uuid id;
    uint64_t log_id; /* 0: none */
};

struct recent_ids {
    struct recent_id *ring; /* the ids by age: the oldest one is at index next */
    uint32_t *slots;        /* hash table, open addressing: index in ring + 1, and a tag */
    size_t next;
    struct uuid floor;
    struct id_mark mark;
    struct uuid marked_max; /* no id that was added and may be minted is above it */
    uint64_t secret;
};

enum recent_answer { RECENT_UNKNOWN, RECENT_KNOWN, RECENT_NEW };

/* Drops all ids. The log has no id above the floor. */
MUST_CHECK enum status recent_ids_reset(struct recent_ids *recent, const struct uuid *floor,
                                        const struct id_mark *mark);
void recent_ids_release(struct recent_ids *recent);
/* log_id > 0. An id that is known keeps its event. */
void recent_ids_add(struct recent_ids *recent, const struct uuid *id, uint64_t log_id);
/* log_id is set only if the answer is RECENT_KNOWN. */
enum recent_answer recent_ids_find(const struct recent_ids *recent, const struct uuid *id,
                                   uint64_t *log_id);
/* A client supplied the id that the server has just minted. */
bool recent_ids_has_minted(const struct recent_ids *recent, const struct uuid *id);

#endif
