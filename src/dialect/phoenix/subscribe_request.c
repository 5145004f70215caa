/* The names are read into items, topics before streams. Cursors are then placed: each item gets the
 * stream of its name, a cursor of a topic goes to the item, and one of a stream to all items of
 * that stream at the end, so that many of each take linear time. On the store pool streams become
 * topics, and items of one topic are merged. */
#include "dialect/phoenix/subscribe_request.h"

#include <stdio.h>

#include "base/limits.h"
#include "delivery/access.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

#define BATCH_SIZE       200
#define BATCH_SIZE_MAX   1000
#define CURSOR_DEPTH_MAX 4

enum {
    FIELD_TOPICS,
    FIELD_STREAMS,
    FIELD_RESUME,
    FIELD_SINCE,
    FIELD_EPOCH,
    FIELD_BOOTSTRAP,
    FIELD_BATCH,
    FIELD_FRAMES,
    FIELD_FORM,
    FIELD_REPLAY,
    FIELD_FOLD,
    FIELD_WHERE,
    FIELD_CONFLATE,
    FIELD_COUNT
};

/* Names with one stream. A cursor of the stream is for all of them. */
struct subscribe_stream {
    struct subscribe_item *item; /* the item with this name; NULL: none */
    bool has_cursor;
    struct position position;
};

void subscribe_release(struct subscribe *subscribe) {
    map_release(&subscribe->by_topic);
    map_release(&subscribe->by_stream);
    selection_unref(subscribe->selection);
    arena_release(&subscribe->arena);
}

bool subscribe_has_topic(const struct subscribe *subscribe, struct slice topic) {
    return map_find(&subscribe->by_topic, topic) != NULL;
}

bool subscribe_has_stream(const struct subscribe *subscribe, struct slice stream) {
    return map_find(&subscribe->by_stream, stream) != NULL;
}

static enum status copy_text(struct arena *arena, struct slice text, struct slice *copy) {
    char *memory = arena_alloc(arena, text.size + 1);
    if (!memory)
        return STATUS_OUT_OF_MEMORY;
    if (text.size > 0)
        memcpy(memory, text.data, text.size);
    *copy = (struct slice){memory, text.size};
    return STATUS_OK;
}

static size_t count_elements(const struct json_field *field) {
    struct json_iterator iterator;
    struct json_value value;
    size_t count = 0;
    if (!field->present || field->value.kind != JSON_KIND_ARRAY)
        return 0;
    iterator = json_iterate(field->value);
    while (json_next_element(&iterator, &value))
        count++;
    return count;
}

/* Adds the topics of a list, or its stream ids, each once. A list of streams may not have topics.
 */
static enum status read_names(struct subscribe *subscribe, const struct json_field *field,
                              bool adds_streams, bool may_have_topics) {
    struct map *map = adds_streams ? &subscribe->by_stream : &subscribe->by_topic;
    struct json_value value;
    enum status status = STATUS_OK;
    if (!field->present || field->value.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (field->value.kind != JSON_KIND_ARRAY)
        return STATUS_BAD_SUBSCRIPTION;
    struct json_iterator iterator = json_iterate(field->value);
    while (status == STATUS_OK && json_next_element(&iterator, &value)) {
        struct subscribe_item *item = &subscribe->items[subscribe->count];
        char text[STREAM_ID_BYTES_MAX];
        struct buffer decoded = buffer_over(text, sizeof(text));
        struct slice name;
        if (value.kind != JSON_KIND_STRING)
            return STATUS_BAD_SUBSCRIPTION;
        if (json_string_decode(value, &decoded) != STATUS_OK)
            return STATUS_BAD_TOPIC;
        status = copy_text(&subscribe->arena, buffer_slice(&decoded), &name);
        if (status != STATUS_OK)
            return status;
        if (address_check(name) != STATUS_OK)
            return STATUS_BAD_TOPIC;
        bool is_stream = address_kind(name) != ADDRESS_TOPIC;
        if (!is_stream && !may_have_topics)
            return STATUS_BAD_TOPIC;
        if (is_stream != adds_streams)
            continue;
        status = map_insert(map, name, item);
        if (status == STATUS_OK) {
            *item = (struct subscribe_item){.name = name, .is_stream = is_stream};
            item->topic = is_stream ? (struct slice){NULL, 0} : name;
            subscribe->count++;
        } else if (status == STATUS_ALREADY_EXISTS) {
            status = STATUS_OK;
        }
    }
    return status;
}

/* Names are compared as streams: the rule from topic to stream is exact, but the reverse takes a.b
 * for a:b. */
static enum status name_stream(struct subscribe *subscribe, struct subscribe_item *item,
                               struct map *streams) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct slice name = item->name;
    enum status status = STATUS_OK;
    if (!item->is_stream)
        status = topic_to_stream(item->name, &stream);
    if (status == STATUS_OK && !item->is_stream)
        status = copy_text(&subscribe->arena, buffer_slice(&stream), &name);
    if (status != STATUS_OK)
        return status;
    item->stream = map_find(streams, name);
    if (!item->stream) {
        item->stream = arena_alloc(&subscribe->arena, sizeof(*item->stream));
        if (!item->stream)
            return STATUS_OUT_OF_MEMORY;
        *item->stream = (struct subscribe_stream){0};
        status = map_insert(streams, name, item->stream);
    }
    if (item->is_stream)
        item->stream->item = item;
    return status;
}

