/* The event ids that clients supplied last, so that most repeated ids and most new ids are
 * recognised without asking the store. Ids that the server minted are not among them.
 * Owned by the writer. Memory: a fixed number of ids, taken on first use.
 * STATUS_OUT_OF_MEMORY from recent_ids_reset only; remembering cannot fail.
 * The set holds every supplied id of the log that is above the floor. So an id above the floor that
 * is not in the set, and that the server cannot have minted, is new. */
#ifndef AUTHORITY_RECENT_IDS_H
#define AUTHORITY_RECENT_IDS_H

#include "base/limits.h"
#include "base/uuid7.h"
#include "spec/codes.h"
#include "store/id_mark.h"

struct recent_id {
    struct uuid id;
    uint64_t log_id; /* 0: none */
};

struct recent_ids {
    struct recent_id *ring; /* by age: the next one to be dropped is at index next */
    uint32_t *slots;        /* open addressing, by the id's hash: index in ring + 1, and a tag */
    size_t next;
    struct uuid floor;
    struct id_mark mark;
    struct uuid marked_max; /* no id that was added and may be minted is above it */
    uint64_t secret;
};

enum recent_answer { RECENT_UNKNOWN, RECENT_KNOWN, RECENT_NEW };

/* Drops all ids. No id of the log is above the floor. */
MUST_CHECK enum status recent_ids_reset(struct recent_ids *recent, const struct uuid *floor,
                                        const struct id_mark *mark);
void recent_ids_release(struct recent_ids *recent);
/* log_id > 0. An id that is in it keeps the event it had. */
void recent_ids_add(struct recent_ids *recent, const struct uuid *id, uint64_t log_id);
/* log_id is set when RECENT_KNOWN. */
enum recent_answer recent_ids_find(const struct recent_ids *recent, const struct uuid *id,
                                   uint64_t *log_id);
/* A client supplied the id that the server has just minted. */
bool recent_ids_has_minted(const struct recent_ids *recent, const struct uuid *id);

#endif
