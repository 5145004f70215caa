#include "delivery/session/notices.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "delivery/session/subscriber.h"
#include "delivery/stale.h"
#include "topic/stream_id.h"
#include "wire/object_writer.h"

/* ---- lists of topics ---- */

/* What a list of topics says of each. */
enum topic_list { LIST_HEADS, LIST_POSITIONS, LIST_RANGES };

static enum status write_list(const struct session *session, enum topic_list list,
                              struct buffer *out) {
    size_t begin = out->size;
    buffer_append_byte(out, '[');
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber)) {
        const struct subscription *subscription = &subscriber->subscription;
        if (list == LIST_HEADS ? !subscriber_is_started(subscriber)
                               : !subscriber_has_position(subscriber))
            continue;
        if (out->size > begin + 1)
            buffer_append_byte(out, ',');
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), subscription->topic->name);
        switch (list) {
        case LIST_HEADS:
            /* A subscriber that frames of others do not wake has not learned the newest head. */
            object_number(&object, SLICE("watermark"), subscription_newest_head(subscription));
            break;
        case LIST_POSITIONS:
            position_put(&object, SLICE("watermark"), subscriber_position(subscriber),
                         subscription_given_epoch(subscription));
            break;
        case LIST_RANGES:
            object_text(&object, SLICE("epoch"), slice_of(subscription_epoch(subscription)->text));
            object_number(&object, SLICE("after"), subscription->sent_seq);
            object_number(&object, SLICE("through"), subscriber_position(subscriber));
            break;
        }
        object_close(&object);
    }
    return buffer_append_byte(out, ']');
}

enum status notice_watermarks(const struct session *session, struct buffer *out) {
    return write_list(session, LIST_HEADS, out);
}

enum status notice_covered(const struct session *session, struct buffer *out) {
    return write_list(session, LIST_RANGES, out);
}

enum status notice_bootstrap(const struct subscriber *subscriber, struct buffer *out) {
    if (subscriber->snapshot)
        return buffer_append_slice(out, SLICE("{\"snapshot\":true,\"truncated\":false}"));
    const struct continuity_bootstrap *bootstrap = &subscriber->subscription.start->bootstrap;
    return buffer_printf(out, "{\"from_seq\":%" PRIu64 ",\"truncated\":%s}", bootstrap->from_seq,
                         bootstrap->truncated ? "true" : "false");
}

void notice_resume(const struct session *session, char text[124]) {
    struct buffer reason = buffer_over(text, 124);
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber)) {
        struct slice topic = subscriber->subscription.topic->name;
        const struct topic_epoch *epoch = subscription_given_epoch(&subscriber->subscription);
        if (!subscriber_has_position(subscriber))
            continue;
        buffer_printf(&reason, "%s%.*s=%" PRIu64 "%s%s", reason.size > 0 ? ", " : "resume_after ",
                      (int)topic.size, topic.data, subscriber_position(subscriber),
                      epoch ? "@" : "", epoch ? epoch->text : "");
    }
    text[buffer_status(&reason) == STATUS_OK ? reason.size : 0] = '\0';
}

/* ---- whole notices ---- */

/* Sends the body and frees it. error: the code for the client, STATUS_OK for no error. */
static enum status send_body(struct session *session, const char *name, enum status error,
                             struct buffer *body, struct buffer *out) {
    enum status status = buffer_status(body);
    if (error != STATUS_OK)
        session_log_error(session, error);
    if (status == STATUS_OK)
        status = session->dialect->send(session, out, name, buffer_slice(body));
    buffer_release(body);
    return status;
}

static struct object_writer error_begin(const struct session *session, enum status error,
                                        struct buffer *body) {
    buffer_init(body, session->dialect->notice_bytes_max);
    struct object_writer object = object_begin(body);
    object_text(&object, SLICE("code"), slice_of(status_code(error)));
    object_text(&object, SLICE("message"), slice_of(status_message(error)));
    return object;
}

