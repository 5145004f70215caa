/* Snapshots for loops: the thread that builds them, and a wait for a snapshot that does not block.
 * snapshot_wait_begin and its done belong to the wait's loop; start, cancel and stop to the main
 * thread.
 * Memory: the caller keeps the wait until done, and the loop runs that long.
 * The wait's status is that of the store pool, of the store or of the build.
 * done is called exactly once. Builds have a separate thread and session, because a build holds a
 * read transaction for its whole duration, and no page may wait for it. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_SERVICE_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_SERVICE_H

#include "delivery/snapshot/snapshots.h"
#include "io/call.h"
#include "io/loop.h"
#include "io/store_pool.h"
#include "retention/retention.h"

struct snapshot_build_task {
    struct store_task task;
    struct snapshots *snapshots;
    enum policy_row row;
};

struct snapshot_service {
    struct snapshots *snapshots;
    struct store_pool *builder;    /* of one thread */
    struct store_pool *store_pool; /* of the reads before a wait is answered */
    struct retention *retention;
    pthread_mutex_t pins_lock;
    struct list pins;
    struct snapshot_build_task tasks[POLICY_ROW_COUNT];
    uv_timer_t timer; /* of the control loop */
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
