/* Snapshots for loops: the thread that builds them, and waiting for one without blocking.
 * snapshot_wait_begin and its done belong to the wait's loop; start, cancel and stop to the main
 * thread. A wait's memory stays its owner's, who keeps it until done; the loop stays that long.
 * What readers, store or builder refuse is the wait's status.
 * done is called exactly once. Builds have a thread and a session of their own: one holds a read
 * transaction for as long as it takes, and nobody's page may wait behind it. */
#ifndef DELIVERY_SNAPSHOT_SNAPSHOT_SERVICE_H
#define DELIVERY_SNAPSHOT_SNAPSHOT_SERVICE_H

#include "delivery/snapshot/snapshots.h"
#include "io/call.h"
#include "io/loop.h"
#include "io/store_pool.h"
#include "retention/retention.h"

struct snapshot_pin;

struct snapshot_build_task {
    struct store_task task;
    struct snapshots *snapshots;
    enum policy_row row;
};

struct snapshot_service {
    struct snapshots *snapshots;
    struct store_pool *builder;    /* of one thread */
    struct store_pool *store_pool; /* which asks */
    struct retention *retention;
    pthread_mutex_t pins_lock;
    struct snapshot_pin *pins;
    struct snapshot_build_task tasks[POLICY_ROW_COUNT];
    uv_timer_t timer; /* of the control loop */
};

struct snapshot_service_options {
    const struct policy_table *policies; /* outlives the service, as all of these */
    const char *folder;
    uint64_t bytes_max;
    struct store *store;
    struct store_pool *store_pool;
    struct retention *retention;
};

MUST_CHECK enum status snapshot_service_start(struct snapshot_service *service,
                                              const struct snapshot_service_options *options);
/* Builds under way end soon: for a server that ends. */
void snapshot_service_cancel(struct snapshot_service *service);
/* After the loops. */
void snapshot_service_stop(struct snapshot_service *service);
/* Old snapshots go while nobody asks. The timer is closed with the control loop's others. */
void snapshot_service_timer(struct snapshot_service *service, uv_loop_t *control);

struct snapshot_wait {
    struct store_task task;
    struct call call;
    struct snapshot_asker asker;
    struct snapshots *snapshots;
    enum policy_row row;
    uint64_t asked_at_ms;
    void (*done)(struct snapshot_wait *wait);
    /* Out: with STATUS_OK a reference that is the wait's owner's. */
    enum status status;
    struct snapshot *snapshot;
};

/* Sets everything but done, which always runs later. */
void snapshot_wait_begin(struct snapshot_wait *wait, struct snapshot_service *service,
                         struct io_loop *loop, enum policy_row row);

#endif
