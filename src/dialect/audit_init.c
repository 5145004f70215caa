#include "dialect/audit_init.h"

#include <string.h>

#include "wire/json.h"

#define DEPTH_MAX 8

struct reading {
    struct audit_init *init;
    bool legacy_cursors;
    const char *problem;
};

static enum status refuse_init(struct reading *reading, const char *problem) {
    reading->problem = problem;
    return STATUS_INVALID_MESSAGE;
}

/* There is room: a decoded text is never longer than the message it stands in. */
static enum status decode(struct reading *reading, struct json_value value, struct slice *text) {
    struct buffer *texts = &reading->init->texts;
    size_t begin = texts->size;
    if (value.kind != JSON_KIND_STRING)
        return STATUS_INVALID_MESSAGE;
    enum status status = json_string_decode(value, texts);
    *text = (struct slice){texts->data + begin, texts->size - begin};
    return status;
}

static enum status read_names(struct reading *reading, struct json_value list,
                              struct audit_names *names) {
    struct json_iterator elements;
    struct json_value element;
    if (list.kind != JSON_KIND_ARRAY)
        return refuse_init(reading, "a filter is a list of texts");
    names->given = true;
    elements = json_iterate(list);
    while (json_next_element(&elements, &element)) {
        if (names->count == AUDIT_FILTER_NAMES_MAX)
            return refuse_init(reading, "a filter has at most 64 texts");
        if (decode(reading, element, &names->names[names->count++]) != STATUS_OK)
            return refuse_init(reading, "a filter is a list of texts");
    }
    return STATUS_OK;
}

