/* The retention job: frames older than their class keeps leave the journal, on a timer and on
 * demand. The authority log and the documents are never touched.
 * A thread of its own, the keeper, reads; the writer prunes, a bounded batch at a time, and between
 * two batches it takes all the appends that wait. retention_run_post, the pins, retention_stats and
 * retention_end_post may be called from any thread; start and stop belong to the main thread.
 * Memory: eight bytes a topic, one batch, and a report while somebody holds it.
 * A pass that fails (a full disk) says so once, counts, and is tried again with the next.
 * One pass at a time: who asks while one is under way gets the next, shared with all who wait. */
#ifndef RETENTION_RETENTION_H
#define RETENTION_RETENTION_H

#include "authority/writer.h"
#include "retention/pins.h"
#include "retention/report.h"

struct retention;

struct retention_options {
    struct store *store;
    struct writer *writer;
    const struct policy_table *policies;
    uint64_t interval_ms;
    /* On the writer's thread, after the commit: frames below oldest_seq are gone. May be NULL. */
    void (*on_pruned)(void *user, struct slice topic, uint64_t oldest_seq);
    void *on_pruned_user;
    /* Time from elsewhere, for tests. NULL: the system's. */
    clock_read_cb *clock_read;
    void *clock_user;
};

/* A run on demand; a member of the asker's object, which keeps it until done. */
struct retention_request {
    /* Both on the keeper's thread. progress may be NULL; it comes about once a second. */
    void (*progress)(struct retention_request *request);
    void (*done)(struct retention_request *request);
    enum status status;
    struct retention_report *report; /* with STATUS_OK; a reference for the asker */
    struct retention_request *next;
};

MUST_CHECK enum status retention_start(struct retention **retention,
                                       const struct retention_options *options);
/* Looks at every topic. STATUS_SHUTTING_DOWN after retention_end_post. */
MUST_CHECK enum status retention_run_post(struct retention *retention,
                                          struct retention_request *request);
/* The pass under way ends after its batch, requests are answered with STATUS_SHUTTING_DOWN. */
void retention_end_post(struct retention *retention);
/* Before the writer ends. */
void retention_stop(struct retention *retention);

/* See retention/pins.h: holds the floor of a topic at seq + 1 or below. */
void retention_pin(struct retention *retention, struct retention_pin *pin, struct slice topic,
                   uint64_t seq);
void retention_unpin(struct retention *retention, struct retention_pin *pin);

struct retention_stats {
    uint64_t cycles;   /* passes that were begun and not ended by a shutdown */
    uint64_t failures; /* of them */
    uint64_t duration_ms_last;
    uint64_t duration_ms_total;
    uint64_t batches;
    uint64_t clock_steps;
    uint64_t pins;
    /* Of each class: since the start, but stale_risk_max, which is the highest since the last pass
     * over all topics. */
    struct retention_class_totals classes[TOPIC_CLASS_COUNT];
};

struct retention_stats retention_stats(const struct retention *retention);

#endif
