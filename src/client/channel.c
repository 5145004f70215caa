/* Requests of the channel are pushes, which wait in a list for their replies; a reply names its
 * push by reference. Followers that want to be subscribed are gathered until channel_flush, and
 * those that ask for the same go in one push. A refusal of a push with several
 * topics is divided: the topics that caused it get it, the others are subscribed again. */
#include "client/channel.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/client_limits.h"
#include "wire/http1_request.h"
#include "wire/object_writer.h"
#include "wire/phoenix.h"

#define CHANNEL          SLICE("sync:v1")
#define JOIN_REF         SLICE("1")
#define PATH             "/socket/websocket?vsn=2.0.0&token="
#define PROTOCOL_VERSION "khala.ws.v1"

#define REF_BYTES 24

enum push_kind { PUSH_JOIN, PUSH_REFRESH, PUSH_SUBSCRIBE, PUSH_UNSUBSCRIBE };

/* A request that waits for its reply. */
struct push {
    struct list_node node;
    char ref[REF_BYTES];
    enum push_kind kind;
    uint64_t at_ms;
    size_t count;
    uint64_t numbers[]; /* the followers that it subscribes; 0: settled */
};

struct channel {
    struct channel_options options;
    struct ws_client *socket;
    struct list pushes; /* the oldest first */
    size_t push_count;
    uint64_t last_ref;
    struct list wanted;
    bool is_closed;
    bool is_busy;
    bool has_last_error;
    struct client_error last_error; /* the close that follows has only a code */
};

static void free_channel(struct channel *channel) {
    struct list_node *node;
    while ((node = list_pop_front(&channel->pushes)))
        free(container_of(node, struct push, node));
    while (list_pop_front(&channel->wanted))
        ;
    free(channel);
}

static void report(struct channel *channel, const struct client_error *error) {
    if (!channel->is_closed)
        channel->options.events->closed(channel->options.user, error);
}

static void report_own(struct channel *channel, const char *code, const char *message) {
    struct client_error error = client_error_make(CLIENT_POLICY_RETRY, code, message);
    report(channel, &error);
}

/* ---- requests ----------------------------------------------------------------------------- */

