#include "retention/report.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "wire/json.h"

struct retention_report *retention_report_new(bool is_listing) {
    struct retention_report *report = calloc(1, sizeof(*report));
    if (!report)
        return NULL;
    atomic_init(&report->references, 1);
    report->is_listing = is_listing;
    arena_init(&report->names, RETENTION_REPORT_NAMES_BYTES_MAX);
    return report;
}

struct retention_report *retention_report_ref(struct retention_report *report) {
    atomic_fetch_add(&report->references, 1);
    return report;
}

void retention_report_unref(struct retention_report *report) {
    if (!report || atomic_fetch_sub(&report->references, 1) > 1)
        return;
    arena_release(&report->names);
    free(report);
}

uint64_t retention_stale_risk(uint64_t oldest_seq, uint64_t head_seq) {
    return head_seq > oldest_seq ? head_seq - oldest_seq : 0;
}

void retention_report_add(struct retention_report *report, const struct retention_topic *topic) {
    struct retention_class_totals *class = &report->classes[topic->policy->topic_class];
    uint64_t stale_risk = retention_stale_risk(topic->oldest_seq, topic->head_seq);
    struct retention_list *pruned = &report->pruned;
    assert(topic->ref >= report->last_ref);
    bool is_repeated = topic->ref == report->last_ref;
    if (!is_repeated)
        report->last_deleted = 0;
    class->topics += !is_repeated;
    class->topics_pruned += topic->deleted > 0 && report->last_deleted == 0;
    class->deleted += topic->deleted;
    if (!topic->has_more && stale_risk > class->stale_risk_max)
        class->stale_risk_max = stale_risk;
    struct retention_topic *last = pruned->count > 0 ? &pruned->topics[pruned->count - 1] : NULL;
    if (last && last->ref == topic->ref) {
        last->deleted += topic->deleted;
        last->oldest_seq = topic->oldest_seq;
        last->head_seq = topic->head_seq;
    } else if (!is_repeated) {
        struct retention_list *list = topic->deleted > 0 ? pruned : &report->unpruned;
        struct slice name = {NULL, 0};
        if (report->is_listing && list->count < RETENTION_REPORT_TOPICS_MAX)
            name = arena_copy(&report->names, topic->topic);
        if (name.data) {
            list->topics[list->count] = *topic;
            list->topics[list->count++].topic = name;
        } else {
            report->omitted += report->is_listing;
        }
    }
    report->last_ref = topic->ref;
    report->last_deleted += topic->deleted;
}

struct retention_class_totals retention_report_total(const struct retention_report *report) {
    struct retention_class_totals total = {0};
    for (size_t i = 0; i < TOPIC_CLASS_COUNT; i++) {
        const struct retention_class_totals *class = &report->classes[i];
        total.topics += class->topics;
        total.topics_pruned += class->topics_pruned;
        total.deleted += class->deleted;
        if (class->stale_risk_max > total.stale_risk_max)
            total.stale_risk_max = class->stale_risk_max;
    }
    return total;
}

enum status retention_report_write(const struct retention_report *report, struct buffer *out) {
    struct retention_class_totals total = retention_report_total(report);
    const struct retention_list *lists[] = {&report->pruned, &report->unpruned};
    size_t written = 0;
    uint64_t omitted = report->omitted;
    buffer_append_slice(out, SLICE("{\"topic_stats\":["));
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < lists[i]->count; j++) {
            if (written == RETENTION_REPORT_TOPICS_MAX) {
                omitted++;
                continue;
            }
            if (written++ > 0)
                buffer_append_byte(out, ',');
            const struct retention_topic *topic = &lists[i]->topics[j];
            const struct policy *policy = topic->policy;
            buffer_append_slice(out, SLICE("\n{\"topic\":"));
            json_write_string(out, topic->topic);
            buffer_printf(
                out,
                ",\"deleted\":%llu,\"class\":\"%s\",\"compaction_mode\":\"%s\","
                "\"retention_seconds\":%llu,\"oldest\":%llu,\"head\":%llu,"
                "\"stale_risk\":%llu}",
                (unsigned long long)topic->deleted, topic_class_name(policy->topic_class),
                compaction_mode_name(policy->compaction_mode),
                (unsigned long long)policy->retention_seconds,
                (unsigned long long)topic->oldest_seq, (unsigned long long)topic->head_seq,
                (unsigned long long)retention_stale_risk(topic->oldest_seq, topic->head_seq));
        }
    }
    return buffer_printf(out,
                         "],\n\"topic_stats_omitted\":%llu,\"topics\":%llu,\"topics_pruned\":%llu,"
                         "\"deleted\":%llu,\"now_ms\":%llu,\"duration_ms\":%llu}\n",
                         (unsigned long long)omitted, (unsigned long long)total.topics,
                         (unsigned long long)total.topics_pruned, (unsigned long long)total.deleted,
                         (unsigned long long)report->now_ms,
                         (unsigned long long)report->duration_ms);
}