/* "resume_after": the positions behind which each subscriber may resume. */
static void put_positions(struct object_writer *object, const struct session *session) {
    object_json(object, SLICE("resume_after"), SLICE(""));
    write_list(session, LIST_POSITIONS, object->out);
}

enum status notice_stale(struct subscriber *subscriber, struct buffer *out) {
    struct session *session = subscriber->session;
    struct stale_topic stale = subscription_stale(&subscriber->subscription);
    struct buffer body;
    buffer_init(&body, session->dialect->notice_bytes_max);
    buffer_note(&body, stale_write_json(&body, &stale, 1));
    return send_body(session, session->dialect->names.stale, STATUS_STALE_CURSOR, &body, out);
}

enum status notice_snapshot(struct subscriber *subscriber, struct buffer *out) {
    struct session *session = subscriber->session;
    struct buffer body;
    buffer_init(&body, session->dialect->snapshot_bytes_max);
    subscriber_snapshot_write(subscriber->snapshot, &body);
    return send_body(session, session->dialect->names.snapshot, STATUS_OK, &body, out);
}

enum status notice_refused(struct subscriber *subscriber, enum status why, struct buffer *out) {
    struct session *session = subscriber->session;
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct slice topic = subscriber->subscription.topic->name;
    struct buffer body;
    struct object_writer object = error_begin(session, why, &body);
    buffer_note(&body, address_stream(topic, &stream));
    object_text(&object, SLICE("topic"), topic);
    object_text(&object, SLICE("stream_id"), buffer_slice(&stream));
    object_close(&object);
    return send_body(session, session->dialect->names.refused, why, &body, out);
}

enum status notice_reauth(struct session *session, uint64_t left_ms, struct buffer *out) {
    struct buffer body;
    struct object_writer object = error_begin(session, STATUS_REAUTH_REQUIRED, &body);
    object_number(&object, SLICE("expires_in_ms"), left_ms);
    object_close(&object);
    return send_body(session, session->dialect->names.reauth, STATUS_REAUTH_REQUIRED, &body, out);
}

enum status notice_slow(struct session *session, struct buffer *out) {
    const struct subscriber *worst = session_furthest_behind(session);
    struct buffer body;
    buffer_init(&body, session->dialect->notice_bytes_max);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), SLICE("slow_consumer"));
    object_text(&object, SLICE("message"),
                SLICE("The connection does not read what it is sent; come back and resume."));
    if (worst) {
        object_text(&object, SLICE("topic"), worst->subscription.topic->name);
        object_number(&object, SLICE("lag"), subscription_own_lag(&worst->subscription));
    }
    object_number(&object, SLICE("strikes"), session_strike_count(session));
    object_number(&object, SLICE("max_strikes"), session->delivery->shared->options.strikes_max);
    put_positions(&object, session);
    object_number(&object, SLICE("reconnect_after_ms"), io_loop_backoff_ms(session->delivery->io));
    object_close(&object);
    enum status status =
        send_body(session, session->dialect->names.slow, STATUS_SLOW_CONSUMER, &body, out);
    return status == STATUS_OK ? session->dialect->send_last(session, out, CLOSE_SLOW_CONSUMER)
                               : status;
}

enum status notice_end(struct session *session, const struct notice_ending *ending,
                       struct buffer *out) {
    struct buffer body;
    struct object_writer object = error_begin(session, ending->why, &body);
    if (ending->retry_after_ms > 0)
        object_number(&object, SLICE("reconnect_after_ms"), ending->retry_after_ms);
    if (status_http(ending->why) == 429)
        object_number(&object, SLICE("retry_after_ms"), io_loop_backoff_ms(session->delivery->io));
    put_positions(&object, session);
    object_close(&object);
    enum status status = send_body(session, session->dialect->names.end, ending->why, &body, out);
    return status == STATUS_OK ? session->dialect->send_last(session, out, ending->code) : status;
}

enum status notice_leaving(struct session *session, uint64_t retry_after_ms, struct buffer *out) {
    return notice_end(
        session, &(struct notice_ending){STATUS_SHUTTING_DOWN, CLOSE_RESTARTING, retry_after_ms},
        out);
}