static enum status send_message(struct channel *channel, const struct phoenix_address *address,
                                struct slice event, struct slice payload) {
    struct buffer text;
    buffer_init(&text, CLIENT_OUT_BYTES_MAX);
    enum status status = phoenix_write(&text, address, event, payload);
    if (status == STATUS_OK)
        status = ws_client_send(channel->socket, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

static struct slice next_ref(struct channel *channel, char ref[REF_BYTES]) {
    int size = snprintf(ref, REF_BYTES, "%" PRIu64, ++channel->last_ref);
    return (struct slice){ref, (size_t)size};
}

/* A push with room for so many followers, and none yet. NULL: no memory, or too many requests
 * without a reply. */
static struct push *make_push(struct channel *channel, enum push_kind kind, size_t count) {
    struct push *push = calloc(1, sizeof(*push) + count * sizeof(push->numbers[0]));
    if (!push || channel->push_count >= CLIENT_PUSHES_MAX) {
        free(push);
        return NULL;
    }
    (void)next_ref(channel, push->ref);
    push->kind = kind;
    push->at_ms = clock_mono_now_ms();
    return push;
}

/* Removes the push with this reference from those that wait. NULL: there is none. */
static struct push *take_push(struct channel *channel, struct slice ref) {
    struct list_node *node = list_first(&channel->pushes);
    for (; node; node = list_next(&channel->pushes, node)) {
        struct push *push = container_of(node, struct push, node);
        if (!slice_equal(ref, slice_of(push->ref)))
            continue;
        list_remove(node);
        channel->push_count--;
        return push;
    }
    return NULL;
}

static bool push_has(const struct push *push, uint64_t number) {
    for (size_t i = 0; i < push->count; i++)
        if (push->numbers[i] == number)
            return true;
    return false;
}

/* Takes the push, which is freed if it cannot be sent. */
static enum status push_send(struct channel *channel, struct push *push, struct slice payload) {
    static const struct slice events[] = {[PUSH_JOIN] = {"phx_join", 8},
                                          [PUSH_REFRESH] = {"sync:refresh", 12},
                                          [PUSH_SUBSCRIBE] = {"sync:subscribe", 14},
                                          [PUSH_UNSUBSCRIBE] = {"sync:unsubscribe", 16}};
    if (!push)
        return STATUS_OUT_OF_MEMORY;
    const struct phoenix_address address = {JOIN_REF, slice_of(push->ref), CHANNEL};
    enum status status = send_message(channel, &address, events[push->kind], payload);
    if (status != STATUS_OK) {
        free(push);
        return status;
    }
    list_push_back(&channel->pushes, &push->node);
    channel->push_count++;
    return STATUS_OK;
}

enum status channel_join(struct channel *channel) {
    const char *build = channel->options.client_build_id;
    struct buffer payload;
    buffer_init(&payload, CLIENT_TOKEN_BYTES_MAX);
    struct object_writer object = object_begin(&payload);
    object_text(&object, SLICE("protocol_version"), SLICE(PROTOCOL_VERSION));
    object_number(&object, SLICE("schema_version"), 1);
    object_text_given(&object, SLICE("client_build_id"),
                      build ? slice_of(build) : (struct slice){NULL, 0});
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = push_send(channel, make_push(channel, PUSH_JOIN, 0), buffer_slice(&payload));
    buffer_release(&payload);
    return status;
}

enum status channel_refresh(struct channel *channel, struct slice token) {
    struct buffer payload;
    buffer_init(&payload, 2 * CLIENT_TOKEN_BYTES_MAX);
    struct object_writer object = object_begin(&payload);
    object_text(&object, SLICE("token"), token);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = push_send(channel, make_push(channel, PUSH_REFRESH, 0), buffer_slice(&payload));
    buffer_release(&payload);
    return status;
}

bool channel_heartbeat(struct channel *channel) {
    char ref[REF_BYTES];
    struct list_node *first = list_first(&channel->pushes);
    if (first &&
        clock_mono_now_ms() - container_of(first, struct push, node)->at_ms > CLIENT_REPLY_MS)
        return false;
    const struct phoenix_address address = {PHOENIX_NULL, next_ref(channel, ref), SLICE("phoenix")};
    return send_message(channel, &address, SLICE("heartbeat"), SLICE("{}")) == STATUS_OK;
}

enum status channel_unsubscribe(struct channel *channel, struct follower *follower) {
    struct buffer payload;
    if (list_node_is_linked(&follower->wanted_node)) {
        list_remove(&follower->wanted_node);
        return STATUS_OK;
    }
    buffer_init(&payload, 8 * CLIENT_TOPIC_BYTES_MAX);
    buffer_append_slice(&payload, SLICE("{\"topics\":["));
    json_write_string(&payload, slice_of(follower->follow.topic));
    enum status status = buffer_append_slice(&payload, SLICE("]}"));
    if (status == STATUS_OK)
        status =
            push_send(channel, make_push(channel, PUSH_UNSUBSCRIBE, 0), buffer_slice(&payload));
    buffer_release(&payload);
    return status;
}

/* ---- subscribing -------------------------------------------------------------------------- */

void channel_want(struct channel *channel, struct follower *follower) {
    follower->is_alone = false;
    if (!list_node_is_linked(&follower->wanted_node))
        list_push_back(&channel->wanted, &follower->wanted_node);
}

static bool is_same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether one push can subscribe both: it asks for the same of all its topics. */
static bool asks_the_same(const struct follower *a, const struct follower *b) {
    return is_same_text(a->since, b->since) && is_same_text(a->form, b->form) &&
           is_same_text(a->follow.replay, b->follow.replay) &&
           is_same_text(a->follow.where, b->follow.where) && a->follow.fold == b->follow.fold &&
           a->follow.conflate_ms == b->follow.conflate_ms;
}

/* All followers of a group ask for the same as the first. */
static enum status write_subscription(struct buffer *out, struct follower **group, size_t count) {
    const struct follower *first = group[0];
    bool has_position = false;
    buffer_append_slice(out, SLICE("{\"topics\":["));
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        json_write_string(out, slice_of(group[i]->follow.topic));
    }
    buffer_append_slice(out, SLICE("],\"resume_after\":["));
    for (size_t i = 0; i < count; i++) {
        const struct position *position = &group[i]->received.position;
        if (!group[i]->received.is_known)
            continue;
        if (has_position)
            buffer_append_byte(out, ',');
        has_position = true;
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), slice_of(group[i]->follow.topic));
        object_number(&object, SLICE("watermark"), position->seq);
        if (topic_epoch_is_known(&position->epoch))
            object_text(&object, SLICE("epoch"), slice_of(position->epoch.text));
        object_close(&object);
    }
    buffer_append_byte(out, ']');
    /* The server takes it for topics without a position. */
    if (first->since) {
        buffer_append_slice(out, SLICE(",\"since\":"));
        json_write_string(out, slice_of(first->since));
    }
    if (first->follow.replay) {
        buffer_append_slice(out, SLICE(",\"replay\":"));
        json_write_string(out, slice_of(first->follow.replay));
    }
    buffer_append_slice(out, SLICE(",\"form\":"));
    json_write_string(out, slice_of(first->form));
    /* A replay of everything has each event. */
    if (first->follow.fold && !first->follow.replay)
        buffer_append_slice(out, SLICE(",\"fold\":true"));
    if (first->follow.where) {
        buffer_append_slice(out, SLICE(",\"where\":"));
        buffer_append_slice(out, slice_of(first->follow.where));
    }
    if (first->follow.conflate_ms > 0)
        buffer_printf(out, ",\"conflate_ms\":%u", first->follow.conflate_ms);
    return buffer_append_byte(out, '}');
}

