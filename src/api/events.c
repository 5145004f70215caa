/* The events of an entity: a page of them, or all of them as a stream of lines. */
#include "api/handlers.h"
#include "authority/event_write.h"
#include "base/limits.h"
#include "http/query_cursor.h"
#include "http/store_read.h"
#include "store/topic_history.h"
#include "topic/continuity.h"
#include "wire/json.h"

#define LIMIT_DEFAULT 100

/* ---- a page ------------------------------------------------------------------------------- */

struct event_list {
    struct store_read *read;
    uint64_t count;
    uint64_t last_seq;
};

static enum status list_event(void *user, const struct store_event *event) {
    struct event_list *list = user;
    struct buffer *out = &list->read->out;
    if (list->count == list->read->limit || out->size >= EVENTS_PAGE_BYTES) {
        list->read->has_more = true;
        return STATUS_LIMIT_REACHED;
    }
    if (list->count++ > 0)
        buffer_append_byte(out, ',');
    list->last_seq = event->seq;
    return buffer_note(out, event_write_json(out, event));
}

/* A position of another history is stale, as it is in the entity's topic. */
static enum status check_lineage(struct store_read *read, struct store_session *store,
                                 const struct store_entity *entity) {
    const struct topic_window window = {.oldest_seq = 1, .head_seq = entity->head_seq};
    const struct position position = {read->after_seq, read->epoch};
    const struct store_topic topic = {.entity_ref = entity->ref};
    struct topic_fork fork = {.is_set = false};
    struct store_state state;
    enum status status = store_read_state(store, &state);
    /* The position of a time is of this history. */
    if (status == STATUS_OK && !read->has_since)
        status = topic_fork_find(store, &state, &topic, &position, &fork);
    if (status != STATUS_OK)
        return status;
    read->epoch = topic_epoch_of(&state, NULL);
    read->names_epoch = state.has_fork && !read->keeps_epoch;
    struct lineage lineage = lineage_of(&window, &position, &read->epoch, &fork);
    read->reason = lineage.epoch_differs ? REASON_EPOCH_MISMATCH
                   : lineage.lacks_epoch ? REASON_EPOCH_REQUIRED
                                         : REASON_CURSOR_AHEAD_OF_HEAD;
    bool is_stale = lineage.epoch_differs || lineage.lacks_epoch || lineage.is_ahead;
    return is_stale ? STATUS_STALE_CURSOR : STATUS_OK;
}

static void read_list(struct store_read *read, struct store_session *store) {
    struct event_list list = {.read = read};
    struct buffer *out = &read->out;
    struct store_entity entity;
    enum status status = store_read_entity(read, store, &entity);
    if (status == STATUS_OK && read->has_since) {
        const struct store_topic topic = {
            .entity_ref = entity.ref, .oldest_seq = 1, .head_seq = entity.head_seq};
        status = topic_since_find(store, &topic, read->since_ms, &read->after_seq);
    }
    list.last_seq = read->after_seq;
    if (status == STATUS_OK)
        status = check_lineage(read, store, &entity);
    buffer_append_slice(out, SLICE("{\"events\":["));
    if (status == STATUS_OK)
        status = store_walk_entity_events(store, entity.ref, read->after_seq, read->limit + 1,
                                          &list, list_event);
    if (status == STATUS_LIMIT_REACHED && read->has_more)
        status = STATUS_OK;
    if (read->names_epoch)
        buffer_printf(out, "],\"next_after_seq\":\"%llu@%s\"", (unsigned long long)list.last_seq,
                      read->epoch.text);
    else
        buffer_printf(out, "],\"next_after_seq\":%llu", (unsigned long long)list.last_seq);
    buffer_printf(out, ",\"has_more\":%s}\n", read->has_more ? "true" : "false");
    read->status = status;
}

static void handle_list(struct exchange *exchange, enum entity_kind kind) {
    struct position after;
    bool given, has_since, keeps_epoch;
    uint64_t since_ms = 0;
    uint64_t limit = LIMIT_DEFAULT;
    if (!query_since(exchange, &has_since, &since_ms))
        return;
    enum status status = query_position(exchange, &after, &given, &keeps_epoch);
    if (status == STATUS_INVALID_CURSOR)
        status = STATUS_INVALID_REQUEST;
    if (status == STATUS_OK)
        status = query_number(exchange, SLICE("limit"), 1, EVENTS_PAGE_EVENTS_MAX, &limit);
    if (status != STATUS_OK) {
        exchange_answer_error(
            exchange, &(struct exchange_error){
                          .status = status,
                          .message = status == STATUS_INVALID_REQUEST
                                         ? "after_seq is a position (seq or seq@epoch), limit a "
                                           "whole number from 1 to 1000."
                                         : NULL});
        return;
    }
    struct store_read *read = store_read_new(exchange, kind, read_list);
    if (!read)
        return;
    read->after_seq = after.seq;
    read->epoch = after.epoch;
    read->keeps_epoch = keeps_epoch;
    read->has_since = has_since;
    read->since_ms = since_ms;
    read->limit = limit;
    store_read_post(read);
}

void handle_run_events(struct exchange *exchange) {
    handle_list(exchange, ENTITY_RUN);
}

void handle_worker_events(struct exchange *exchange) {
    handle_list(exchange, ENTITY_WORKER);
}

void handle_topic_events(struct exchange *exchange) {
    handle_list(exchange, ENTITY_TOPIC);
}

/* ---- the replay --------------------------------------------------------------------------- */

static enum status replay_event(void *user, const struct store_event *event) {
    struct store_read *read = user;
    if (event->seq > read->until_seq || read->out.size >= REPLAY_PAGE_BYTES)
        return STATUS_LIMIT_REACHED;
    read->after_seq = event->seq;
    buffer_note(&read->out, event_write_json(&read->out, event));
    return buffer_append_byte(&read->out, '\n');
}

/* Reads one page. Events that are appended after the first page was read are not part of the
 * replay. Otherwise the replay of a run that grows fast would never end. */
static void read_replay(struct store_read *read, struct store_session *store) {
    enum status status = STATUS_OK;
    uint64_t before = read->after_seq;
    buffer_clear(&read->out);
    if (read->entity_ref == 0) {
        struct store_entity entity;
        status = store_read_entity(read, store, &entity);
        if (status == STATUS_OK) {
            read->entity_ref = entity.ref;
            read->until_seq = entity.head_seq;
        }
    }
    if (status == STATUS_OK && read->after_seq < read->until_seq)
        status = store_walk_entity_events(store, read->entity_ref, read->after_seq,
                                          REPLAY_PAGE_EVENTS_MAX, read, replay_event);
    if (status == STATUS_LIMIT_REACHED)
        status = STATUS_OK;
    read->has_more = read->after_seq < read->until_seq;
    /* A gap in the log must not become an endless loop here. */
    if (status == STATUS_OK && read->has_more && read->after_seq == before)
        status = STATUS_INTERNAL_ERROR;
    read->status = status;
}

void handle_run_replay(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_RUN, read_replay);
    if (read)
        store_read_post_pages(read, SLICE("application/x-ndjson"));
}
