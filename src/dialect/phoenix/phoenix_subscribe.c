/* A subscribe takes two reads. The first resolves its streams, unless it has topics only. Then the
 * topics are watched, and the second compares each cursor with the store, which also finds the
 * owners of runs and workers. A run of another owner waits like one that does not exist.
 * Only if all can continue, all are started. Messages that arrive meanwhile wait. */
#include "dialect/phoenix/phoenix_subscribe.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/list.h"
#include "delivery/session/notices.h"
#include "delivery/session/session.h"
#include "delivery/session/session_jobs.h"
#include "delivery/session/subscriber.h"
#include "delivery/stale.h"
#include "dialect/dialects.h"
#include "dialect/phoenix/phoenix_message.h"
#include "dialect/phoenix/subscribe_request.h"
#include "dialect/websocket.h"
#include "topic/stream_id.h"
#include "wire/object_writer.h"

struct subscribe_request {
    struct phoenix_request base;
    struct subscribe subscribe;
};

static void request_free(struct subscribe_request *request) {
    subscribe_release(&request->subscribe);
    free(request);
}

static void call_free(struct session_lookup *call) {
    request_free(container_of(call, struct subscribe_request, base.call));
}

static bool call_run(struct session_lookup *call, struct store_session *store) {
    struct subscribe_request *request = container_of(call, struct subscribe_request, base.call);
    struct subscribe *subscribe = &request->subscribe;
    if (subscribe->is_resolved)
        subscribe_entitle(subscribe, request->base.principal);
    else
        request->base.status = subscribe_resolve(subscribe, store);
    return request->base.status == STATUS_OK && !subscribe->is_entitled;
}

static enum status make_subscribers(struct session *session, const struct subscribe *subscribe,
                                    struct session_opening *opening) {
    enum status status = STATUS_OK;
    uint64_t since_ms =
        since_time_ms(&subscribe->since, clock_wall_ms(&session->delivery->io->clock));
    enum phoenix_updates updates =
        subscribe->form == FRAME_LEAN ? PHOENIX_UPDATES_LEAN : PHOENIX_UPDATES_FULL;
    const struct page_form *form =
        &phoenix_forms[subscribe->frames ? PHOENIX_UPDATES_NONE : updates]
                      [websocket_deflates(session)];
    opening->count = 0;
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        bool has_cursor = item->has_cursor && !subscribe->bootstrap;
        const struct subscription_options options = {
            .view = item->grant.view,
            .has_cursor = has_cursor,
            .after_seq = has_cursor ? item->position.seq : 0,
            .epoch = item->has_cursor ? item->position.epoch : subscribe->epoch,
            .has_since = subscribe->has_since && !item->has_cursor && !subscribe->bootstrap,
            .since_ms = since_ms,
            .replay_all = subscribe->replay_all,
            .folds = subscribe->folds,
            .selection = subscribe->selection,
        };
        struct subscriber *subscriber;
        status = subscriber_new(session, item->topic, &options, &subscriber);
        if (status != STATUS_OK)
            break;
        subscriber->form = form;
        subscriber->frames_max = (uint32_t)subscribe->batch_size;
        opening->subscribers[opening->count++] = subscriber;
    }
    return status;
}

static void drop_opening(struct session *session, struct session_opening *opening) {
    for (size_t i = 0; i < opening->count; i++)
        subscriber_drop(opening->subscribers[i]);
    subscribers_dropped(session);
}

/* The subscriptions of other topics, which the subscribe does not replace. */
static size_t count_others(const struct session *session, const struct subscribe *subscribe) {
    size_t count = 0;
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber))
        if (subscriber->state != SUBSCRIBER_LEAVING &&
            !subscribe_has_topic(subscribe, subscriber->subscription.topic->name))
            count++;
    return count;
}

static bool has_forbidden(const struct subscribe *subscribe) {
    for (size_t i = 0; i < subscribe->count; i++)
        if (subscribe->items[i].grant.status != STATUS_OK)
            return true;
    return false;
}

/* Names every topic that may not be read, with the reason of the first. The message is that of the
 * reason, which says more than the code. */