enum status channel_flush(struct channel *channel) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !list_is_empty(&channel->wanted)) {
        struct follower *group[CLIENT_TOPICS_PER_PUSH_MAX];
        struct list_node *node = list_first(&channel->wanted), *next;
        struct buffer payload;
        size_t count = 0;
        for (; node && count < CLIENT_TOPICS_PER_PUSH_MAX; node = next) {
            struct follower *follower = container_of(node, struct follower, wanted_node);
            next = list_next(&channel->wanted, node);
            if (count > 0 &&
                (group[0]->is_alone || follower->is_alone || !asks_the_same(group[0], follower)))
                continue;
            group[count++] = follower;
            list_remove(node);
        }
        assert(count > 0);
        struct push *push = make_push(channel, PUSH_SUBSCRIBE, count);
        for (size_t i = 0; push && i < count; i++)
            push->numbers[push->count++] = group[i]->number;
        buffer_init(&payload, CLIENT_OUT_BYTES_MAX);
        status = write_subscription(&payload, group, count);
        if (status == STATUS_OK)
            status = push_send(channel, push, buffer_slice(&payload));
        else
            free(push);
        buffer_release(&payload);
    }
    return status;
}

/* ---- replies ------------------------------------------------------------------------------ */

static struct follower *find_value(const struct channel *channel, struct json_value topic) {
    struct slice text;
    if (!json_string_slice(topic, &text))
        return NULL;
    return channel->options.events->find(channel->options.user, text);
}

