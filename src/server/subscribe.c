#include "server/subscribe.h"

#include "server/entitle.h"
#include "topic/cursor_list.h"
#include "topic/stream_id.h"

#define ARENA_BYTES_MAX  (64u << 20)
#define BATCH_SIZE       200
#define BATCH_SIZE_MAX   1000
#define CURSOR_DEPTH_MAX 4

enum {
    FIELD_TOPICS,
    FIELD_STREAMS,
    FIELD_RESUME,
    FIELD_EPOCH,
    FIELD_BOOTSTRAP,
    FIELD_BATCH,
    FIELD_FRAMES,
    FIELD_COUNT
};

void subscribe_release(struct subscribe *subscribe) {
    arena_release(&subscribe->arena);
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

static enum status copy_name(struct arena *arena, struct json_value value, struct slice *name) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer decoded = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    if (value.kind != JSON_KIND_STRING)
        return STATUS_BAD_SUBSCRIPTION;
    if (json_string_decode(value, &decoded) != STATUS_OK)
        return STATUS_BAD_TOPIC;
    return copy_text(arena, buffer_slice(&decoded), name);
}

static struct subscribe_item *find(struct subscribe *subscribe, struct slice name, bool is_stream) {
    for (size_t i = 0; i < subscribe->count; i++)
        if (subscribe->items[i].is_stream == is_stream &&
            slice_equal(subscribe->items[i].name, name))
            return &subscribe->items[i];
    return NULL;
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

static enum status read_names(struct subscribe *subscribe, const struct json_field *field,
                              bool is_stream) {
    struct json_value value;
    enum status status = STATUS_OK;
    if (!field->present || field->value.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (field->value.kind != JSON_KIND_ARRAY)
        return STATUS_BAD_SUBSCRIPTION;
    struct json_iterator iterator = json_iterate(field->value);
    while (status == STATUS_OK && json_next_element(&iterator, &value)) {
        struct subscribe_item item = {.is_stream = is_stream};
        status = copy_name(&subscribe->arena, value, &item.name);
        if (status == STATUS_OK && !is_stream && topic_name_check(item.name) != STATUS_OK)
            status = STATUS_BAD_TOPIC;
        item.topic = is_stream ? (struct slice){NULL, 0} : item.name;
        if (status == STATUS_OK && !find(subscribe, item.name, is_stream))
            subscribe->items[subscribe->count++] = item;
    }
    return status;
}

/* The text rule from topic to stream loses nothing when it is asked whether two names can be one;
 * the way back would take a.b for a:b. */
static enum status name_streams(struct subscribe *subscribe) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++) {
        char text[STREAM_ID_BYTES_MAX];
        struct buffer stream = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
        struct subscribe_item *item = &subscribe->items[i];
        if (!item->is_stream)
            status = topic_to_stream(item->name, &stream);
        item->stream = item->is_stream ? item->name : buffer_slice(&stream);
        if (status == STATUS_OK && !item->is_stream)
            status = copy_text(&subscribe->arena, buffer_slice(&stream), &item->stream);
    }
    return status;
}

/* A cursor may name a topic by its stream, and the other way round. */
static void place_cursor(struct subscribe *subscribe, const struct topic_cursor *cursor) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer other = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    bool by_stream = cursor->kind == TOPIC_CURSOR_STREAM;
    struct slice stream = cursor->name;
    if (!by_stream && topic_to_stream(cursor->name, &other) == STATUS_OK)
        stream = buffer_slice(&other);
    for (size_t i = 0; i < subscribe->count; i++) {
        struct subscribe_item *item = &subscribe->items[i];
        bool is_meant = by_stream || item->is_stream ? slice_equal(item->stream, stream)
                                                     : slice_equal(item->name, cursor->name);
        if (!is_meant)
            continue;
        item->has_cursor = true;
        item->after_seq = cursor->after_seq;
    }
}

