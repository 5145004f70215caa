/* Phoenix Channels V2: one channel, sync:v1, on which topics are subscribed to.
 *
 * A subscribe is looked at in two reads: first what its names stand for, then, when the topics are
 * watched, where each cursor stands. Only if all can go on is any of them begun; the messages that
 * come meanwhile wait. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "auth/compatibility_claim.h"
#include "authority/object_writer.h"
#include "delivery/stale.h"
#include "server/dialect.h"
#include "server/handlers.h"
#include "server/link_snapshot.h"
#include "server/link_token.h"
#include "server/notices.h"
#include "server/phoenix_form.h"
#include "server/server.h"
#include "server/subscribe.h"
#include "server/websocket.h"
#include "server/welcome.h"
#include "topic/stream_id.h"
#include "wire/phoenix.h"

#define REPLY_BYTES_MAX (32u << 20)
#define DEPTH_MAX       16
/* A part, which may be one document of any size. */
#define SNAPSHOT_BYTES_MAX (160u << 20)
/* The same, with its event and channel around it. */
#define PUSH_BYTES_MAX (SNAPSHOT_BYTES_MAX + 4096)

struct phoenix {
    bool is_joined;
    size_t join_ref_size;
    char join_ref[PHOENIX_REF_BYTES_MAX];
    char subscription_id[UUID_TEXT_SIZE];
    struct compatibility_claim *claim; /* of the socket's query; NULL while the gate is open */
};

static void phoenix_free(void *state) {
    struct phoenix *phoenix = state;
    free(phoenix->claim);
    free(phoenix);
}

/* What a reply that comes later answers. */
struct phoenix_request {
    struct link_call call; /* first */
    struct subscribe subscribe;
    struct buffer topics; /* of a join: what may be read, and how far that is */
    struct buffer watermarks;
    const struct principal *principal; /* the link's, while the link waits for this */
    enum status status;
    bool has_join_ref;
    bool has_ref;
    size_t join_ref_size;
    size_t ref_size;
    char join_ref[PHOENIX_REF_BYTES_MAX];
    char ref[PHOENIX_REF_BYTES_MAX];
};

static const struct page_form *form_of(const struct link *link, bool frames) {
    return phoenix_form(frames, websocket_deflates(link));
}

/* ---- saying ---- */