static enum status take_window(struct follower *follower, struct json_value epoch,
                               struct json_value bootstrap, struct json_value resume_after) {
    struct json_field fields[] = {
        {.name = SLICE("snapshot")}, {.name = SLICE("from_seq")}, {.name = SLICE("truncated")}};
    uint64_t from_seq = 0;
    if (bootstrap.kind != JSON_KIND_OBJECT)
        return follower_accepted(follower, epoch, resume_after);
    if (json_read_members(bootstrap, fields, 3) != STATUS_OK)
        return STATUS_INVALID_MESSAGE;
    bool has_snapshot = fields[0].present && fields[0].value.kind != JSON_KIND_NULL &&
                        fields[0].value.kind != JSON_KIND_FALSE;
    if (has_snapshot) {
        follower_give(follower, TOPIC_INPUT_SNAPSHOT, NULL);
        return STATUS_OK;
    }
    (void)json_u64(fields[1].value, JSON_INTEGER_MAX, &from_seq);
    return follower_started(follower, epoch, from_seq, fields[2].value.kind == JSON_KIND_TRUE);
}

static enum status take_accepted(struct channel *channel, const struct push *push,
                                 struct json_value response) {
    struct json_field lists[] = {{.name = SLICE("windows")}, {.name = SLICE("pending")}};
    struct json_value window;
    enum status status = STATUS_OK;
    if (response.kind != JSON_KIND_OBJECT || json_read_members(response, lists, 2) != STATUS_OK)
        return STATUS_OK;
    bool is_pending = lists[1].value.kind == JSON_KIND_TRUE;
    struct json_iterator windows = json_iterate(
        lists[0].value.kind == JSON_KIND_ARRAY ? lists[0].value
                                               : (struct json_value){JSON_KIND_ARRAY, SLICE("[]")});
    while (status == STATUS_OK && !channel->is_closed && json_next_element(&windows, &window)) {
        enum { TOPIC, STREAM, EPOCH, BOOTSTRAP, RESUME_AFTER, PENDING, COUNT };
        struct json_field fields[COUNT] = {
            {.name = SLICE("topic")},        {.name = SLICE("stream_id")},
            {.name = SLICE("epoch")},        {.name = SLICE("bootstrap")},
            {.name = SLICE("resume_after")}, {.name = SLICE("pending")}};
        if (window.kind != JSON_KIND_OBJECT ||
            json_read_members(window, fields, COUNT) != STATUS_OK)
            continue;
        struct follower *follower = find_value(channel, fields[TOPIC].value);
        if (!follower)
            follower = find_value(channel, fields[STREAM].value);
        if (!follower || !push_has(push, follower->number))
            continue;
        if (fields[PENDING].value.kind == JSON_KIND_TRUE || (is_pending && push->count == 1))
            status = follower_pending(follower, fields[EPOCH].value);
        else
            status = take_window(follower, fields[EPOCH].value, fields[BOOTSTRAP].value,
                                 fields[RESUME_AFTER].value);
    }
    /* Topics without a window that the server does not have for this client yet. */
    for (size_t i = 0; is_pending && i < push->count && status == STATUS_OK && !channel->is_closed;
         i++) {
        struct follower *follower =
            channel->options.events->find_number(channel->options.user, push->numbers[i]);
        if (follower && follower->machine.state == TOPIC_STATE_JOINING)
            status = follower_pending(follower, (struct json_value){JSON_KIND_NULL, {"", 0}});
    }
    return status;
}

/* The follower that an element of stale_topics or forbidden_topics names. */
static struct follower *find_listed(const struct channel *channel, struct json_value element,
                                    char reason[CLIENT_CODE_BYTES_MAX]) {
    struct json_field fields[] = {
        {.name = SLICE("topic")}, {.name = SLICE("stream_id")}, {.name = SLICE("reason_codes")}};
    reason[0] = '\0';
    if (element.kind == JSON_KIND_STRING)
        return find_value(channel, element);
    if (element.kind != JSON_KIND_OBJECT || json_read_members(element, fields, 3) != STATUS_OK)
        return NULL;
    client_error_first_reason(fields[2].value, reason);
    struct follower *follower = find_value(channel, fields[0].value);
    return follower ? follower : find_value(channel, fields[1].value);
}