static void refuse_forbidden(struct session *session, struct subscribe_request *request) {
    const struct subscribe *subscribe = &request->subscribe;
    struct phoenix_address to = phoenix_request_address(&request->base);
    struct buffer names, body;
    char text[SCOPES_NEEDED_BYTES_MAX];
    const char *reason = "";
    const char *message = "";
    buffer_init(&names, PHOENIX_REPLY_BYTES_MAX);
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    buffer_append_byte(&names, '[');
    for (size_t i = 0; i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        if (item->grant.status == STATUS_OK)
            continue;
        session_log_refused(session, item->topic, item->grant.status);
        if (*reason) {
            buffer_append_byte(&names, ',');
        } else {
            reason = status_code(item->grant.status);
            message = grant_message(item->grant.status, item->topic, text);
        }
        json_write_string(&names, item->name);
    }
    buffer_append_byte(&names, ']');
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_FORBIDDEN_TOPIC)));
    object_text(&object, SLICE("message"), slice_of(message));
    object_text(&object, SLICE("reason_code"), slice_of(reason));
    buffer_note(&body, buffer_status(&names));
    object_json(&object, SLICE("forbidden_topics"), buffer_slice(&names));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_error_body(session, &to, STATUS_FORBIDDEN_TOPIC, buffer_slice(&body));
    buffer_release(&names);
    buffer_release(&body);
    request_free(request);
    phoenix_flush(session, status);
}

/* NULL: the message of the status says it. */
static const char *fault_of(const struct subscribe *subscribe, enum status status,
                            char text[SCOPES_NEEDED_BYTES_MAX]) {
    if (status == STATUS_MISSING_SCOPE)
        return scopes_needed(SCOPE_REPLAY_ALL, text);
    return status == STATUS_BAD_SUBSCRIPTION || status == STATUS_UNKNOWN_PARAMETER
               ? subscribe->fault
               : NULL;
}

static void refuse_quota(struct session *session, struct subscribe_request *request,
                         const struct quota_refusal *refusal) {
    struct phoenix_address to = phoenix_request_address(&request->base);
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_QUOTA_EXCEEDED)));
    object_text(&object, SLICE("message"), slice_of(status_message(STATUS_QUOTA_EXCEEDED)));
    object_text(&object, SLICE("quota"), SLICE("subscriptions"));
    object_number(&object, SLICE("used"), refusal->used);
    object_number(&object, SLICE("limit"), refusal->limit);
    object_number(&object, SLICE("retry_after_ms"), io_loop_backoff_ms(session->delivery->io));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_error_body(session, &to, STATUS_QUOTA_EXCEEDED, buffer_slice(&body));
    buffer_release(&body);
    request_free(request);
    phoenix_flush(session, status);
}

static enum status check_replay_all(const struct session *session,
                                    const struct subscribe *subscribe) {
    for (size_t i = 0; i < subscribe->count; i++)
        if (!topic_is_from_log(subscribe->items[i].topic))
            return STATUS_REPLAY_ALL_UNAVAILABLE;
    return principal_may_replay_all(session->principal) ? STATUS_OK : STATUS_MISSING_SCOPE;
}

static enum status check_selection(struct subscribe *subscribe) {
    for (size_t i = 0; subscribe->selection && i < subscribe->count; i++) {
        if (selection_suits(subscribe->items[i].topic))
            continue;
        subscribe->fault = SELECTION_MISPLACED;
        return STATUS_BAD_SUBSCRIPTION;
    }
    return STATUS_OK;
}

/* The names are resolved: watches the topics, then compares the cursors with the store. */
static void call_done(struct session *session, struct session_lookup *call, enum status status) {
    struct subscribe_request *request = container_of(call, struct subscribe_request, base.call);
    size_t count = request->subscribe.count;
    struct session_opening *opening = NULL;
    char text[SCOPES_NEEDED_BYTES_MAX];
    if (status == STATUS_OK)
        status = request->base.status;
    if (status == STATUS_OK && has_forbidden(&request->subscribe)) {
        refuse_forbidden(session, request);
        return;
    }
    if (status == STATUS_OK && request->subscribe.replay_all)
        status = check_replay_all(session, &request->subscribe);
    if (status == STATUS_OK)
        status = check_selection(&request->subscribe);
    size_t all = count_others(session, &request->subscribe) + count;
    if (status == STATUS_OK && all > settings_of(session)->subscriptions_max)
        status = STATUS_LIMIT_REACHED;
    /* Those that it replaces count no more, and its own count before they are made. */
    struct quota_refusal refusal = {0};
    if (status == STATUS_OK && all > session->subscriptions.count)
        status = subscription_quota_set(session->delivery->shared->subscription_quota,
                                        &session->subscriptions, session->principal, all, &refusal);
    if (status == STATUS_QUOTA_EXCEEDED) {
        refuse_quota(session, request, &refusal);
        return;
    }
    if (status == STATUS_OK) {
        opening = malloc(sizeof(*opening) + count * sizeof(struct subscriber *));
        status = opening ? make_subscribers(session, &request->subscribe, opening)
                         : STATUS_OUT_OF_MEMORY;
    }
    if (status != STATUS_OK) {
        if (opening)
            drop_opening(session, opening);
        else
            subscribers_dropped(session);
        free(opening);
        phoenix_request_refuse(session, &request->base, status,
                               fault_of(&request->subscribe, status, text));
        return;
    }
    opening->user = request;
    session_open(session, opening);
}

