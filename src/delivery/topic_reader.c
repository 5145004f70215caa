#include "delivery/topic_reader.h"

#include <assert.h>

#include "base/limits.h"
#include "server/server.h"
#include "wire/object_writer.h"

static void member_advanced(struct feed_member *member) {
    struct topic_reader *reader = (struct topic_reader *)member;
    if (reader->exchange->conn && !reader->subscription.is_reading)
        reader->go_on(reader);
}

struct topic_reader *topic_reader_of_deadline(struct deadline *deadline) {
    return (struct topic_reader *)((char *)deadline - offsetof(struct topic_reader, deadline));
}

void topic_reader_expired(struct topic_reader *reader) {
    if (reader->exchange->conn && !reader->subscription.is_reading)
        reader->timed_out(reader);
}

static void read_run(struct store_task *task, struct store_session *session) {
    struct topic_reader *reader =
        (struct topic_reader *)((char *)task - offsetof(struct topic_reader, task));
    journal_read_run(reader->subscription.read, session);
    /* The loop waits for whatever is owed to it, so it takes the task. */
    enum status status = io_loop_post(reader->exchange->loop, &reader->back);
    assert(status == STATUS_OK);
    (void)status;
}

static void read_back(struct loop_task *task) {
    struct topic_reader *reader =
        (struct topic_reader *)((char *)task - offsetof(struct topic_reader, back));
    subscription_read_done(&reader->subscription);
    if (exchange_unref(reader->exchange))
        reader->go_on(reader);
}

enum status topic_reader_open(struct topic_reader *reader, struct exchange *exchange,
                              bool has_cursor, uint64_t after_seq) {
    struct slice topic = exchange->match.parameters[0];
    reader->exchange = exchange;
    reader->member.advanced = member_advanced;
    reader->task.run = read_run;
    reader->back.run = read_back;
    enum status status = feed_join(&exchange->loop->feeds, topic, &reader->member);
    if (status != STATUS_OK)
        return status;
    reader->is_open = true;
    subscription_init(&reader->subscription,
                      &(struct subscription_options){
                          .watch = feed_watch(reader->member.feed),
                          .topic = topic,
                          .policy = policy_of(&exchange->http->server->config.policies, topic),
                          .principal = exchange->principal,
                          .view = exchange->view,
                          .has_cursor = has_cursor,
                          .after_seq = after_seq,
                      });
    return STATUS_OK;
}

void topic_reader_read(struct topic_reader *reader) {
    exchange_ref(reader->exchange);
    enum status status = store_pool_post(reader->exchange->http->store_pool, &reader->task);
    if (status == STATUS_OK)
        return;
    subscription_read_failed(&reader->subscription, status);
    if (exchange_unref(reader->exchange))
        reader->go_on(reader);
}

void topic_reader_release(struct topic_reader *reader) {
    if (!reader->is_open)
        return;
    deadline_drop(&reader->deadline);
    subscription_release(&reader->subscription);
    feed_leave(&reader->member);
}

/* ---- the shared forms ---- */

static enum status message_encode(const struct frame_content *content, struct buffer *out) {
    char id[UUID_TEXT_SIZE];
    char cursor_text[EVENT_CURSOR_SIZE_MAX];
    struct event_cursor cursor = event_cursor_of(&content->cursor);
    uuid_format(&content->event_id, id);
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("topic"), content->topic);
    object_number(&object, SLICE("sequence"), content->seq);
    object_text(&object, SLICE("kind"), content->kind);
    object_json(&object, SLICE("payload"), content->payload);
    object_number(&object, SLICE("published_at"), content->published_at_ms);
    object_text(&object, SLICE("event_id"), (struct slice){id, sizeof(id)});
    object_text(&object, SLICE("cursor"),
                (struct slice){cursor_text, event_cursor_encode(&cursor, cursor_text)});
    return object_end(&object);
}

const struct frame_form message_form = {0, MESSAGE_FORM_BYTES_MAX, message_encode};
