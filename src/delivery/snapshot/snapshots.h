/* The current snapshots: one for each summary topic, shared by all requests within its cadence. All
 * requests that wait at the same time share one build.
 * Any thread; one lock, never held during disk I/O. Only snapshots_tick, snapshots_build and
 * snapshots_close free files, since freeing a large one takes long: the service holds a reference
 * of each snapshot until then.
 * Memory: a request belongs to the caller and must last until it is answered. The files have at
 * most bytes_max in total. That includes old snapshots that are still read; the oldest of them is
 * withdrawn when a new one needs its room, so that a slow client cannot prevent a build.
 * A request fails with the status of the store or of the build. A failed build answers all waiting
 * requests, and the next request starts another. STATUS_LIMIT_REACHED: no room within bytes_max.
 * A snapshot that is handed out has the store's epoch. At the time of its request, the journal
 * after it was complete and not longer than half the replay budget. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOTS_H
#define DELIVERY_SNAPSHOT_SNAPSHOTS_H

#include "authority/writer.h"
#include "delivery/snapshot/snapshot.h"

struct snapshots;

struct snapshots_options {
    const struct policy_table *policies; /* outlive the service */
    const char *folder;
    uint64_t bytes_max;
    /* Must have snapshots_build called soon for the row, on a thread that may block. */
    void *builder;
    enum status (*start)(void *builder, enum policy_row row);
    /* From pin to unpin the journal must keep the rows after seq. Called from any thread. Both
     * NULL: there is no retention. */
    void *keeper;
    void (*pin)(void *keeper, struct slice topic, uint64_t seq);
    void (*unpin)(void *keeper, struct slice topic, uint64_t seq);
    /* Repairs documents that a build finds altered or missing. NULL: the build fails where one is
     * altered, and leaves out those that are missing. */
    struct writer *writer;
};

/* A request for a snapshot. */
struct snapshot_asker {
    struct list_node node; /* among the requests that wait for a build */
    /* Called once, on any thread, possibly inside snapshots_ask. */
    void (*answered)(struct snapshot_asker *asker);
    enum status status;
    struct snapshot *snapshot; /* with STATUS_OK: a reference, which the caller owns */
};

/* The state of one topic's snapshot, for operators. */
struct snapshots_state {
    struct slice topic;
    bool has_current;
    bool is_building;
    uint64_t watermark; /* this and the next three: of the current snapshot */
    uint64_t document_count;
    uint64_t file_bytes;
    uint64_t age_ms;
    uint64_t built_count; /* since the start */
    uint64_t failed_count;
    uint64_t served_count;
};

MUST_CHECK enum status snapshots_open(struct snapshots **snapshots,
                                      const struct snapshots_options *options);
/* When no build is under way and all other references are gone. */
void snapshots_close(struct snapshots *snapshots);

/* now_ms is of a monotonic clock, the same for all callers. The session reads the floor and the
 * head of the journal. */
void snapshots_ask(struct snapshots *snapshots, struct store_session *session, enum policy_row row,
                   uint64_t now_ms, struct snapshot_asker *asker);
/* Called once for each start. */
void snapshots_build(struct snapshots *snapshots, struct store_session *session,
                     enum policy_row row);
/* Releases snapshots that are older than their cadence, and frees files without readers. */
void snapshots_tick(struct snapshots *snapshots, uint64_t now_ms);
/* All builds, also later ones, end soon with STATUS_SHUTTING_DOWN. */
void snapshots_cancel(struct snapshots *snapshots);
/* False for a row without snapshots. */
bool snapshots_read_state(struct snapshots *snapshots, enum policy_row row, uint64_t now_ms,
                          struct snapshots_state *state);
/* Bytes of all files. */
uint64_t snapshots_bytes(struct snapshots *snapshots);

#endif