static void fail_topic(struct channel *channel, struct follower *follower,
                       const struct client_error *error) {
    if (error->policy == CLIENT_POLICY_TOPIC_FINAL)
        follower_refused(follower, error);
    else if (error->policy == CLIENT_POLICY_RETRY)
        follower_give(follower, TOPIC_INPUT_BUSY, error);
    else
        report(channel, error);
}

/* How many followers of the push the list names. */
static size_t count_listed(const struct channel *channel, const struct push *push,
                           struct json_value list) {
    struct json_iterator elements = json_iterate(list);
    struct json_value element;
    size_t count = 0;
    while (json_next_element(&elements, &element)) {
        char reason[CLIENT_CODE_BYTES_MAX];
        const struct follower *follower = find_listed(channel, element, reason);
        count += follower && push_has(push, follower->number);
    }
    return count;
}

/* The causes of a refusal get it. Their numbers in the push become 0. */
static void refuse_listed(struct channel *channel, struct push *push, struct json_value list,
                          const struct client_error *error) {
    struct json_iterator iterator = json_iterate(list);
    struct json_value element;
    while (!channel->is_closed && json_next_element(&iterator, &element)) {
        char reason[CLIENT_CODE_BYTES_MAX];
        struct follower *follower = find_listed(channel, element, reason);
        if (!follower || !push_has(push, follower->number))
            continue;
        for (size_t i = 0; i < push->count; i++)
            if (push->numbers[i] == follower->number)
                push->numbers[i] = 0;
        if (error->policy == CLIENT_POLICY_STALE)
            follower_stale(follower, reason);
        else
            fail_topic(channel, follower, error);
    }
}

/* A subscribe is all or nothing. The topics that caused the error get it, the others try again. A
 * refusal of several topics has the code and the message of one of them: each asks for its own. */
static void take_refused(struct channel *channel, struct push *push, struct json_value body) {
    struct json_field fields[] = {{.name = SLICE("stale_topics")},
                                  {.name = SLICE("forbidden_topics")},
                                  {.name = SLICE("reason_codes")}};
    const struct client_error error = client_error_read(body, 0, 0);
    bool is_stale = error.policy == CLIENT_POLICY_STALE;
    char reason[CLIENT_CODE_BYTES_MAX] = "";
    bool is_alone = push->count > 1;
    if (body.kind == JSON_KIND_OBJECT && json_read_members(body, fields, 3) == STATUS_OK) {
        struct json_value list = fields[is_stale ? 0 : 1].value;
        client_error_first_reason(fields[2].value, reason);
        size_t listed = list.kind == JSON_KIND_ARRAY ? count_listed(channel, push, list) : 0;
        if (listed == 1 || (is_stale && listed > 1)) {
            is_alone = false;
            refuse_listed(channel, push, list, &error);
        }
    }
    for (size_t i = 0; i < push->count && !channel->is_closed; i++) {
        struct follower *follower =
            channel->options.events->find_number(channel->options.user, push->numbers[i]);
        if (!follower)
            continue;
        if (push->count > 1) {
            if (follower->machine.state != TOPIC_STATE_JOINING)
                continue;
            channel_want(channel, follower);
            follower->is_alone = is_alone;
        } else if (is_stale) {
            follower_stale(follower, reason);
        } else {
            fail_topic(channel, follower, &error);
        }
    }
}