/* The client could mean either of two cursors, and with the wrong one it would miss frames. */
static enum status set_cursor(struct subscribe *subscribe, bool *has_cursor, struct position *place,
                              const struct position *position) {
    /* 0 is the same position in every history. */
    bool is_same = place->seq == position->seq &&
                   (place->seq == 0 || strcmp(place->epoch.text, position->epoch.text) == 0);
    if (*has_cursor && !is_same) {
        subscribe->fault = "The request has two different cursors for one topic.";
        return STATUS_BAD_SUBSCRIPTION;
    }
    *has_cursor = true;
    *place = *position;
    return STATUS_OK;
}

static enum status set_item_cursor(struct subscribe *subscribe, struct subscribe_item *item,
                                   const struct position *position) {
    return set_cursor(subscribe, &item->has_cursor, &item->position, position);
}

/* A cursor may name a topic by its stream, and a stream by its topic. A cursor of a stream is noted
 * at the stream only: writing each of many such cursors to all topics of the stream would take time
 * by the square. */
static enum status apply_cursor(struct subscribe *subscribe, const struct map *streams,
                                const struct topic_cursor *cursor) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer named = buffer_over(text, sizeof(text));
    struct subscribe_stream *stream = NULL;
    struct position position = {cursor->after_seq, cursor->epoch};
    if (!topic_epoch_is_known(&position.epoch))
        position.epoch = subscribe->epoch;
    if (cursor->kind == TOPIC_CURSOR_STREAM) {
        stream = map_find(streams, cursor->name);
        return stream ? set_cursor(subscribe, &stream->has_cursor, &stream->position, &position)
                      : STATUS_OK;
    }
    struct subscribe_item *item = map_find(&subscribe->by_topic, cursor->name);
    enum status status = item ? set_item_cursor(subscribe, item, &position) : STATUS_OK;
    if (status == STATUS_OK && topic_to_stream(cursor->name, &named) == STATUS_OK)
        stream = map_find(streams, buffer_slice(&named));
    return stream && stream->item ? set_item_cursor(subscribe, stream->item, &position) : status;
}

static enum status read_cursors(struct subscribe *subscribe, const struct json_field *field,
                                size_t cursors_max) {
    const struct json_limits limits = {SIZE_MAX, CURSOR_DEPTH_MAX};
    struct cursor_list list;
    struct cursor_list_item item;
    struct map streams;
    if (!field->present || field->value.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (field->value.kind != JSON_KIND_ARRAY && field->value.kind != JSON_KIND_OBJECT)
        return STATUS_BAD_SUBSCRIPTION;
    cursor_list_init(&list);
    map_init(&streams, subscribe->count);
    enum status status = cursor_list_begin(&list, field->value.raw, &limits);
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++)
        status = name_stream(subscribe, &subscribe->items[i], &streams);
    for (size_t count = 1; status == STATUS_OK && cursor_list_next(&list, &item); count++) {
        status = count > cursors_max ? STATUS_BAD_SUBSCRIPTION : item.status;
        if (status == STATUS_OK)
            status = apply_cursor(subscribe, &streams, &item.cursor);
    }
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        const struct subscribe_stream *stream = subscribe->items[i].stream;
        if (stream->has_cursor)
            status = set_item_cursor(subscribe, &subscribe->items[i], &stream->position);
    }
    map_release(&streams);
    cursor_list_release(&list);
    return status == STATUS_OK || status == STATUS_OUT_OF_MEMORY ? status : STATUS_BAD_SUBSCRIPTION;
}

static bool is_given(const struct json_field *field) {
    return field->present && field->value.kind != JSON_KIND_NULL;
}

static bool read_form(const struct json_field *field, enum frame_form *form) {
    char text[FRAME_FORM_BYTES_MAX];
    struct buffer name = buffer_over(text, sizeof(text));
    return field->value.kind == JSON_KIND_STRING &&
           json_string_decode(field->value, &name) == STATUS_OK &&
           frame_form_of(buffer_slice(&name), form);
}

