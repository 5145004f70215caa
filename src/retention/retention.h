/* The retention job: removes frames from the journal that are older than their class allows, on a
 * timer and on demand. It never touches the authority log and the documents. The keeper thread
 * reads. The writer prunes one bounded batch at a time, and accepts all waiting appends between two
 * batches.
 * Thread: any for retention_run_post, retention_end_post, retention_stats and the pins; the main
 * thread for start and stop.
 * Memory: eight bytes a topic, one batch, and a report while it is referenced.
 * Errors: a pass that fails, for example on a full disk, is logged once and counted. The next pass
 * tries again.
 * Invariant: one pass runs at a time. Requests during a pass share the next one. */
#ifndef RETENTION_RETENTION_H
#define RETENTION_RETENTION_H

#include <stdint.h>

#include "authority/writer.h"
#include "base/list.h"
#include "base/slice.h"
#include "retention/report.h"

/* A pin: a position that a reader still needs, such as a snapshot that promises the frames after
 * it. The caller embeds it in an object of its own. */
struct retention_pin {
    struct slice topic;    /* lives as long as the pin */
    uint64_t seq;          /* later frames are kept */
    struct list_node node; /* link in the list of the job */
};

struct retention;

struct retention_options {
    struct store *store;
    struct writer *writer;
    const struct policy_table *policies;
    uint64_t interval_ms;
    /* On the writer's thread, after frames below oldest_seq were pruned. May be NULL. */
    void (*on_pruned)(void *user, struct slice topic, uint64_t oldest_seq);
    void *on_pruned_user;
    /* A clock for tests. NULL: the system clock. */
    clock_read_cb *clock_read;
    void *clock_user;
};

/* A run on demand. The caller keeps it until done is called. */
struct retention_request {
    /* Both run on the keeper thread. progress may be NULL; it is called about once a second. */
    void (*progress)(struct retention_request *request);
    void (*done)(struct retention_request *request);
    enum status status;
    struct retention_report *report; /* set if STATUS_OK; the caller owns the reference */
    struct list_node node;           /* link in the keeper's list */
};

MUST_CHECK enum status retention_start(struct retention **retention,
                                       const struct retention_options *options);
/* Inspects every topic. STATUS_SHUTTING_DOWN after retention_end_post. */
MUST_CHECK enum status retention_run_post(struct retention *retention,
                                          struct retention_request *request);
/* The current pass ends after its batch. Requests are answered with STATUS_SHUTTING_DOWN. */
void retention_end_post(struct retention *retention);
/* Call it before the writer stops. */
void retention_stop(struct retention *retention);

/* Keeps the floor of the topic at seq + 1 or below, until it is unpinned. The floor may have been
 * above it before: read the topic afterwards. Waits for the current batch, which takes
 * milliseconds, so an io loop must not call it. Any thread. */
void retention_pin(struct retention *retention, struct retention_pin *pin, struct slice topic,
                   uint64_t seq);
void retention_unpin(struct retention *retention, struct retention_pin *pin);

struct retention_stats {
    uint64_t cycles;   /* passes that were not ended by a shutdown */
    uint64_t failures; /* passes that failed */
    uint64_t duration_ms_last;
    uint64_t duration_ms_total;
    uint64_t batches;
    uint64_t clock_steps;
    uint64_t pins;
    /* By class, since the start. stale_risk_max is the highest since the last pass over all
     * topics. */
    struct retention_class_totals classes[TOPIC_CLASS_COUNT];
};

struct retention_stats retention_stats(const struct retention *retention);

#endif
