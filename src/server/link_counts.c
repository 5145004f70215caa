#include "server/link_counts.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "server/dialect.h"
#include "server/server.h"
#include "server/telemetry.h"

#define NAME_BYTES 40

static void count(const struct link *link, enum metric metric) {
    metrics_add(metric, METRIC_LABELS(link->dialect->label), 1);
}

static enum topic_class class_of(const struct link_reader *reader) {
    return reader->subscription.options.policy->topic_class;
}

/* Links of two loops may have one number. */
static struct cause cause_of(const struct link *link, const struct link_reader *reader,
                             char name[NAME_BYTES]) {
    int size =
        snprintf(name, NAME_BYTES, "link-%td-%" PRIu64, link->loop - link->server->loops, link->id);
    return (struct cause){
        .connection = {name, (size_t)size},
        .topic = reader ? reader->subscription.options.topic : (struct slice){NULL, 0},
        .close_code = link->close_code,
        .dialect = link->dialect->label,
    };
}

void link_counts_opened(const struct link *link) {
    count(link, METRIC_SYNC_SOCKET_OPENED);
    count(link, METRIC_SYNC_SOCKET_CONNECTIONS);
}

void link_counts_closed(const struct link *link) {
    metrics_add(METRIC_SYNC_SOCKET_CLOSED,
                METRIC_LABELS(link->dialect->label, label_close_code(link->close_code)), 1);
    metrics_sub(METRIC_SYNC_SOCKET_CONNECTIONS, METRIC_LABELS(link->dialect->label), 1);
}

void link_counts_joined(const struct link_reader *reader) {
    metrics_add(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(class_of(reader)), 1);
}

void link_counts_left(const struct link_reader *reader) {
    metrics_sub(METRIC_SYNC_SOCKET_SUBSCRIPTIONS, METRIC_LABELS(class_of(reader)), 1);
}

void link_counts_started(const struct link_reader *reader) {
    const struct subscription_options *options = &reader->subscription.options;
    bool has_cursor = options->has_cursor || options->has_event_cursor;
    metrics_add(has_cursor ? METRIC_SYNC_REPLAY_STARTED : METRIC_SYNC_REPLAY_BOOTSTRAP,
                METRIC_LABELS(reader->link->dialect->label, class_of(reader)), 1);
}

void link_counts_served(const struct link_reader *reader, const struct page *page,
                        bool is_limited) {
    const struct link *link = reader->link;
    count(link, METRIC_KHALA_FANOUT_POLLS);
    if (is_limited)
        count(link, METRIC_KHALA_FANOUT_FAIRNESS_LIMITED_POLLS);
    telemetry_handed(link->dialect->label, reader->subscription.options.policy, page->batch.frames,
                     page->batch.count, clock_now().mono_ns);
}

void link_counts_stale(const struct link_reader *reader) {
    char name[NAME_BYTES];
    telemetry_stale(reader->link->server, cause_of(reader->link, reader, name),
                    &reader->subscription.continuity);
}

void link_counts_strike(const struct link *link) {
    count(link, METRIC_SYNC_SLOW_CONSUMER_STRIKES);
}

void link_counts_evicted(const struct link *link) {
    char name[NAME_BYTES];
    telemetry_evicted(link->server, cause_of(link, link->readers, name));
}
