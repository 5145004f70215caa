#include "delivery/session/session_log.h"

#include "delivery/session/dialect.h"
#include "hub/frame_row.h"

void session_count(const struct session *session, enum metric metric) {
    metrics_add(metric, METRIC_LABELS(session->dialect->label), 1);
}

struct cause session_cause(const struct session *session, const struct subscriber *subscriber,
                           struct cause_names *names) {
    struct slice principal = {NULL, 0};
    struct slice peer = {NULL, 0};
    struct slice topic =
        subscriber ? subscriber->driver.subscription.topic->name : (struct slice){NULL, 0};
    if (session->principal)
        principal =
            (struct slice){names->principal, principal_name(session->principal, names->principal)};
    else if (session->bearer)
        principal = slice_of(session->bearer);
    if (session_is_connected(session))
        peer = session->outlet->table->peer(session->outlet, names->peer);
    return (struct cause){
        .connection = session_name(session, names->connection),
        .principal = principal,
        .peer = peer,
        .rule = session->token_rule,
        /* Operators know the whole log by its URL. */
        .topic = subscriber && topic_is_log(topic) ? SLICE("/api/events") : topic,
        .dialect = session->dialect->label,
    };
}

void session_log_end(struct session *session, enum status status, unsigned close_code) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    session->close_code = (uint16_t)close_code;
    cause.status = status;
    cause.close_code = close_code;
    telemetry_disconnected(session->delivery->shared->telemetry, cause);
}

void session_log_stale(const struct subscriber *subscriber) {
    struct cause_names names;
    telemetry_stale(subscriber->session->delivery->shared->telemetry,
                    session_cause(subscriber->session, subscriber, &names),
                    subscription_continuity(&subscriber->driver.subscription));
}

void session_log_refused(struct session *session, struct slice topic, enum status status) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    cause.topic = topic;
    telemetry_refused(session->delivery->shared->telemetry, cause, status);
}

void session_log_incompatible(struct session *session, const struct compatibility_claim *claim,
                              enum status status) {
    struct cause_names names;
    struct cause cause = session_cause(session, NULL, &names);
    cause.client = telemetry_client(claim);
    telemetry_refused(session->delivery->shared->telemetry, cause, status);
}

void session_log_error(const struct session *session, enum status status) {
    metrics_add(METRIC_SYNC_SOCKET_ERRORS, METRIC_LABELS(session->dialect->label, status), 1);
}
