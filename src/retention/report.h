/* The report of a retention pass: totals, and a list of topics.
 * Thread: one fills it; then any reads it.
 * Memory: reference-counted. It lists RETENTION_REPORT_TOPICS_MAX topics, pruned ones first, and
 * counts the others as omitted.
 * Errors: none: without memory, topics are omitted.
 * Invariant: the totals include all topics, listed or not. */
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
    bool has_more; /* the batch left expired frames: the topic is added again */
};

struct retention_class_totals {
    uint64_t topics; /* inspected */
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
    uint64_t now_ms; /* frames are compared with this time */
    uint64_t duration_ms;
    struct retention_class_totals classes[TOPIC_CLASS_COUNT];
    uint64_t last_ref;
    uint64_t last_deleted;
    bool is_listing;
    uint64_t omitted;
    struct arena names;
    struct retention_list pruned;
    struct retention_list unpruned;
};

/* NULL: no memory. Without is_listing there are only totals. */
struct retention_report *retention_report_new(bool is_listing);
struct retention_report *retention_report_ref(struct retention_report *report);
void retention_report_unref(struct retention_report *report);
/* Adds one inspected topic. Topics come in the order of their refs. */
void retention_report_add(struct retention_report *report, const struct retention_topic *topic);
struct retention_class_totals retention_report_total(const struct retention_report *report);
/* The lag of a subscriber at the oldest frame. */
uint64_t retention_stale_risk(uint64_t oldest_seq, uint64_t head_seq);
/* {"topic_stats":[…],…} and a newline. */
MUST_CHECK enum status retention_report_write(const struct retention_report *report,
                                              struct buffer *out);

#endif