static enum status read_cursors(struct subscribe *subscribe, const struct json_field *field) {
    const struct json_limits limits = {SIZE_MAX, CURSOR_DEPTH_MAX};
    struct cursor_list list;
    struct cursor_list_item item;
    if (!field->present || field->value.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (field->value.kind != JSON_KIND_ARRAY && field->value.kind != JSON_KIND_OBJECT)
        return STATUS_BAD_SUBSCRIPTION;
    cursor_list_init(&list);
    enum status status = name_streams(subscribe);
    if (status == STATUS_OK)
        status = cursor_list_begin(&list, field->value.raw, &limits);
    while (status == STATUS_OK && cursor_list_next(&list, &item)) {
        status = item.status;
        if (status == STATUS_OK)
            place_cursor(subscribe, &item.cursor);
    }
    cursor_list_release(&list);
    return status == STATUS_OK || status == STATUS_OUT_OF_MEMORY ? status : STATUS_BAD_SUBSCRIPTION;
}

static bool is_given(const struct json_field *field) {
    return field->present && field->value.kind != JSON_KIND_NULL;
}

static enum status read_options(struct subscribe *subscribe, struct json_field *fields,
                                struct slice epoch) {
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
    if (is_given(&fields[FIELD_EPOCH])) {
        if (fields[FIELD_EPOCH].value.kind != JSON_KIND_STRING)
            return STATUS_BAD_SUBSCRIPTION;
        subscribe->epoch_differs = !json_string_is(fields[FIELD_EPOCH].value, epoch);
    }
    return STATUS_OK;
}

enum status subscribe_read(struct subscribe *subscribe, struct json_value payload,
                           struct slice epoch, size_t topics_max) {
    struct json_field fields[FIELD_COUNT] = {
        [FIELD_TOPICS] = {.name = SLICE("topics")},
        [FIELD_STREAMS] = {.name = SLICE("streams")},
        [FIELD_RESUME] = {.name = SLICE("resume_after")},
        [FIELD_EPOCH] = {.name = SLICE("epoch")},
        [FIELD_BOOTSTRAP] = {.name = SLICE("bootstrap")},
        [FIELD_BATCH] = {.name = SLICE("replay_batch_size")},
        [FIELD_FRAMES] = {.name = SLICE("frames")},
    };
    *subscribe = (struct subscribe){0};
    arena_init(&subscribe->arena, ARENA_BYTES_MAX);
    if (payload.kind != JSON_KIND_OBJECT ||
        json_read_members(payload, fields, FIELD_COUNT) != STATUS_OK)
        return STATUS_BAD_SUBSCRIPTION;
    size_t count = count_elements(&fields[FIELD_TOPICS]) + count_elements(&fields[FIELD_STREAMS]);
    if (count > topics_max)
        return STATUS_LIMIT_REACHED;
    subscribe->items = arena_alloc(&subscribe->arena, (count + 1) * sizeof(*subscribe->items));
    if (!subscribe->items)
        return STATUS_OUT_OF_MEMORY;
    enum status status = read_names(subscribe, &fields[FIELD_TOPICS], false);
    if (status == STATUS_OK)
        status = read_names(subscribe, &fields[FIELD_STREAMS], true);
    if (status == STATUS_OK && subscribe->count == 0)
        status = STATUS_BAD_SUBSCRIPTION;
    if (status == STATUS_OK)
        status = read_cursors(subscribe, &fields[FIELD_RESUME]);
    return status == STATUS_OK ? read_options(subscribe, fields, epoch) : status;
}

/* The store first: the text rule cannot tell a.b from a:b. */
static enum status resolve(struct subscribe *subscribe, struct store_session *session,
                           struct subscribe_item *item) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer named = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    struct store_topic topic;
    enum status status = store_load_stream(session, item->name, &subscribe->arena, &topic);
    if (status == STATUS_OK) {
        item->topic = topic.name;
        return STATUS_OK;
    }
    if (status != STATUS_NOT_FOUND)
        return status;
    if (stream_to_topic(item->name, &named) != STATUS_OK ||
        topic_name_check(buffer_slice(&named)) != STATUS_OK)
        return STATUS_BAD_TOPIC;
    return copy_text(&subscribe->arena, buffer_slice(&named), &item->topic);
}

/* Names of one topic become one: of two readers of it, one would take the place of the other. */
static void merge(struct subscribe *subscribe) {
    size_t kept = 0;
    for (size_t i = 0; i < subscribe->count; i++) {
        const struct subscribe_item *item = &subscribe->items[i];
        size_t same = 0;
        while (same < kept && !slice_equal(subscribe->items[same].topic, item->topic))
            same++;
        if (same == kept)
            subscribe->items[kept++] = *item;
        else if (!subscribe->items[same].has_cursor && item->has_cursor)
            subscribe->items[same] = *item;
    }
    subscribe->count = kept;
}

enum status subscribe_resolve(struct subscribe *subscribe, struct store_session *session) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++)
        if (subscribe->items[i].is_stream)
            status = resolve(subscribe, session, &subscribe->items[i]);
    if (status == STATUS_OK)
        merge(subscribe);
    return status;
}

enum status subscribe_entitle(struct subscribe *subscribe, struct store_session *session,
                              const struct principal *principal) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < subscribe->count; i++)
        status = entitle_look(session, principal, subscribe->items[i].topic, &subscribe->arena,
                              &subscribe->items[i].grant);
    return status;
}