static enum status say_push(struct link *link, struct slice event, struct slice payload) {
    struct buffer text;
    buffer_init(&text, PUSH_BYTES_MAX);
    enum status status = phoenix_write_push(&text, PHOENIX_NULL, PHOENIX_CHANNEL, event, payload);
    if (status == STATUS_OK)
        status = websocket_say(link, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

static enum status say_reply(struct link *link, const struct phoenix_address *to, bool ok,
                             struct slice response) {
    struct buffer text;
    buffer_init(&text, REPLY_BYTES_MAX);
    enum status status = phoenix_write_reply(&text, to, ok, response);
    if (status == STATUS_OK)
        status = websocket_say(link, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

/* An error of that status, in reply; the body says it. */
static enum status say_refused(struct link *link, const struct phoenix_address *to,
                               enum status error, struct slice body) {
    link_tell_error(link, error);
    return say_reply(link, to, false, body);
}

static enum status write_error(enum status error, struct buffer *out) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(error)));
    object_text(&object, SLICE("message"), slice_of(status_message(error)));
    return object_end(&object);
}

static enum status say_refusal(struct link *link, const struct phoenix_address *to,
                               enum status error) {
    struct buffer body;
    buffer_init(&body, 4096);
    enum status status = write_error(error, &body);
    if (status == STATUS_OK)
        status = say_refused(link, to, error, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* ---- requests that are answered later ---- */

static struct phoenix_address address_of(const struct phoenix_request *request) {
    return (struct phoenix_address){
        request->has_join_ref ? (struct slice){request->join_ref, request->join_ref_size}
                              : PHOENIX_NULL,
        request->has_ref ? (struct slice){request->ref, request->ref_size} : PHOENIX_NULL,
        PHOENIX_CHANNEL};
}

static void request_free(struct phoenix_request *request) {
    subscribe_release(&request->subscribe);
    buffer_release(&request->topics);
    buffer_release(&request->watermarks);
    free(request);
}

static void call_free(struct link_call *call) {
    request_free((struct phoenix_request *)call);
}

static struct phoenix_request *request_make(const struct link *link,
                                            const struct phoenix_address *to) {
    struct phoenix_request *request = calloc(1, sizeof(*request));
    if (!request)
        return NULL;
    request->principal = link->principal;
    request->has_join_ref = to->join_ref.data != NULL;
    request->has_ref = to->ref.data != NULL;
    request->join_ref_size = to->join_ref.size;
    request->ref_size = to->ref.size;
    if (request->has_join_ref)
        memcpy(request->join_ref, to->join_ref.data, to->join_ref.size);
    if (request->has_ref)
        memcpy(request->ref, to->ref.data, to->ref.size);
    arena_init(&request->subscribe.arena, 1);
    buffer_init(&request->topics, REPLY_BYTES_MAX);
    buffer_init(&request->watermarks, REPLY_BYTES_MAX);
    return request;
}

/* A reply that cannot be written ends the link: its client would wait for ever. */
static void settle(struct link *link, enum status status) {
    if (status == STATUS_OK)
        link_flush(link);
    else
        websocket_close(link, CLOSE_INTERNAL_ERROR, slice_of(status_message(status)));
}

static void refuse(struct link *link, struct phoenix_request *request, enum status error) {
    struct phoenix_address to = address_of(request);
    enum status status = say_refusal(link, &to, error);
    request_free(request);
    settle(link, status);
}

/* ---- joining ---- */

static void drop_all(struct link *link) {
    for (struct link_reader *reader = link->readers, *next; reader; reader = next) {
        next = reader->next;
        link_reader_drop(reader);
    }
}

static void put_server(struct object_writer *object, const struct link *link) {
    char text[128];
    int size = snprintf(text, sizeof(text),
                        "{\"version\":\"" KHALA_VERSION "\",\"heartbeat_interval_ms\":%" PRIu64 "}",
                        link->server->config.heartbeat_ms);
    object_json(object, SLICE("server"), (struct slice){text, (size_t)size});
}

/* The reply, once what may be read was looked up. */
static enum status say_joined(struct link *link, const struct phoenix_request *request) {
    struct phoenix_address to = address_of(request);
    struct phoenix *phoenix = link->state;
    struct uuid id = uuid7_next(&link->loop->ids, clock_wall_ms(&link->loop->clock));
    struct buffer body;
    phoenix->is_joined = true;
    phoenix->join_ref_size = to.join_ref.size;
    if (to.join_ref.size > 0)
        memcpy(phoenix->join_ref, to.join_ref.data, to.join_ref.size);
    uuid_format(&id, phoenix->subscription_id);
    buffer_init(&body, REPLY_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("subscription_id"),
                (struct slice){phoenix->subscription_id, UUID_TEXT_SIZE});
    object_text(&object, SLICE("epoch"), slice_of(link->server->epoch));
    object_json(&object, SLICE("allowed_topics"), buffer_slice(&request->topics));
    object_json(&object, SLICE("current_watermarks"), buffer_slice(&request->watermarks));
    put_server(&object, link);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = say_reply(link, &to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static void join_run(struct link_call *call, struct store_session *session) {
    struct phoenix_request *request = (struct phoenix_request *)call;
    request->status =
        welcome_write(session, request->principal, &request->topics, &request->watermarks);
}

static void join_done(struct link *link, struct link_call *call, enum status status) {
    struct phoenix_request *request = (struct phoenix_request *)call;
    if (status == STATUS_OK)
        status = request->status;
    if (status != STATUS_OK) {
        refuse(link, request, status);
        return;
    }
    status = say_joined(link, request);
    request_free(request);
    settle(link, status);
}

static enum status join(struct link *link, const struct phoenix_address *to) {
    struct phoenix_request *request = request_make(link, to);
    if (!request)
        return say_refusal(link, to, STATUS_OUT_OF_MEMORY);
    drop_all(link);
    request->call = (struct link_call){.run = join_run, .done = join_done, .free = call_free};
    link_call(link, &request->call);
    return STATUS_OK;
}

/* What the join says of its client wins over what the socket's query said. */
static enum status check_client(const struct link *link, const struct phoenix_message *message) {
    const struct phoenix *phoenix = link->state;
    if (!phoenix->claim)
        return STATUS_OK;
    struct compatibility_claim claim = *phoenix->claim;
    compatibility_claim_json(&claim, message->payload);
    struct compatibility_client client = compatibility_claim_client(&claim);
    return compatibility_check(&link->server->gate.compatibility, &client);
}

static enum status refuse_client(struct link *link, const struct phoenix_address *to,
                                 enum status refusal) {
    struct buffer body;
    buffer_init(&body, 4096);
    link_tell_refused(link, (struct slice){NULL, 0}, refusal);
    enum status status =
        compatibility_write_json(&link->server->gate.compatibility, refusal, &body);
    if (status == STATUS_OK)
        status = say_refused(link, to, refusal, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status ask_to_join(struct link *link, const struct phoenix_message *message,
                               const struct phoenix_address *to) {
    enum status refusal = check_client(link, message);
    return refusal == STATUS_OK ? join(link, to) : refuse_client(link, to, refusal);
}

static enum status leave(struct link *link, const struct phoenix_address *to) {
    struct phoenix *phoenix = link->state;
    struct buffer text;
    drop_all(link);
    phoenix->is_joined = false;
    enum status status = say_reply(link, to, true, SLICE("{}"));
    buffer_init(&text, 4096);
    if (status == STATUS_OK)
        status = phoenix_write_close(
            &text, (struct slice){phoenix->join_ref, phoenix->join_ref_size}, PHOENIX_CHANNEL);
    if (status == STATUS_OK)
        status = websocket_say(link, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

/* ---- subscribing ---- */

static void call_run(struct link_call *call, struct store_session *session) {
    struct phoenix_request *request = (struct phoenix_request *)call;
    request->status = subscribe_resolve(&request->subscribe, session);
    if (request->status == STATUS_OK)
        request->status = subscribe_entitle(&request->subscribe, session, request->principal);
}

static enum status make_readers(struct link *link, const struct subscribe *subscribe,
                                struct link_opening *opening) {
    enum status status = STATUS_OK;
    opening->count = 0;
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        bool has_cursor = item->has_cursor && !subscribe->bootstrap;
        const struct subscription_options options = {
            .view = item->grant.view,
            .has_cursor = has_cursor,
            .after_seq = has_cursor ? item->after_seq : 0,
            .epoch_differs = has_cursor && subscribe->epoch_differs,
        };
        struct link_reader *reader;
        status = link_reader_make(link, item->topic, &options, &reader);
        if (status != STATUS_OK)
            break;
        reader->form = form_of(link, subscribe->frames);
        reader->frames_max = subscribe->batch_size;
        opening->readers[opening->count++] = reader;
    }
    return status;
}

static void drop_opening(struct link_opening *opening) {
    for (size_t i = 0; i < opening->count; i++)
        link_reader_drop(opening->readers[i]);
}

/* Subscriptions that stay beside those asked for, which take the place of their like. */
static size_t count_others(const struct link *link, const struct subscribe *subscribe) {
    size_t count = 0;
    for (const struct link_reader *reader = link->readers; reader; reader = reader->next)
        count += reader->is_leaving ? 0 : 1;
    for (size_t i = 0; i < subscribe->count; i++)
        count -= link_reader_find(link, subscribe->items[i].topic) ? 1 : 0;
    return count;
}

static bool has_forbidden(const struct subscribe *subscribe) {
    for (size_t i = 0; i < subscribe->count; i++)
        if (subscribe->items[i].grant.status != STATUS_OK)
            return true;
    return false;
}

/* Names every topic that may not be read, with the reason of the first. */
static enum status write_forbidden(struct link *link, const struct subscribe *subscribe,
                                   struct buffer *out) {
    struct buffer names;
    const char *reason = "";
    buffer_init(&names, REPLY_BYTES_MAX);
    enum status status = buffer_append_byte(&names, '[');
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        if (item->grant.status == STATUS_OK)
            continue;
        link_tell_refused(link, item->topic, item->grant.status);
        if (*reason)
            status = buffer_append_byte(&names, ',');
        else
            reason = status_code(item->grant.status);
        if (status == STATUS_OK)
            status = json_write_string(&names, item->name);
    }
    if (status == STATUS_OK)
        status = buffer_append_byte(&names, ']');
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("code"), slice_of(status_code(STATUS_FORBIDDEN_TOPIC)));
    object_text(&object, SLICE("message"), slice_of(status_message(STATUS_FORBIDDEN_TOPIC)));
    object_text(&object, SLICE("reason_code"), slice_of(reason));
    object_json(&object, SLICE("forbidden_topics"), buffer_slice(&names));
    enum status ended = object_end(&object);
    buffer_release(&names);
    return status == STATUS_OK ? ended : status;
}

static void refuse_forbidden(struct link *link, struct phoenix_request *request) {
    struct phoenix_address to = address_of(request);
    struct buffer body;
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = write_forbidden(link, &request->subscribe, &body);
    if (status == STATUS_OK)
        status = say_refused(link, &to, STATUS_FORBIDDEN_TOPIC, buffer_slice(&body));
    buffer_release(&body);
    request_free(request);
    settle(link, status);
}

/* The names are topics now: watch them, then look where the cursors stand. */
static void call_done(struct link *link, struct link_call *call, enum status status) {
    struct phoenix_request *request = (struct phoenix_request *)call;
    size_t count = request->subscribe.count;
    struct link_opening *opening = NULL;
    if (status == STATUS_OK)
        status = request->status;
    if (status == STATUS_OK && has_forbidden(&request->subscribe)) {
        refuse_forbidden(link, request);
        return;
    }
    if (status == STATUS_OK &&
        count_others(link, &request->subscribe) + count > link->server->config.subscriptions_max)
        status = STATUS_LIMIT_REACHED;
    if (status == STATUS_OK) {
        opening = malloc(sizeof(*opening) + count * sizeof(struct link_reader *));
        status = opening ? make_readers(link, &request->subscribe, opening) : STATUS_OUT_OF_MEMORY;
    }
    if (status != STATUS_OK) {
        if (opening)
            drop_opening(opening);
        free(opening);
        refuse(link, request, status);
        return;
    }
    opening->user = request;
    link_open(link, opening);
}

static enum status write_window(const struct link_reader *reader, struct buffer *out) {
    const struct subscription *subscription = &reader->subscription;
    const struct policy *policy = subscription->options.policy;
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    enum status status = topic_to_stream(subscription->options.topic, &stream);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), subscription->options.topic);
    object_text(&object, SLICE("stream_id"), buffer_slice(&stream));
    object_number(&object, SLICE("oldest_seq"), subscription->window.oldest_seq);
    object_number(&object, SLICE("head_seq"), subscription->window.head_seq);
    object_number(&object, SLICE("replay_budget_events"), policy->replay_budget_events);
    object_text(&object, SLICE("qos_tier"), slice_of(qos_tier_name(policy->qos_tier)));
    if (subscription->is_bootstrap) {
        char bootstrap[80];
        struct buffer body = {
            .data = bootstrap, .capacity = sizeof(bootstrap), .size_max = sizeof(bootstrap)};
        if (notice_bootstrap(reader, &body) == STATUS_OK)
            object_json(&object, SLICE("bootstrap"), buffer_slice(&body));
    } else {
        object_number(&object, SLICE("resume_after"), subscription->next_seq - 1);
    }
    enum status ended = object_end(&object);
    return status == STATUS_OK ? ended : status;
}

static enum status write_names(const struct link *link, struct buffer *out) {
    bool has_one = false;
    enum status status = buffer_append_byte(out, '[');
    for (const struct link_reader *reader = link->readers; status == STATUS_OK && reader;
         reader = reader->next) {
        if (!reader->is_open)
            continue;
        if (has_one)
            status = buffer_append_byte(out, ',');
        has_one = true;
        if (status == STATUS_OK)
            status = json_write_string(out, reader->subscription.options.topic);
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

static enum status write_windows(const struct link_opening *opening, struct buffer *out) {
    enum status status = buffer_append_byte(out, '[');
    for (size_t i = 0; status == STATUS_OK && i < opening->count; i++) {
        if (i > 0)
            status = buffer_append_byte(out, ',');
        if (status == STATUS_OK)
            status = write_window(opening->readers[i], out);
    }
    return status == STATUS_OK ? buffer_append_byte(out, ']') : status;
}

static enum status say_subscribed(struct link *link, const struct link_opening *opening,
                                  const struct phoenix_address *to) {
    const struct phoenix *phoenix = link->state;
    struct buffer names;
    struct buffer watermarks;
    struct buffer windows;
    struct buffer body;
    buffer_init(&names, REPLY_BYTES_MAX);
    buffer_init(&watermarks, REPLY_BYTES_MAX);
    buffer_init(&windows, REPLY_BYTES_MAX);
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = write_names(link, &names);
    if (status == STATUS_OK)
        status = notice_watermarks(link, &watermarks);
    if (status == STATUS_OK)
        status = write_windows(opening, &windows);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("subscription_id"),
                (struct slice){phoenix->subscription_id, UUID_TEXT_SIZE});
    object_text(&object, SLICE("epoch"), slice_of(link->server->epoch));
    object_json(&object, SLICE("topics"), buffer_slice(&names));
    object_json(&object, SLICE("current_watermarks"), buffer_slice(&watermarks));
    object_json(&object, SLICE("windows"), buffer_slice(&windows));
    enum status ended = object_end(&object);
    if (status == STATUS_OK)
        status = ended;
    if (status == STATUS_OK)
        status = say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&names);
    buffer_release(&watermarks);
    buffer_release(&windows);
    buffer_release(&body);
    return status;
}

static enum status say_stale(struct link *link, const struct link_opening *opening,
                             const struct phoenix_address *to) {
    struct stale_topic *stale = calloc(opening->count, sizeof(*stale));
    struct buffer body;
    size_t count = 0;
    if (!stale)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < opening->count; i++) {
        const struct subscription *subscription = &opening->readers[i]->subscription;
        if (!subscription->is_stale)
            continue;
        link_tell_stale(opening->readers[i]);
        stale[count++] =
            (struct stale_topic){subscription->options.topic, subscription->options.policy,
                                 subscription_continuity(subscription)};
    }
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = stale_write_json(&body, stale, count);
    if (status == STATUS_OK)
        status = say_refused(link, to, STATUS_STALE_CURSOR, buffer_slice(&body));
    buffer_release(&body);
    free(stale);
    return status;
}

static enum status look_at(const struct link_opening *opening) {
    enum status status = opening->status;
    for (size_t i = 0; status == STATUS_OK && i < opening->count; i++) {
        const struct subscription *subscription = &opening->readers[i]->subscription;
        status = subscription->is_stale ? STATUS_STALE_CURSOR : subscription->status;
    }
    return status;
}

/* Whoever subscribes again begins where it says now. */
static void start_all(struct link *link, const struct link_opening *opening) {
    for (size_t i = 0; i < opening->count; i++) {
        struct slice topic = opening->readers[i]->subscription.options.topic;
        for (struct link_reader *reader = link->readers, *next; reader; reader = next) {
            next = reader->next;
            if (reader != opening->readers[i] && reader->is_open &&
                slice_equal(reader->subscription.options.topic, topic))
                link_reader_drop(reader);
        }
        /* Before the reply, which says what it begins with; nothing is sent before that is. */
        link_reader_start(opening->readers[i]);
    }
}

static void opened(struct link *link, struct link_opening *opening) {
    struct phoenix_request *request = opening->user;
    struct phoenix_address to = address_of(request);
    enum status found = look_at(opening);
    enum status status;
    if (found == STATUS_OK) {
        start_all(link, opening);
        status = say_subscribed(link, opening, &to);
    } else {
        status = found == STATUS_STALE_CURSOR ? say_stale(link, opening, &to)
                                              : say_refusal(link, &to, found);
        drop_opening(opening);
    }
    request_free(request);
    settle(link, status);
}

static void opening_gone(struct link_opening *opening) {
    request_free(opening->user);
}

static enum status subscribe(struct link *link, const struct phoenix_message *message,
                             const struct phoenix_address *to) {
    struct phoenix_request *request = request_make(link, to);
    if (!request)
        return say_refusal(link, to, STATUS_OUT_OF_MEMORY);
    request->call = (struct link_call){call_run, call_done, call_free, NULL};
    enum status status =
        subscribe_read(&request->subscribe, message->payload, slice_of(link->server->epoch),
                       link->server->config.subscriptions_max);
    if (status != STATUS_OK) {
        request_free(request);
        return say_refusal(link, to, status);
    }
    link_call(link, &request->call);
    return STATUS_OK;
}

/* ---- the other messages ---- */

static bool names(const struct subscribe *wanted, struct slice topic, struct slice stream) {
    for (size_t i = 0; i < wanted->count; i++)
        if (slice_equal(wanted->items[i].name, wanted->items[i].is_stream ? stream : topic))
            return true;
    return false;
}

/* Of one that is subscribed to, the stream's name follows from the topic's: once for each, since
 * once for each that is asked about would hold up the loop. */
static void drop_named(struct link *link, const struct subscribe *wanted) {
    for (struct link_reader *reader = link->readers, *next; reader; reader = next) {
        char text[STREAM_ID_BYTES_MAX];
        struct buffer stream = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
        struct slice topic = reader->subscription.options.topic;
        next = reader->next;
        if (reader->is_leaving || topic_to_stream(topic, &stream) != STATUS_OK)
            continue;
        if (names(wanted, topic, buffer_slice(&stream)))
            link_reader_drop(reader);
    }
}

static enum status unsubscribe(struct link *link, const struct phoenix_message *message,
                               const struct phoenix_address *to) {
    struct subscribe wanted;
    struct buffer body;
    enum status status = subscribe_read(&wanted, message->payload, slice_of(link->server->epoch),
                                        link->server->config.subscriptions_max);
    if (status == STATUS_OK)
        drop_named(link, &wanted);
    subscribe_release(&wanted);
    if (status != STATUS_OK)
        return say_refusal(link, to, status);
    buffer_init(&body, REPLY_BYTES_MAX);
    status = buffer_append_slice(&body, SLICE("{\"topics\":"));
    if (status == STATUS_OK)
        status = write_names(link, &body);
    if (status == STATUS_OK)
        status = buffer_append_byte(&body, '}');
    if (status == STATUS_OK)
        status = say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status write_watermarks(const struct link *link, struct buffer *body) {
    enum status status = buffer_append_slice(body, SLICE("{\"watermarks\":"));
    if (status == STATUS_OK)
        status = notice_watermarks(link, body);
    return status == STATUS_OK ? buffer_append_byte(body, '}') : status;
}

static enum status answer_heartbeat(struct link *link, const struct phoenix_message *message,
                                    const struct phoenix_address *to) {
    struct buffer body;
    (void)message;
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = write_watermarks(link, &body);
    if (status == STATUS_OK)
        status = say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

/* A new token for the one the connection came with: of the same principal, or it is refused. What
 * was subscribed to stays, and so does the old token where the new one may not read all of it. */
static enum status refresh(struct link *link, const struct phoenix_message *message,
                           const struct phoenix_address *to) {
    struct json_field field = {.name = SLICE("token")};
    struct buffer token;
    struct buffer body;
    const struct principal *principal = NULL;
    buffer_init(&token, TOKEN_BYTES_MAX);
    enum status status = json_read_members(message->payload, &field, 1);
    if (status == STATUS_OK && field.present)
        status = json_string_decode(field.value, &token);
    if (status != STATUS_OK || !field.present)
        status = STATUS_INVALID_MESSAGE;
    if (status == STATUS_OK)
        status = gate_admit_token(&link->server->gate, buffer_slice(&token),
                                  clock_wall_ms(&link->loop->clock), &principal, NULL);
    buffer_release(&token);
    if (status == STATUS_OK)
        status = link_refresh(link, principal);
    principal_unref(principal);
    if (status != STATUS_OK) {
        if (status_http(status) == 401 || status_http(status) == 403)
            link_tell_refused(link, (struct slice){NULL, 0}, status);
        return say_refusal(link, to, status);
    }
    buffer_init(&body, 256);
    status = buffer_printf(&body, "{\"expires_at\":%" PRIu64 "}", link->principal->expires_at_ms);
    if (status == STATUS_OK)
        status = say_reply(link, to, true, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status on_channel(struct link *link, const struct phoenix_message *message,
                              const struct phoenix_address *to) {
    static const struct {
        struct slice event;
        enum status (*answer)(struct link *link, const struct phoenix_message *message,
                              const struct phoenix_address *to);
    } events[] = {
        {SLICE("sync:subscribe"), subscribe},
        {SLICE("sync:unsubscribe"), unsubscribe},
        {SLICE("sync:heartbeat"), answer_heartbeat},
        {SLICE("sync:refresh"), refresh},
    };
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (slice_equal(message->event, events[i].event))
            return events[i].answer(link, message, to);
    return say_refusal(link, to, STATUS_INVALID_MESSAGE);
}

static enum status receive(struct link *link, struct slice text) {
    const struct phoenix *phoenix = link->state;
    const struct json_limits limits = {link->server->config.message_bytes_max, DEPTH_MAX};
    struct phoenix_message message;
    enum status status = phoenix_decode(text, &limits, &message);
    if (status != STATUS_OK)
        return status == STATUS_OUT_OF_MEMORY ? status : STATUS_INVALID_MESSAGE;
    struct phoenix_address to = {message.join_ref, message.ref, message.topic};
    if (websocket_is_flooding(link, text.size)) {
        status = say_refusal(link, &to, STATUS_RATE_LIMITED);
        return status == STATUS_OK ? STATUS_RATE_LIMITED : status;
    }
    if (slice_equal(message.topic, SLICE("phoenix")) &&
        slice_equal(message.event, SLICE("heartbeat")))
        return say_reply(link, &to, true, SLICE("{}"));
    if (!slice_equal(message.topic, PHOENIX_CHANNEL))
        return say_refusal(link, &to, STATUS_BAD_TOPIC);
    if (slice_equal(message.event, SLICE("phx_join")))
        return ask_to_join(link, &message, &to);
    if (slice_equal(message.event, SLICE("phx_leave")))
        return leave(link, &to);
    if (!phoenix->is_joined)
        return say_refusal(link, &to, STATUS_BAD_TOPIC);
    return on_channel(link, &message, &to);
}

/* ---- notices ---- */

static enum status say_error(struct link *link, enum status error, struct slice body) {
    link_tell_error(link, error);
    return say_push(link, SLICE("sync:error"), body);
}

static enum status tell_caught_up(struct link_reader *reader, struct buffer *out) {
    const struct subscription *subscription = &reader->subscription;
    struct buffer body;
    (void)out;
    buffer_init(&body, 4096);
    enum status status =
        phoenix_empty_batch(subscription->options.topic, subscription->next_seq - 1,
                            subscription->window.head_seq, &body);
    if (status == STATUS_OK)
        status = say_push(reader->link, SLICE("sync:update_batch"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_snapshot(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, SNAPSHOT_BYTES_MAX);
    enum status status = link_snapshot_write(reader->snapshot, &body);
    if (status == STATUS_OK)
        status = say_push(reader->link, SLICE("sync:snapshot"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_stale(struct link_reader *reader, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, 65536);
    enum status status = notice_stale(reader, &body);
    if (status == STATUS_OK)
        status = say_error(reader->link, STATUS_STALE_CURSOR, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status heartbeat(struct link *link, struct buffer *out) {
    const struct phoenix *phoenix = link->state;
    struct buffer body;
    (void)out;
    if (!phoenix->is_joined)
        return STATUS_OK;
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = write_watermarks(link, &body);
    if (status == STATUS_OK)
        status = say_push(link, SLICE("sync:heartbeat"), buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_slow(struct link *link, struct buffer *out) {
    char reason[124];
    struct buffer body;
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = notice_slow(link, &body);
    if (status == STATUS_OK)
        status = say_error(link, STATUS_SLOW_CONSUMER, buffer_slice(&body));
    buffer_release(&body);
    notice_resume(link, reason);
    return status == STATUS_OK ? ws_close_write(out, CLOSE_SLOW_CONSUMER, slice_of(reason))
                               : status;
}

/* The error that ends it, with the positions to come back with. */
static enum status tell_end(struct link *link, enum status why, uint64_t retry_after_ms,
                            enum close_code code, struct buffer *out) {
    struct buffer body;
    char reason[124];
    buffer_init(&body, REPLY_BYTES_MAX);
    enum status status = notice_end(link, why, retry_after_ms, &body);
    if (status == STATUS_OK)
        status = say_error(link, why, buffer_slice(&body));
    buffer_release(&body);
    notice_resume(link, reason);
    return status == STATUS_OK ? ws_close_write(out, (unsigned)code, slice_of(reason)) : status;
}

static enum status tell_leaving(struct link *link, uint64_t retry_after_ms, struct buffer *out) {
    return tell_end(link, STATUS_SHUTTING_DOWN, retry_after_ms, CLOSE_RESTARTING, out);
}

static enum status tell_reauth(struct link *link, uint64_t left_ms, struct buffer *out) {
    struct buffer body;
    (void)out;
    buffer_init(&body, 4096);
    enum status status = notice_reauth(left_ms, &body);
    if (status == STATUS_OK)
        status = say_error(link, STATUS_REAUTH_REQUIRED, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

static enum status tell_failed(struct link *link, enum status failed, struct buffer *out) {
    /* The dialect has one word for whatever is too large. */
    enum status why = failed == STATUS_WS_MESSAGE_TOO_BIG ? STATUS_PAYLOAD_TOO_LARGE : failed;
    return tell_end(link, why, 0, ws_close_code(why), out);
}

static const struct dialect phoenix_dialect = {
    .label = LABEL_DIALECT_PHOENIX,
    .receive = receive,
    .opened = opened,
    .opening_gone = opening_gone,
    .snapshot = tell_snapshot,
    .caught_up = tell_caught_up,
    .page_says_caught_up = true,
    .stale = tell_stale,
    .failed = tell_failed,
    .reauth = tell_reauth,
    .heartbeat = heartbeat,
    .slow = tell_slow,
    .leaving = tell_leaving,
    .state_free = phoenix_free,
};

/* Only version 2 of the protocol is spoken; who does not say is taken to speak it. */
static enum status check_version(const struct exchange *exchange) {
    struct buffer version;
    bool found;
    buffer_init(&version, 16);
    enum status status = http1_query_find(exchange->request->query, SLICE("vsn"), &version, &found);
    if (status == STATUS_OK && found && !slice_starts(buffer_slice(&version), SLICE("2.")))
        status = STATUS_INVALID_REQUEST;
    buffer_release(&version);
    return status == STATUS_PAYLOAD_TOO_LARGE ? STATUS_INVALID_REQUEST : status;
}

static struct phoenix *phoenix_make(const struct exchange *exchange) {
    struct phoenix *phoenix = calloc(1, sizeof(*phoenix));
    if (!phoenix || !exchange->server->gate.compatibility.is_enforced)
        return phoenix;
    phoenix->claim = calloc(1, sizeof(*phoenix->claim));
    if (!phoenix->claim) {
        phoenix_free(phoenix);
        return NULL;
    }
    compatibility_claim_query(phoenix->claim, exchange->request->query);
    return phoenix;
}

void handle_phoenix(struct exchange *exchange) {
    enum status status = check_version(exchange);
    if (status != STATUS_OK) {
        exchange_answer_error(
            exchange, &(struct exchange_error){.status = status,
                                               .message = "Only vsn=2.0.0 is spoken here."});
        return;
    }
    struct phoenix *phoenix = phoenix_make(exchange);
    if (!phoenix)
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    else
        (void)websocket_open(exchange, &phoenix_dialect, exchange->principal, phoenix);
}