static bool read_since(const struct json_field *field, struct since *since) {
    char memory[SINCE_BYTES_MAX];
    struct buffer text = buffer_over(memory, sizeof(memory));
    return field->value.kind == JSON_KIND_STRING &&
           json_string_decode(field->value, &text) == STATUS_OK &&
           since_read(buffer_slice(&text), since) == STATUS_OK;
}

static enum status read_selection(struct subscribe *subscribe, const struct json_field *asked,
                                  const struct json_field *conflate) {
    static const char message[] = "where has no field \"%.*s\"; it has " WHERE_FIELD_NAMES ".";
    struct where where;
    struct slice unknown;
    uint64_t conflate_ms = 0;
    if (is_given(conflate) && !json_u64(conflate->value, CONFLATE_MS_MAX, &conflate_ms))
        return STATUS_BAD_SUBSCRIPTION;
    enum status status =
        is_given(asked) ? where_read(asked->value.raw, &where, &unknown) : STATUS_OK;
    if (status == STATUS_UNKNOWN_PARAMETER) {
        size_t size = sizeof(message) + unknown.size;
        char *text = arena_alloc(&subscribe->arena, size);
        if (!text)
            return STATUS_OUT_OF_MEMORY;
        snprintf(text, size, message, (int)unknown.size, unknown.data);
        subscribe->fault = text;
        return status;
    }
    if (status != STATUS_OK) {
        subscribe->fault =
            "where is an object of " WHERE_FIELD_NAMES ", each a text or a list of texts.";
        return STATUS_BAD_SUBSCRIPTION;
    }
    return selection_make(&subscribe->selection, is_given(asked) ? &where : NULL, conflate_ms);
}

static enum status read_options(struct subscribe *subscribe, struct json_field *fields) {
    subscribe->batch_size = BATCH_SIZE;
    if (is_given(&fields[FIELD_BATCH]) &&
        (!json_u64(fields[FIELD_BATCH].value, BATCH_SIZE_MAX, &subscribe->batch_size) ||
         subscribe->batch_size == 0))
        return STATUS_BAD_SUBSCRIPTION;
    if (is_given(&fields[FIELD_BOOTSTRAP]) &&
        !json_bool(fields[FIELD_BOOTSTRAP].value, &subscribe->bootstrap))
        return STATUS_BAD_SUBSCRIPTION;
    if (is_given(&fields[FIELD_FRAMES]) &&
        !json_bool(fields[FIELD_FRAMES].value, &subscribe->frames))
        return STATUS_BAD_SUBSCRIPTION;
    if (is_given(&fields[FIELD_FORM]) && !read_form(&fields[FIELD_FORM], &subscribe->form))
        return STATUS_BAD_SUBSCRIPTION;
    if (is_given(&fields[FIELD_FOLD]) && !json_bool(fields[FIELD_FOLD].value, &subscribe->folds))
        return STATUS_BAD_SUBSCRIPTION;
    subscribe->has_since = is_given(&fields[FIELD_SINCE]);
    if (subscribe->has_since && !read_since(&fields[FIELD_SINCE], &subscribe->since))
        return STATUS_BAD_SUBSCRIPTION;
    subscribe->replay_all = is_given(&fields[FIELD_REPLAY]);
    if (subscribe->replay_all && !json_string_is(fields[FIELD_REPLAY].value, SLICE("all")))
        return STATUS_BAD_SUBSCRIPTION;
    return read_selection(subscribe, &fields[FIELD_WHERE], &fields[FIELD_CONFLATE]);
}

