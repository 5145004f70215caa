#include "delivery/session_log.h"

#include "server/server.h"

#include "delivery/dialect.h"
#include "hub/frame_row.h"

struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names) {
    struct slice who = {NULL, 0};
    struct slice peer = {NULL, 0};
    struct slice topic =
        subscriber ? subscriber->subscription.options.topic : (struct slice){NULL, 0};
    if (session->principal)
        who =
            (struct slice){names->principal, principal_name(session->principal, names->principal)};
    else if (session->bearer)
        who = slice_of(session->bearer);
    if (session->outlet)
        peer = session->outlet->table->peer(session->outlet, names->peer);
    return (struct cause){
        .connection = slice_of(session->name),
        .principal = who,
        .peer = peer,
        /* People know the whole log by its address. */
        .topic = subscriber && topic_is_log(topic) ? SLICE("/api/events") : topic,
        .dialect = session->dialect->label,
    };
}

void session_log_end(struct session *session, enum status status, unsigned close_code) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    session->close_code = close_code;
    cause.status = status;
    cause.close_code = close_code;
    telemetry_disconnected(&session->server->telemetry, cause);
}

void session_log_stale(const struct subscriber *subscriber) {
    struct cause_names names;
    telemetry_stale(&subscriber->session->server->telemetry,
                    session_cause(subscriber->session, subscriber, &names),
                    subscription_continuity(&subscriber->subscription));
}

void session_log_refused(struct session *session, struct slice topic, enum status status) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    cause.topic = topic;
    telemetry_refused(&session->server->telemetry, cause, status);
}

void session_log_error(const struct session *session, enum status status) {
    metrics_add(METRIC_SYNC_SOCKET_ERRORS, METRIC_LABELS(session->dialect->label, status), 1);
}
