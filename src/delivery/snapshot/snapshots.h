/* The snapshots there are: one for each summary topic, shared by all who ask within its cadence,
 * built once for all who ask at the same time.
 * Any thread; one lock, never held while a disk is waited for. An asker's memory stays its own and
 * must last until it is answered. Files of at most bytes_max in all, old ones that somebody still
 * reads included, which are withdrawn where a new one needs their room, the oldest first: nobody
 * who reads slowly keeps others from beginning. The service holds the last reference of each, so
 * that nobody but snapshots_tick, snapshots_build and snapshots_close ever waits for a large file
 * to be freed.
 * Asking fails with what reading the store or building fails with; all who wait for a build that
 * fails are told, and who asks later tries anew. STATUS_LIMIT_REACHED: no room within bytes_max.
 * A snapshot that is handed out is of the store's epoch; the journal behind it was whole, and no
 * longer than half the replay budget, when its asker came. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOTS_H
#define DELIVERY_SNAPSHOT_SNAPSHOTS_H

#include "delivery/snapshot/snapshot.h"

struct snapshots;

struct snapshots_options {
    const struct policy_table *policies; /* outlive the service */
    const char *folder;
    uint64_t bytes_max;
    /* Has snapshots_build called for the row, soon, on a thread that nobody waits for. */
    void *builder;
    enum status (*start)(void *builder, enum policy_row row);
    /* From pin to unpin the journal must keep what comes behind seq. Called from any thread; both
     * NULL: nobody prunes. */
    void *keeper;
    void (*pin)(void *keeper, struct slice topic, uint64_t seq);
    void (*unpin)(void *keeper, struct slice topic, uint64_t seq);
};

/* Somebody who wants a snapshot. */
struct snapshot_asker {
    struct snapshot_asker *next;
    /* Called once, on whatever thread the answer is found on, maybe inside snapshots_ask. */
    void (*answered)(struct snapshot_asker *asker);
    enum status status;
    struct snapshot *snapshot; /* with STATUS_OK: a reference that is now the asker's */
};

/* How it stands with a topic, for people. */
struct snapshots_state {
    struct slice topic;
    bool has_current;
    bool is_building;
    uint64_t watermark; /* these four of the current one */
    uint64_t document_count;
    uint64_t file_bytes;
    uint64_t age_ms;
    uint64_t built_count; /* since the start */
    uint64_t failed_count;
    uint64_t served_count;
};

MUST_CHECK enum status snapshots_open(struct snapshots **snapshots,
                                      const struct snapshots_options *options);
/* No build is under way, and nobody else holds a snapshot. */
void snapshots_close(struct snapshots *snapshots);

/* now_ms is of a monotonic clock, the same for all callers. The session is for a look at the
 * journal's floor. */
void snapshots_ask(struct snapshots *snapshots, struct store_session *session, enum policy_row row,
                   uint64_t now_ms, struct snapshot_asker *asker);
/* Once for each start. */
void snapshots_build(struct snapshots *snapshots, struct store_session *session,
                     enum policy_row row);
/* Lets go of what is older than its cadence, and of files that nobody reads any more. */
void snapshots_tick(struct snapshots *snapshots, uint64_t now_ms);
/* Builds end soon with STATUS_SHUTTING_DOWN, for good. */
void snapshots_cancel(struct snapshots *snapshots);
/* False for a row without snapshots. */
bool snapshots_look(struct snapshots *snapshots, enum policy_row row, uint64_t now_ms,
                    struct snapshots_state *state);
/* Bytes of all files there are. */
uint64_t snapshots_bytes(struct snapshots *snapshots);

#endif