static enum status take_reply(struct channel *channel, struct push *push, struct json_value body) {
    struct json_field fields[] = {{.name = SLICE("status")}, {.name = SLICE("response")}};
    struct json_field server = {.name = SLICE("server")};
    struct json_field beat = {.name = SLICE("heartbeat_interval_ms")};
    uint64_t heartbeat_ms = 0;
    if (json_read_members(body, fields, 2) != STATUS_OK)
        return STATUS_INVALID_MESSAGE;
    bool is_ok = json_string_is(fields[0].value, SLICE("ok"));
    struct json_value response = fields[1].value;
    struct client_error error = client_error_read(response, 0, 0);
    switch (push->kind) {
    case PUSH_SUBSCRIBE:
        if (is_ok)
            return take_accepted(channel, push, response);
        take_refused(channel, push, response);
        break;
    case PUSH_JOIN:
        if (!is_ok) {
            report(channel, &error);
            break;
        }
        if (response.kind == JSON_KIND_OBJECT &&
            json_read_members(response, &server, 1) == STATUS_OK &&
            server.value.kind == JSON_KIND_OBJECT &&
            json_read_members(server.value, &beat, 1) == STATUS_OK)
            (void)json_u64(beat.value, JSON_INTEGER_MAX, &heartbeat_ms);
        channel->options.events->joined(channel->options.user, heartbeat_ms);
        break;
    case PUSH_REFRESH:
        if (is_ok) {
            channel->options.events->refreshed(channel->options.user);
            break;
        }
        if (error.policy != CLIENT_POLICY_FINAL)
            error.policy = CLIENT_POLICY_REAUTHENTICATE;
        report(channel, &error);
        break;
    case PUSH_UNSUBSCRIBE:
        break;
    }
    return STATUS_OK;
}

/* ---- messages ----------------------------------------------------------------------------- */

static struct follower *find_member(const struct channel *channel, struct json_value body) {
    struct json_field topic = {.name = SLICE("topic")};
    if (json_read_members(body, &topic, 1) != STATUS_OK)
        return NULL;
    return find_value(channel, topic.value);
}

static enum status take_heartbeat(struct channel *channel, struct json_value body) {
    struct json_field list = {.name = SLICE("covered")};
    struct json_value one;
    enum status status = STATUS_OK;
    if (json_read_members(body, &list, 1) != STATUS_OK || list.value.kind != JSON_KIND_ARRAY)
        return STATUS_OK;
    struct json_iterator covered = json_iterate(list.value);
    while (status == STATUS_OK && !channel->is_closed && json_next_element(&covered, &one)) {
        struct follower *follower = one.kind == JSON_KIND_OBJECT ? find_member(channel, one) : NULL;
        if (follower)
            status = follower_covered(follower, one);
    }
    return status;
}

static void take_error(struct channel *channel, struct json_value body) {
    struct json_field fields[] = {{.name = SLICE("code")}, {.name = SLICE("topic")}};
    const struct client_error error = client_error_read(body, 0, 0);
    bool has_members = json_read_members(body, fields, 2) == STATUS_OK;
    struct follower *follower = has_members ? find_value(channel, fields[1].value) : NULL;
    if (has_members && json_string_is(fields[0].value, SLICE("reauth_required"))) {
        channel->options.events->expiring(channel->options.user);
    } else if (error.policy == CLIENT_POLICY_STALE) {
        struct json_field list = {.name = SLICE("stale_topics")};
        struct json_value one;
        if (json_read_members(body, &list, 1) != STATUS_OK || list.value.kind != JSON_KIND_ARRAY)
            return;
        struct json_iterator stale = json_iterate(list.value);
        while (!channel->is_closed && json_next_element(&stale, &one)) {
            char reason[CLIENT_CODE_BYTES_MAX];
            struct follower *stale_follower = find_listed(channel, one, reason);
            if (stale_follower)
                follower_stale(stale_follower, reason);
        }
    } else if (has_members && fields[1].value.kind == JSON_KIND_STRING &&
               error.policy == CLIENT_POLICY_TOPIC_FINAL) {
        if (follower)
            fail_topic(channel, follower, &error);
    } else {
        channel->last_error = error;
        channel->has_last_error = true;
    }
}

/* ---- events of the WebSocket -------------------------------------------------------------- */

static void leave(struct channel *channel) {
    void *user = channel->options.user;
    void (*settle)(void *user) = channel->options.events->settle;
    channel->is_busy = false;
    if (channel->is_closed)
        free_channel(channel);
    settle(user);
}