static enum status read_filters(struct reading *reading, struct json_value filters) {
    struct audit_init *init = reading->init;
    struct json_iterator members;
    struct json_value name, value;
    enum status status = STATUS_OK;
    if (filters.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (filters.kind != JSON_KIND_OBJECT)
        return refuse_init(reading, "filters is an object");
    members = json_iterate(filters);
    while (status == STATUS_OK && json_next_member(&members, &name, &value)) {
        struct audit_names *names = json_string_is(name, SLICE("event_types")) ? &init->event_types
                                    : json_string_is(name, SLICE("entities"))  ? &init->entities
                                                                               : NULL;
        if (!names || names->given)
            return refuse_init(reading, "filters has event_types and entities, each once at most");
        status = read_names(reading, value, names);
    }
    return status;
}

/* after_cursor, or start_cursor, which means the same. */
static enum status read_cursor(struct reading *reading, const struct json_field *field) {
    struct audit_init *init = reading->init;
    struct event_cursor cursor;
    struct slice text;
    if (!field->present || field->value.kind == JSON_KIND_NULL)
        return STATUS_OK;
    if (decode(reading, field->value, &text) != STATUS_OK)
        return refuse_init(reading, "after_cursor is an event cursor");
    if (event_cursor_read(text, reading->legacy_cursors, &cursor, &reading->problem) != STATUS_OK)
        return STATUS_INVALID_MESSAGE;
    if (init->has_cursor && event_cursor_compare(&cursor, &init->cursor) != 0)
        return refuse_init(reading, "after_cursor and start_cursor differ");
    init->has_cursor = true;
    init->cursor = cursor;
    return STATUS_OK;
}

enum field {
    FIELD_TYPE,
    FIELD_VERSION,
    FIELD_CAPABILITY,
    FIELD_NONCE,
    FIELD_TS,
    FIELD_CURSOR,
    FIELD_START_CURSOR,
    FIELD_SINCE,
    FIELD_FILTERS,
    FIELD_COUNT
};

enum status audit_init_read(struct slice text, bool legacy_cursors, struct audit_init *init,
                            const char **problem) {
    const struct json_limits limits = {text.size, DEPTH_MAX};
    struct json_field fields[FIELD_COUNT] = {
        [FIELD_TYPE] = {.name = SLICE("type")},
        [FIELD_VERSION] = {.name = SLICE("version")},
        [FIELD_CAPABILITY] = {.name = SLICE("capability")},
        [FIELD_NONCE] = {.name = SLICE("nonce")},
        [FIELD_TS] = {.name = SLICE("ts")},
        [FIELD_CURSOR] = {.name = SLICE("after_cursor")},
        [FIELD_START_CURSOR] = {.name = SLICE("start_cursor")},
        [FIELD_SINCE] = {.name = SLICE("since")},
        [FIELD_FILTERS] = {.name = SLICE("filters")},
    };
    const struct json_field *since = &fields[FIELD_SINCE];
    struct reading reading = {init, legacy_cursors, "the message is not a JSON object"};
    struct slice since_text;
    uint64_t version = 0;
    *init = (struct audit_init){.at_ms = 0};
    buffer_init(&init->texts, text.size + 1);
    enum status status = json_read_object(text, &limits, fields, FIELD_COUNT);
    if (status == STATUS_OK)
        status = buffer_reserve(&init->texts, text.size);
    if (status != STATUS_OK)
        goto out;
    if (!fields[FIELD_TYPE].present || !json_string_is(fields[FIELD_TYPE].value, SLICE("init")))
        status = refuse_init(&reading, "the first message must have the type init");
    else if (!fields[FIELD_VERSION].present ||
             !json_u64(fields[FIELD_VERSION].value, 1, &version) || version != 1)
        status = refuse_init(&reading, "version is 1");
    else if (!fields[FIELD_CAPABILITY].present ||
             decode(&reading, fields[FIELD_CAPABILITY].value, &init->capability) != STATUS_OK)
        status = refuse_init(&reading, "capability is a token");
    else if (!fields[FIELD_NONCE].present ||
             decode(&reading, fields[FIELD_NONCE].value, &init->nonce) != STATUS_OK ||
             init->nonce.size == 0 || init->nonce.size > AUDIT_NONCE_BYTES_MAX ||
             memchr(init->nonce.data, '\0', init->nonce.size))
        status = refuse_init(&reading, "nonce is a text of 1 to 128 bytes without NUL");
    else if (!fields[FIELD_TS].present ||
             !json_u64(fields[FIELD_TS].value, JSON_INTEGER_MAX, &init->at_ms))
        status = refuse_init(&reading, "ts is the time in milliseconds");
    if (status == STATUS_OK)
        status = read_cursor(&reading, &fields[FIELD_CURSOR]);
    if (status == STATUS_OK)
        status = read_cursor(&reading, &fields[FIELD_START_CURSOR]);
    if (status == STATUS_OK && since->present && since->value.kind != JSON_KIND_NULL) {
        init->has_since = true;
        if (decode(&reading, since->value, &since_text) != STATUS_OK ||
            since_read(since_text, &init->since) != STATUS_OK)
            status = refuse_init(&reading, "since is " SINCE_FORMS);
        else if (init->has_cursor)
            status = refuse_init(&reading, "since and a cursor exclude each other");
    }
    if (status == STATUS_OK && fields[FIELD_FILTERS].present)
        status = read_filters(&reading, fields[FIELD_FILTERS].value);
out:
    if (status == STATUS_OK)
        return STATUS_OK;
    audit_init_release(init);
    *problem = reading.problem;
    return status == STATUS_OUT_OF_MEMORY ? status : STATUS_INVALID_MESSAGE;
}

void audit_init_release(struct audit_init *init) {
    buffer_release(&init->texts);
}

bool audit_init_filters(const struct audit_init *init) {
    return init->event_types.given || init->entities.given;
}

static bool is_type(struct slice name, const struct frame_content *content) {
    return slice_equal(name, content->kind);
}

/* The key of an event of the log is "entity:id"; no entity's name has a colon. */
static bool is_entity(struct slice name, const struct frame_content *content) {
    struct slice key = content->document_key;
    if (slice_equal(name, key))
        return true;
    return !memchr(name.data, ':', name.size) && slice_starts(key, name) && key.size > name.size &&
           key.data[name.size] == ':';
}

static bool has_one(const struct audit_names *names, const struct frame_content *content,
                    bool (*is)(struct slice name, const struct frame_content *content)) {
    for (size_t i = 0; i < names->count; i++)
        if (is(names->names[i], content))
            return true;
    return !names->given;
}

bool audit_init_wants(const struct audit_init *init, const struct frame_content *content) {
    return has_one(&init->event_types, content, is_type) &&
           has_one(&init->entities, content, is_entity);
}
