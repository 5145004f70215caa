#include "server/link_tell.h"

#include "hub/frame_row.h"
#include "server/dialect.h"

struct cause link_cause(const struct link *link, const struct link_reader *reader,
                        char text[PRINCIPAL_NAME_BYTES_MAX]) {
    struct slice who = {NULL, 0};
    struct slice topic = reader ? reader->subscription.options.topic : (struct slice){NULL, 0};
    if (link->principal)
        who = (struct slice){text, principal_name(link->principal, text)};
    return (struct cause){
        .connection = slice_of(link->name),
        .principal = who,
        /* People know the whole log by its address. */
        .topic = reader && topic_is_log(topic) ? SLICE("/api/events") : topic,
        .dialect = link->dialect->label,
    };
}

void link_tell_why(struct link *link, enum status status, unsigned close_code) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    struct cause cause = link_cause(link, NULL, who);
    link->close_code = close_code;
    cause.status = status;
    cause.close_code = close_code;
    telemetry_disconnected(link->server, cause);
}

void link_tell_stale(const struct link_reader *reader) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    telemetry_stale(reader->link->server, link_cause(reader->link, reader, who),
                    subscription_continuity(&reader->subscription));
}

void link_tell_denied(struct link *link, struct slice topic, enum status status) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    struct cause cause = link_cause(link, NULL, who);
    cause.topic = topic;
    telemetry_denied(link->server, cause, status);
}

void link_tell_incompatible(struct link *link, enum status status) {
    char who[PRINCIPAL_NAME_BYTES_MAX];
    telemetry_incompatible(link->server, link_cause(link, NULL, who), status);
}

void link_tell_error(const struct link *link, enum status status) {
    metrics_add(METRIC_SYNC_SOCKET_ERRORS, METRIC_LABELS(link->dialect->label, status), 1);
}
