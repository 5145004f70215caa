#include "delivery/session_log.h"

#include "hub/frame_row.h"
#include "http/conn.h"
#include "delivery/dialect.h"

struct cause link_cause(const struct link *link, const struct link_reader *reader,
                        struct cause_names *names) {
    struct slice who = {NULL, 0};
    struct slice peer = {NULL, 0};
    struct slice topic = reader ? reader->subscription.options.topic : (struct slice){NULL, 0};
    if (link->principal)
        who = (struct slice){names->principal, principal_name(link->principal, names->principal)};
    else if (link->bearer)
        who = slice_of(link->bearer);
    if (link->conn)
        peer = transport_peer(link->conn, names->peer);
    return (struct cause){
        .connection = slice_of(link->name),
        .principal = who,
        .peer = peer,
        /* People know the whole log by its address. */
        .topic = reader && topic_is_log(topic) ? SLICE("/api/events") : topic,
        .dialect = link->dialect->label,
    };
}

void link_tell_why(struct link *link, enum status status, unsigned close_code) {
    struct cause_names names;
    struct cause cause = link_cause(link, NULL, &names);
    link->close_code = close_code;
    cause.status = status;
    cause.close_code = close_code;
    telemetry_disconnected(link->server, cause);
}

void link_tell_stale(const struct link_reader *reader) {
    struct cause_names names;
    telemetry_stale(reader->link->server, link_cause(reader->link, reader, &names),
                    subscription_continuity(&reader->subscription));
}

void link_tell_refused(struct link *link, struct slice topic, enum status status) {
    struct cause_names names;
    struct cause cause = link_cause(link, NULL, &names);
    cause.topic = topic;
    telemetry_refused(link->server, cause, status);
}

void link_tell_error(const struct link *link, enum status status) {
    metrics_add(METRIC_SYNC_SOCKET_ERRORS, METRIC_LABELS(link->dialect->label, status), 1);
}
