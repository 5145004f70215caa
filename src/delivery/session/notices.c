#include "delivery/session/notices.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "delivery/session/subscriber.h"
#include "delivery/stale.h"
#include "topic/stream_id.h"
#include "wire/object_writer.h"

/* A subscriber that frames of others do not wake has not learned the newest head. */
static uint64_t head_of(const struct subscriber *subscriber) {
    return subscription_newest_head(&subscriber->subscription);
}

/* [{"topic":…,"watermark":…}] of the subscribers that have started. */
static enum status write_list(const struct session *session, bool heads, struct buffer *out) {
    bool has_one = false;
    enum status status = buffer_append_byte(out, '[');
    for (const struct subscriber *subscriber = session_first(session);
         status == STATUS_OK && subscriber; subscriber = subscriber_next(subscriber)) {
        if (heads ? !subscriber_is_started(subscriber) : !subscriber_has_position(subscriber))
            continue;
        if (has_one)
            status = buffer_append_byte(out, ',');
        has_one = true;
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), subscriber->subscription.topic->name);
        if (heads)
            object_number(&object, SLICE("watermark"), head_of(subscriber));
        else
            position_put(&object, SLICE("watermark"), subscriber_position(subscriber),
                         subscription_given_epoch(&subscriber->subscription));
        enum status ended = object_end(&object);
        status = status == STATUS_OK ? ended : status;
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

enum status notice_watermarks(const struct session *session, struct buffer *out) {
    return write_list(session, true, out);
}

enum status notice_positions(const struct session *session, struct buffer *out) {
    return write_list(session, false, out);
}

enum status notice_covered(const struct session *session, struct buffer *out) {
    bool has_one = false;
    enum status status = buffer_append_byte(out, '[');
    for (const struct subscriber *subscriber = session_first(session);
         status == STATUS_OK && subscriber; subscriber = subscriber_next(subscriber)) {
        if (!subscriber_has_position(subscriber))
            continue;
        if (has_one)
            status = buffer_append_byte(out, ',');
        has_one = true;
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), subscriber->subscription.topic->name);
        object_text(&object, SLICE("epoch"),
                    slice_of(subscription_epoch(&subscriber->subscription)->text));
        object_number(&object, SLICE("after"), subscriber->subscription.sent_seq);
        object_number(&object, SLICE("through"), subscriber_position(subscriber));
        enum status ended = object_end(&object);
        status = status == STATUS_OK ? ended : status;
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

enum status notice_slow(const struct session *session, struct buffer *out) {
    const struct delivery_options *options = &session->delivery->shared->options;
    const struct subscriber *worst = NULL;
    struct buffer cursors;
    buffer_init(&cursors, NOTICE_POSITIONS_BYTES_MAX);
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        if (subscriber_is_started(subscriber) &&
            (!worst || subscription_own_lag(&subscriber->subscription) >
                           subscription_own_lag(&worst->subscription)))
            worst = subscriber;
    enum status status = notice_positions(session, &cursors);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), SLICE("slow_consumer"));
    object_text(&object, SLICE("message"),
                SLICE("The connection does not read what it is sent; come back and resume."));
    if (worst) {
        object_text(&object, SLICE("topic"), worst->subscription.topic->name);
        object_number(&object, SLICE("lag"), subscription_own_lag(&worst->subscription));
    }
    object_number(&object, SLICE("strikes"), session_strike_count(session));
    object_number(&object, SLICE("max_strikes"), options->strikes_max);
    object_json(&object, SLICE("resume_after"), buffer_slice(&cursors));
    object_number(&object, SLICE("reconnect_after_ms"), io_loop_backoff_ms(session->delivery->io));
    enum status ended = object_end(&object);
    buffer_release(&cursors);
    return status == STATUS_OK ? ended : status;
}

enum status notice_end(const struct session *session, enum status why, uint64_t retry_after_ms,
                       struct buffer *out) {
    struct buffer cursors;
    buffer_init(&cursors, NOTICE_POSITIONS_BYTES_MAX);
    enum status status = notice_positions(session, &cursors);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(why)));
    object_text(&object, SLICE("message"), slice_of(status_message(why)));
    if (retry_after_ms > 0)
        object_number(&object, SLICE("reconnect_after_ms"), retry_after_ms);
    if (status_http(why) == 429)
        object_number(&object, SLICE("retry_after_ms"), io_loop_backoff_ms(session->delivery->io));
    object_json(&object, SLICE("resume_after"), buffer_slice(&cursors));
    enum status ended = object_end(&object);
    buffer_release(&cursors);
    return status == STATUS_OK ? ended : status;
}

enum status notice_stale(const struct subscriber *subscriber, struct buffer *out) {
    const struct subscription *subscription = &subscriber->subscription;
    struct stale_topic stale = subscription_stale(subscription);
    return stale_write_json(out, &stale, 1);
}

enum status notice_refused(const struct subscriber *subscriber, enum status why,
                           struct buffer *out) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct slice topic = subscriber->subscription.topic->name;
    enum status status = address_stream(topic, &stream);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(why)));
    object_text(&object, SLICE("message"), slice_of(status_message(why)));
    object_text(&object, SLICE("topic"), topic);
    object_text(&object, SLICE("stream_id"), buffer_slice(&stream));
    enum status ended = object_end(&object);
    return status == STATUS_OK ? ended : status;
}

enum status notice_bootstrap(const struct subscriber *subscriber, struct buffer *out) {
    if (subscriber->snapshot)
        return buffer_append_slice(out, SLICE("{\"snapshot\":true,\"truncated\":false}"));
    const struct continuity_bootstrap *bootstrap = &subscriber->subscription.start->bootstrap;
    return buffer_printf(out, "{\"from_seq\":%" PRIu64 ",\"truncated\":%s}", bootstrap->from_seq,
                         bootstrap->truncated ? "true" : "false");
}

enum status notice_reauth(uint64_t left_ms, struct buffer *out) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_REAUTH_REQUIRED)));
    object_text(&object, SLICE("message"), slice_of(status_message(STATUS_REAUTH_REQUIRED)));
    object_number(&object, SLICE("expires_in_ms"), left_ms);
    return object_end(&object);
}

void notice_resume(const struct session *session, char text[124]) {
    struct buffer reason = buffer_over(text, 124);
    enum status status = STATUS_OK;
    for (const struct subscriber *subscriber = session_first(session);
         status == STATUS_OK && subscriber; subscriber = subscriber_next(subscriber)) {
        struct slice topic = subscriber->subscription.topic->name;
        const struct topic_epoch *epoch = subscription_given_epoch(&subscriber->subscription);
        if (!subscriber_has_position(subscriber))
            continue;
        status = buffer_printf(&reason, "%s%.*s=%" PRIu64 "%s%s",
                               reason.size > 0 ? ", " : "resume_after ", (int)topic.size,
                               topic.data, subscriber_position(subscriber), epoch ? "@" : "",
                               epoch ? epoch->text : "");
    }
    text[status == STATUS_OK ? reason.size : 0] = '\0';
}