enum status subscribe_read(struct subscribe *subscribe, struct json_value payload,
                           size_t topics_max) {
    struct json_field fields[FIELD_COUNT] = {
        [FIELD_TOPICS] = {.name = SLICE("topics")},
        [FIELD_STREAMS] = {.name = SLICE("streams")},
        [FIELD_RESUME] = {.name = SLICE("resume_after")},
        [FIELD_SINCE] = {.name = SLICE("since")},
        [FIELD_EPOCH] = {.name = SLICE("epoch")},
        [FIELD_BOOTSTRAP] = {.name = SLICE("bootstrap")},
        [FIELD_BATCH] = {.name = SLICE("replay_batch_size")},
        [FIELD_FRAMES] = {.name = SLICE("frames")},
        [FIELD_FORM] = {.name = SLICE("form")},
        [FIELD_REPLAY] = {.name = SLICE("replay")},
        [FIELD_FOLD] = {.name = SLICE("fold")},
        [FIELD_WHERE] = {.name = SLICE("where")},
        [FIELD_CONFLATE] = {.name = SLICE("conflate_ms")},
    };
    *subscribe = (struct subscribe){0};
    arena_init(&subscribe->arena, PHOENIX_SUBSCRIBE_ARENA_BYTES_MAX);
    map_init(&subscribe->by_topic, topics_max);
    map_init(&subscribe->by_stream, topics_max);
    if (payload.kind != JSON_KIND_OBJECT ||
        json_read_members(payload, fields, FIELD_COUNT) != STATUS_OK)
        return STATUS_BAD_SUBSCRIPTION;
    size_t count = count_elements(&fields[FIELD_TOPICS]) + count_elements(&fields[FIELD_STREAMS]);
    if (count > topics_max)
        return STATUS_LIMIT_REACHED;
    subscribe->items = arena_alloc(&subscribe->arena, (count + 1) * sizeof(*subscribe->items));
    if (!subscribe->items)
        return STATUS_OUT_OF_MEMORY;
    enum status status = read_names(subscribe, &fields[FIELD_TOPICS], false, true);
    if (status == STATUS_OK)
        status = read_names(subscribe, &fields[FIELD_TOPICS], true, true);
    if (status == STATUS_OK)
        status = read_names(subscribe, &fields[FIELD_STREAMS], true, false);
    if (status == STATUS_OK && subscribe->count == 0)
        status = STATUS_BAD_SUBSCRIPTION;
    /* The epoch of the whole request holds for cursors without an epoch. */
    if (status == STATUS_OK && is_given(&fields[FIELD_EPOCH]) &&
        cursor_list_read_epoch(fields[FIELD_EPOCH].value, &subscribe->epoch) != STATUS_OK)
        status = STATUS_BAD_SUBSCRIPTION;
    if (status == STATUS_OK)
        status = read_cursors(subscribe, &fields[FIELD_RESUME], topics_max);
    return status == STATUS_OK ? read_options(subscribe, fields) : status;
}

/* Merges the names of one topic, because of two subscribers of a topic one would replace the other.
 * Items of topics come first and keep their order. */
static enum status merge(struct subscribe *subscribe) {
    size_t kept = 0;
    enum status status = STATUS_OK;
    map_release(&subscribe->by_stream);
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        struct subscribe_item *same =
            item->is_stream ? map_find(&subscribe->by_topic, item->topic) : NULL;
        if (same) {
            if (item->has_cursor)
                status = set_item_cursor(subscribe, same, &item->position);
            continue;
        }
        if (item->is_stream)
            status = map_insert(&subscribe->by_topic, item->topic, &subscribe->items[kept]);
        subscribe->items[kept++] = *item;
    }
    subscribe->count = kept;
    return status;
}

enum status subscribe_resolve(struct subscribe *subscribe, struct store_session *store) {
    enum status status = STATUS_OK;
    size_t left = OPENING_SLICE_TOPICS;
    while (status == STATUS_OK && left > 0 && subscribe->looked_up < subscribe->count) {
        struct subscribe_item *item = &subscribe->items[subscribe->looked_up++];
        struct topic_address found;
        if (!item->is_stream)
            continue;
        left--;
        status = topic_address_find(store, item->name, &subscribe->arena, &found);
        /* A stream without a topic is subscribed as the stream. */
        if (status == STATUS_OK)
            item->topic = found.topic.data ? found.topic : item->name;
        else if (status == STATUS_INVALID_TOPIC)
            status = STATUS_BAD_TOPIC;
    }
    if (status != STATUS_OK || subscribe->looked_up < subscribe->count)
        return status;
    subscribe->is_resolved = true;
    subscribe->looked_up = 0;
    return merge(subscribe);
}

void subscribe_entitle(struct subscribe *subscribe, const struct principal *principal) {
    for (size_t left = OPENING_SLICE_TOPICS; left > 0 && subscribe->looked_up < subscribe->count;
         left--) {
        struct subscribe_item *item = &subscribe->items[subscribe->looked_up++];
        item->grant = grant_subscribe(principal, item->topic);
    }
    subscribe->is_entitled = subscribe->looked_up == subscribe->count;
}

bool subscribe_entitle_by_names(struct subscribe *subscribe, const struct principal *principal) {
    if (subscribe->count > OPENING_SLICE_TOPICS)
        return false;
    for (size_t i = 0; i < subscribe->count; i++)
        if (subscribe->items[i].is_stream)
            return false;
    subscribe->is_resolved = true;
    subscribe_entitle(subscribe, principal);
    return merge(subscribe) == STATUS_OK;
}