static enum status write_names(const struct session *session, struct buffer *out) {
    size_t begin = out->size;
    buffer_append_byte(out, '[');
    for (const struct subscriber *subscriber = session_first(session); subscriber;
         subscriber = subscriber_next(subscriber)) {
        if (!subscriber_is_started(subscriber))
            continue;
        if (out->size > begin + 1)
            buffer_append_byte(out, ',');
        json_write_string(out, subscriber->subscription.topic->name);
    }
    return buffer_append_byte(out, ']');
}

static enum status reply_subscribed(struct session *session, const struct session_opening *opening,
                                    const struct phoenix_address *to) {
    const struct phoenix *phoenix = session->dialect_state;
    char id[UUID_TEXT_SIZE];
    bool has_pending = false;
    struct buffer body;
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    uuid_format(&phoenix->subscription_id, id);
    object_text(&object, SLICE("subscription_id"), (struct slice){id, sizeof(id)});
    object_text(&object, SLICE("epoch"), slice_of(session->delivery->shared->epoch));
    object_json(&object, SLICE("topics"), SLICE(""));
    write_names(session, &body);
    object_json(&object, SLICE("current_watermarks"), SLICE(""));
    notice_watermarks(session, &body);
    object_json(&object, SLICE("windows"), SLICE("["));
    for (size_t i = 0; i < opening->count; i++) {
        const struct subscriber *subscriber = opening->subscribers[i];
        const struct subscription *subscription = &subscriber->subscription;
        const struct policy *policy = subscription->topic->policy;
        char text[STREAM_ID_BYTES_MAX];
        struct buffer stream = buffer_over(text, sizeof(text));
        bool is_pending = subscription_is_pending(subscription);
        has_pending = has_pending || is_pending;
        if (i > 0)
            buffer_append_byte(&body, ',');
        struct object_writer window = object_begin(&body);
        buffer_note(&body, address_stream(subscription->topic->name, &stream));
        object_text(&window, SLICE("topic"), subscription->topic->name);
        object_text(&window, SLICE("stream_id"), buffer_slice(&stream));
        if (is_pending)
            object_json(&window, SLICE("pending"), SLICE("true"));
        object_text(&window, SLICE("epoch"), slice_of(subscription_epoch(subscription)->text));
        object_number(&window, SLICE("oldest_seq"), subscription->start->window.oldest_seq);
        object_number(&window, SLICE("head_seq"), subscription->head_seq);
        object_number(&window, SLICE("replay_budget_events"), policy->replay_budget_events);
        object_text(&window, SLICE("qos_tier"), slice_of(qos_tier_name(policy->qos_tier)));
        if (subscription->is_bootstrap) {
            object_json(&window, SLICE("bootstrap"), SLICE(""));
            notice_bootstrap(subscriber, &body);
        } else {
            position_put(&window, SLICE("resume_after"), subscription->next_seq - 1,
                         subscription_given_epoch(subscription));
        }
        object_close(&window);
    }
    buffer_append_byte(&body, ']');
    if (has_pending)
        object_json(&object, SLICE("pending"), SLICE("true"));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_reply(session, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status reply_stale(struct session *session, const struct session_opening *opening,
                               const struct phoenix_address *to) {
    struct stale_topic *stale = calloc(opening->count, sizeof(*stale));
    struct buffer body;
    size_t count = 0;
    if (!stale)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < opening->count; i++) {
        const struct subscription *subscription = &opening->subscribers[i]->subscription;
        if (subscription->state != SUBSCRIPTION_STALE)
            continue;
        session_log_stale(opening->subscribers[i]);
        stale[count++] = subscription_stale(subscription);
    }
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    enum status status = stale_write_json(&body, stale, count);
    if (status == STATUS_OK)
        status = phoenix_send_error_body(session, to, STATUS_STALE_CURSOR, buffer_slice(&body));
    buffer_release(&body);
    free(stale);
    return status;
}

void phoenix_opened(struct session *session, struct session_opening *opening) {
    struct subscribe_request *request = opening->user;
    struct phoenix_address to = phoenix_request_address(&request->base);
    enum status found = opening->status;
    enum status status;
    for (size_t i = 0; found == STATUS_OK && i < opening->count; i++) {
        const struct subscription *subscription = &opening->subscribers[i]->subscription;
        found =
            subscription->state == SUBSCRIPTION_STALE ? STATUS_STALE_CURSOR : subscription->status;
    }
    if (found == STATUS_OK) {
        /* A topic that is subscribed to again begins at its new position. The subscribers of the
         * opening are not started yet. */
        for (struct subscriber *one = session_first(session), *next; one; one = next) {
            next = subscriber_next(one);
            if (subscriber_is_started(one) &&
                subscribe_has_topic(&request->subscribe, one->subscription.topic->name))
                subscriber_drop(one);
        }
        subscribers_dropped(session);
        /* Before the reply, which names the first position. No frame is sent before the reply. */
        for (size_t i = 0; i < opening->count; i++)
            subscriber_start(opening->subscribers[i]);
        status = reply_subscribed(session, opening, &to);
    } else {
        status = found == STATUS_STALE_CURSOR ? reply_stale(session, opening, &to)
                                              : phoenix_send_error(session, &to, found);
        drop_opening(session, opening);
    }
    request_free(request);
    /* The reply of a subscribe leaves at the turn of its first topic, together with the page. */
    if (found != STATUS_OK || status != STATUS_OK)
        phoenix_flush(session, status);
}

void phoenix_opening_gone(struct session_opening *opening) {
    request_free(opening->user);
}

enum status phoenix_subscribe(struct session *session, const struct phoenix_message *message,
                              const struct phoenix_address *to) {
    char text[SCOPES_NEEDED_BYTES_MAX];
    struct subscribe_request *request = calloc(1, sizeof(*request));
    if (!request)
        return phoenix_send_error(session, to, STATUS_OUT_OF_MEMORY);
    phoenix_request_init(&request->base, session, to);
    request->base.call =
        (struct session_lookup){.run = call_run, .done = call_done, .free = call_free};
    enum status status = subscribe_read(&request->subscribe, message->payload,
                                        settings_of(session)->subscriptions_max);
    if (status != STATUS_OK) {
        /* The text may be in the request. */
        status =
            phoenix_send_fault(session, to, status, fault_of(&request->subscribe, status, text));
        request_free(request);
        return status;
    }
    if (subscribe_entitle_by_names(&request->subscribe, session->principal))
        call_done(session, &request->base.call, STATUS_OK);
    else
        session_look_up(session, &request->base.call);
    return STATUS_OK;
}

/* ---- unsubscribing ---- */

enum status phoenix_unsubscribe(struct session *session, const struct phoenix_message *message,
                                const struct phoenix_address *to) {
    struct subscribe wanted;
    struct buffer body;
    enum status status =
        subscribe_read(&wanted, message->payload, settings_of(session)->subscriptions_max);
    /* The stream's name is computed once for each subscriber; once for each name of the request
     * would block the loop. */
    for (struct subscriber *one = session_first(session), *next; status == STATUS_OK && one;
         one = next) {
        char text[STREAM_ID_BYTES_MAX];
        struct buffer stream = buffer_over(text, sizeof(text));
        struct slice topic = one->subscription.topic->name;
        next = subscriber_next(one);
        if (one->state != SUBSCRIBER_LEAVING && address_stream(topic, &stream) == STATUS_OK &&
            (subscribe_has_topic(&wanted, topic) ||
             subscribe_has_stream(&wanted, buffer_slice(&stream))))
            subscriber_drop(one);
    }
    if (status == STATUS_OK)
        subscribers_dropped(session);
    subscribe_release(&wanted);
    if (status != STATUS_OK)
        return phoenix_send_error(session, to, status);
    buffer_init(&body, PHOENIX_REPLY_BYTES_MAX);
    buffer_append_slice(&body, SLICE("{\"topics\":"));
    write_names(session, &body);
    status = buffer_append_byte(&body, '}');
    if (status == STATUS_OK)
        status = phoenix_send_reply(session, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}