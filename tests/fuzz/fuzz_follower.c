/* A follower gets any messages in any order, from an application that sometimes says "later".
 * Frames ascend between two resets, and no frame is applied twice. The first byte of a line chooses
 * the message; the rest is its JSON. */
#include "client/follower.h"
#include "fuzz.h"

#define BYTES_MAX 65536

struct application {
    uint64_t last_seq;
    unsigned calls;
    bool is_later;
    bool is_ended;
};

static enum khala_result on_frame(void *user, const struct khala_frame *frame) {
    struct application *application = user;
    require(!application->is_ended && frame->position.seq == frame->seq);
    if (application->is_later && application->calls++ % 2 == 0)
        return KHALA_LATER;
    require(frame->seq > application->last_seq);
    application->last_seq = frame->seq;
    return KHALA_OK;
}

static enum khala_result on_reset(void *user, const struct khala_reset *reset) {
    struct application *application = user;
    require(!application->is_ended && *reset->reason);
    application->last_seq = reset->position.seq;
    return KHALA_OK;
}

static void on_ended(void *user, const struct khala_error *error) {
    struct application *application = user;
    (void)error;
    require(!application->is_ended);
    application->is_ended = true;
}

static void ignore_follower(void *user, struct follower *follower) {
    (void)user;
    (void)follower;
}

static void ignore_warning(void *user, const struct client_error *error, const char *topic) {
    (void)user;
    (void)error;
    (void)topic;
}

static void ignore_wait(void *user, uint64_t at_ms) {
    (void)user;
    (void)at_ms;
}

static enum status give(struct follower *follower, char kind, struct json_value body) {
    struct json_field fields[] = {{.name = SLICE("epoch")}, {.name = SLICE("through")}};
    if (body.kind != JSON_KIND_OBJECT || json_read_members(body, fields, 2) != STATUS_OK)
        return STATUS_OK;
    uint64_t through = 0;
    (void)json_u64(fields[1].value, JSON_INTEGER_MAX, &through);
    switch (kind) {
    case 'r':
        return follower_range(follower, body);
    case 'p':
        return follower_part(follower, body);
    case 'c':
        return follower_covered(follower, body);
    case 's':
        return follower_started(follower, fields[0].value, through, false);
    case 'a':
        return follower_accepted(follower, fields[0].value, fields[1].value);
    case 'b':
        follower_give(follower, TOPIC_INPUT_SNAPSHOT, NULL);
        return STATUS_OK;
    case 't':
        follower_stale(follower, "stale");
        return STATUS_OK;
    case 'd':
        follower_give(follower, TOPIC_INPUT_DISCONNECTED, NULL);
        follower_give(follower, TOPIC_INPUT_CONNECTED, NULL);
        return STATUS_OK;
    default:
        follower_next(follower);
        return STATUS_OK;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct json_limits limits = {BYTES_MAX, 64};
    const struct khala_options options = {.queue_frames_max = 4};
    const struct follower_link link = {.subscribe = ignore_follower,
                                       .unsubscribe = ignore_follower,
                                       .warn = ignore_warning,
                                       .done = ignore_follower,
                                       .finished = ignore_follower,
                                       .wait = ignore_wait};
    struct application application = {.is_later = size > 0 && data[0] == 'l'};
    const struct khala_follow follow = {.topic = "room:1",
                                        .user = &application,
                                        .frame = on_frame,
                                        .reset = on_reset,
                                        .ended = on_ended,
                                        .form = size > 1 && data[1] == 'e' ? "lean" : "full"};
    struct slice rest = {(const char *)data, size};
    struct follower *follower = NULL;
    require(follower_make(&follower, &follow, &link, &options) == STATUS_OK);
    follower_load(follower, true);
    while (rest.size > 0) {
        const char *end = memchr(rest.data, '\n', rest.size);
        struct slice line = {rest.data, end ? (size_t)(end - rest.data) : rest.size};
        struct json_value body;
        if (line.size > 1 && json_parse(slice_from(line, 1), &limits, &body) == STATUS_OK) {
            enum status status = give(follower, line.data[0], body);
            require(status == STATUS_OK || status == STATUS_INVALID_MESSAGE);
        }
        rest = end ? slice_from(rest, line.size + 1) : (struct slice){NULL, 0};
    }
    follower_give(follower, TOPIC_INPUT_STOP, NULL);
    follower_abandon(follower);
    require(application.is_ended);
    follower_free(follower);
    return 0;
}