static void on_received(void *user, struct slice text) {
    const struct json_limits limits = {CLIENT_MESSAGE_BYTES_MAX, JSON_DEPTH_MAX};
    struct channel *channel = user;
    struct phoenix_message message;
    channel->is_busy = true;
    enum status status = phoenix_decode(text, &limits, &message);
    if (status == STATUS_OK && message.payload.kind != JSON_KIND_OBJECT &&
        message.payload.kind != JSON_KIND_ARRAY)
        status = STATUS_INVALID_MESSAGE;
    if (status != STATUS_OK)
        goto out;
    struct slice event = message.event;
    struct json_value body = message.payload;
    channel->options.events->heard(channel->options.user);
    if (!slice_equal(message.topic, CHANNEL) || body.kind != JSON_KIND_OBJECT)
        goto out;
    if (slice_equal(event, SLICE("phx_reply"))) {
        struct push *push = message.ref.data ? take_push(channel, message.ref) : NULL;
        if (push)
            status = take_reply(channel, push, body);
        free(push);
        goto out;
    }
    /* An error that names the reason of a close comes right before it. */
    channel->has_last_error = false;
    if (slice_equal(event, SLICE("sync:update_batch"))) {
        struct follower *follower = find_member(channel, body);
        status = follower ? follower_range(follower, body) : STATUS_OK;
    } else if (slice_equal(event, SLICE("sync:snapshot"))) {
        struct follower *follower = find_member(channel, body);
        status = follower ? follower_part(follower, body) : STATUS_OK;
    } else if (slice_equal(event, SLICE("sync:heartbeat"))) {
        status = take_heartbeat(channel, body);
    } else if (slice_equal(event, SLICE("sync:error"))) {
        take_error(channel, body);
    } else if (slice_equal(event, SLICE("phx_error")) || slice_equal(event, SLICE("phx_close"))) {
        const struct client_error error = client_error_read(body, 0, 0);
        report(channel, &error);
    }
out:
    if (status == STATUS_OUT_OF_MEMORY)
        report_own(channel, "out_of_memory", "There is no memory for a message.");
    else if (status != STATUS_OK)
        report_own(channel, "invalid_message", "The server sent something that is not a message.");
    leave(channel);
}

static void on_opened(void *user) {
    struct channel *channel = user;
    channel->is_busy = true;
    channel->options.events->opened(channel->options.user);
    leave(channel);
}

static void on_ended(void *user, unsigned close, const struct client_error *error) {
    struct channel *channel = user;
    struct client_error whole = *error;
    channel->is_busy = true;
    /* The last error of the channel names the reason of a close frame. */
    if (channel->has_last_error) {
        char number[16];
        snprintf(number, sizeof(number), "%u", close);
        whole = channel->last_error;
        if (whole.policy == CLIENT_POLICY_RETRY)
            whole.policy = client_policy_of(number);
    }
    report(channel, &whole);
    leave(channel);
}

static const struct ws_client_events socket_events = {on_opened, on_received, on_ended};

/* ---- opening ------------------------------------------------------------------------------ */

enum status channel_open(struct channel **channel, const struct channel_options *options) {
    struct channel *made = calloc(1, sizeof(*made));
    struct buffer path;
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->options = *options;
    made->options.token = (struct slice){NULL, 0};
    list_init(&made->pushes);
    list_init(&made->wanted);
    buffer_init(&path, 4 * CLIENT_TOKEN_BYTES_MAX);
    buffer_append_slice(&path, SLICE(PATH));
    enum status status = http1_percent_encode(&path, options->token);
    if (status == STATUS_OK) {
        const struct ws_client_options socket = {.net = options->net,
                                                 .path = buffer_slice(&path),
                                                 .events = &socket_events,
                                                 .user = made};
        status = ws_client_open(&made->socket, &socket);
    }
    buffer_release(&path);
    if (status == STATUS_OK)
        *channel = made;
    else
        free_channel(made);
    return status;
}

void channel_close(struct channel *channel) {
    if (!channel)
        return;
    channel->is_closed = true;
    ws_client_close(channel->socket);
    if (!channel->is_busy)
        free_channel(channel);
}
