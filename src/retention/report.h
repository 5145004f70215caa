/* What a run of the retention job did, in all and topic by topic.
 * Filled by one thread, then only read, by any; the last one to let go frees it.
 * Memory: RETENTION_REPORT_TOPICS_MAX topics; those of which frames went come before the others,
 * and what did not fit is counted (omitted).
 * Cannot fail: where memory lacks, topics are omitted.
 * The totals count everything, listed or not. */
#ifndef RETENTION_REPORT_H
#define RETENTION_REPORT_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "topic/policy.h"

struct retention_topic {
    uint64_t ref;
    struct slice topic;
    const struct policy *policy;
    uint64_t deleted;
    uint64_t oldest_seq;
    uint64_t head_seq;
    bool has_more; /* it comes again: the batch did not take all that has expired */
};

struct retention_class_totals {
    uint64_t topics; /* looked at */
    uint64_t topics_pruned;
    uint64_t deleted;
    uint64_t stale_risk_max;
};

struct retention_list {
    struct retention_topic topics[RETENTION_REPORT_TOPICS_MAX];
    size_t count;
};

struct retention_report {
    atomic_uint references;
    uint64_t now_ms; /* the time frames were judged by */
    uint64_t duration_ms;
    struct retention_class_totals classes[TOPIC_CLASS_COUNT];
    uint64_t last_ref;
    uint64_t last_deleted;
    bool is_listing;
    uint64_t omitted;
    struct arena names;
    struct retention_list pruned;
    struct retention_list whole;
};

/* NULL: no memory. Without listing there are only totals. */
struct retention_report *retention_report_new(bool is_listing);
struct retention_report *retention_report_ref(struct retention_report *report);
void retention_report_unref(struct retention_report *report);
/* One topic that was looked at, and how much of it went this time. Topics come by ref. */
void retention_report_add(struct retention_report *report, const struct retention_topic *topic);
struct retention_class_totals retention_report_total(const struct retention_report *report);
/* Frames a reader at the oldest one is behind. */
uint64_t retention_stale_risk(uint64_t oldest_seq, uint64_t head_seq);
/* {"topic_stats":[…],…} and a line's end. */
MUST_CHECK enum status retention_report_write(const struct retention_report *report,
                                              struct buffer *out);

#endif
