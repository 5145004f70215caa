/* The current snapshots: one for each summary topic, shared by all requests within its cadence. All
 * requests that wait at the same time share one build. The service builds them on a thread of its
 * own, with its own session: a build holds a read transaction, and no page may wait for it.
 * Thread: any; one lock, never held during disk I/O. Only snapshots_tick, snapshots_build and
 * snapshots_close free files, since freeing a large one takes long: the service holds a reference
 * of each snapshot until then. snapshot_wait_begin and its done belong to the wait's loop; start,
 * cancel and stop of the service to the main thread.
 * Memory: a request or a wait belongs to the caller and must last until it is answered. The files
 * have at most bytes_max in total. That includes old snapshots that are still read; the oldest of
 * them is withdrawn when a new one needs its room, so that a slow client cannot prevent a build.
 * Errors: a request fails with the status of the store, of its pool or of the build. A failed build
 * answers all waiting requests, and the next request starts another. STATUS_LIMIT_REACHED: no room
 * within bytes_max.
 * Invariant: a snapshot that is handed out has the store's epoch. At the time of its request, the
 * journal after it was complete and not longer than half the replay budget. A wait is answered
 * once. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOTS_H
#define DELIVERY_SNAPSHOT_SNAPSHOTS_H

#include "authority/call.h"
#include "authority/writer.h"
#include "delivery/snapshot/snapshot.h"
#include "net/loop.h"
#include "retention/retention.h"
#include "store/store_pool.h"

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

/* ---- the service ---- */

struct snapshot_build_task {
    struct store_task task;
    struct snapshots *snapshots;
    enum policy_row row;
};

struct snapshot_service {
    struct snapshots *snapshots;
    struct store_pool *builder;    /* a pool of one thread */
    struct store_pool *store_pool; /* reads before a wait is answered */
    struct retention *retention;
    pthread_mutex_t pins_lock;
    struct list pins;
    struct snapshot_build_task tasks[POLICY_ROW_COUNT];
    uv_timer_t timer; /* on the control loop */
};

struct snapshot_service_options {
    const struct policy_table *policies; /* outlives the service, as do all of these */
    const char *folder;
    uint64_t bytes_max;
    struct store *store;
    struct store_pool *store_pool;
    struct retention *retention;
    struct writer *writer; /* as in struct snapshots_options */
};

MUST_CHECK enum status snapshot_service_start(struct snapshot_service *service,
                                              const struct snapshot_service_options *options);
/* Builds under way end soon, for a shutdown. */
void snapshot_service_cancel(struct snapshot_service *service);
/* After the loops. */
void snapshot_service_stop(struct snapshot_service *service);
/* Starts the timer that releases old snapshots. It is closed with the control loop's other handles.
 */
void snapshot_service_timer(struct snapshot_service *service, uv_loop_t *control);

struct snapshot_wait {
    struct store_task task;
    struct call call;
    struct snapshot_asker asker;
    struct snapshots *snapshots;
    enum policy_row row;
    uint64_t asked_at_ms;
    void (*done)(struct snapshot_wait *wait);
    /* Out: with STATUS_OK a reference, which the caller owns. */
    enum status status;
    struct snapshot *snapshot;
};

/* Sets all members but done. done never runs inside this call. client: the principal that waits. */
void snapshot_wait_begin(struct snapshot_wait *wait, struct snapshot_service *service,
                         struct io_loop *loop, enum policy_row row,
                         const struct store_client *client);

#endif
