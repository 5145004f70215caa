#include "topic/where.h"

#include <assert.h>

#define FIELD_NAME(field, name) [field] = SLICE(name),
static const struct slice names[WHERE_FIELD_COUNT] = {WHERE_FIELDS(FIELD_NAME)};

static const struct json_limits condition_limits = {WHERE_JSON_BYTES_MAX, 2};
static const struct json_limits stored_limits = {SIZE_MAX, JSON_DEPTH_MAX};

enum where_field where_field_of(struct slice name) {
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        if (slice_equal(name, names[i]))
            return (enum where_field)i;
    return WHERE_FIELD_COUNT;
}

/* ---- conditions ---- */

static struct slice value_at(const struct where *where, size_t index) {
    size_t begin = index > 0 ? where->ends[index - 1] : 0;
    return (struct slice){where->text + begin, where->ends[index] - begin};
}

static size_t value_count(const struct where *where) {
    size_t count = 0;
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        count += where->counts[i];
    return count;
}

/* Puts the value in its place among those of the field from index first on, unless it is there. */
static enum status add_value(struct where *where, size_t first, struct json_value value) {
    char memory[WHERE_VALUE_BYTES_MAX];
    struct buffer text = buffer_over(memory, sizeof(memory));
    size_t count = value_count(where);
    size_t at = first;
    if (value.kind != JSON_KIND_STRING || json_string_decode(value, &text) != STATUS_OK ||
        text.size == 0)
        return STATUS_INVALID_REQUEST;
    while (at < count && slice_compare(value_at(where, at), buffer_slice(&text)) < 0)
        at++;
    if (at < count && slice_equal(value_at(where, at), buffer_slice(&text)))
        return STATUS_OK;
    if (count == WHERE_VALUES_MAX || where->text_bytes + text.size > sizeof(where->text))
        return STATUS_INVALID_REQUEST;
    size_t begin = at > 0 ? where->ends[at - 1] : 0;
    memmove(where->text + begin + text.size, where->text + begin, where->text_bytes - begin);
    memcpy(where->text + begin, text.data, text.size);
    for (size_t i = count; i > at; i--)
        where->ends[i] = (uint16_t)(where->ends[i - 1] + text.size);
    where->ends[at] = (uint16_t)(begin + text.size);
    where->text_bytes = (uint16_t)(where->text_bytes + text.size);
    return STATUS_OK;
}

static enum status read_field(struct where *where, enum where_field field,
                              struct json_value wanted) {
    size_t first = value_count(where);
    struct json_value value = wanted;
    struct json_iterator iterator = {NULL, NULL};
    bool is_list = wanted.kind == JSON_KIND_ARRAY;
    enum status status = STATUS_OK;
    if (is_list)
        iterator = json_iterate(wanted);
    /* A list without values would match nothing, which no client means. */
    if (is_list && !json_next_element(&iterator, &value))
        return STATUS_INVALID_REQUEST;
    do {
        uint16_t before = where->text_bytes;
        status = add_value(where, first, value);
        where->counts[field] = (uint8_t)(where->counts[field] + (where->text_bytes != before));
    } while (status == STATUS_OK && is_list && json_next_element(&iterator, &value));
    return status;
}

enum status where_read(struct slice text, struct where *where, struct slice *unknown) {
    struct json_value object, name, value;
    struct json_value wanted[WHERE_FIELD_COUNT];
    bool is_given[WHERE_FIELD_COUNT] = {false};
    enum status status = json_parse(text, &condition_limits, &object);
    /* All of it, because where_equal compares bytes. */
    memset(where, 0, sizeof(*where));
    *unknown = (struct slice){NULL, 0};
    if (status != STATUS_OK || object.kind != JSON_KIND_OBJECT)
        return STATUS_INVALID_REQUEST;
    struct json_iterator iterator = json_iterate(object);
    while (json_next_member(&iterator, &name, &value)) {
        struct slice field_name = {NULL, 0};
        enum where_field field = WHERE_FIELD_COUNT;
        if (json_string_slice(name, &field_name))
            field = slice_equal(field_name, SLICE("tag")) ? WHERE_TAGS : where_field_of(field_name);
        if (field == WHERE_FIELD_COUNT) {
            /* Without its quotes. */
            *unknown = (struct slice){name.raw.data + 1, name.raw.size - 2};
            return STATUS_UNKNOWN_PARAMETER;
        }
        if (is_given[field])
            return STATUS_INVALID_REQUEST;
        is_given[field] = true;
        wanted[field] = value;
    }
    for (size_t i = 0; status == STATUS_OK && i < WHERE_FIELD_COUNT; i++)
        if (is_given[i])
            status = read_field(where, (enum where_field)i, wanted[i]);
    return status;
}

size_t where_size(const struct where *where) {
    return offsetof(struct where, text) + where->text_bytes;
}

bool where_equal(const struct where *a, const struct where *b) {
    return a->text_bytes == b->text_bytes && memcmp(a, b, where_size(a)) == 0;
}

/* ---- fields ---- */

struct slice where_field_name(enum where_field field) {
    assert(field < WHERE_FIELD_COUNT);
    return names[field];
}

enum status where_fields_read(struct slice object, struct where_fields *fields) {
    struct json_field members[WHERE_FIELD_COUNT];
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        members[i] = (struct json_field){.name = names[i]};
    enum status status = json_read_object(object, &stored_limits, members, WHERE_FIELD_COUNT);
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++)
        fields->values[i] =
            members[i].present ? members[i].value : (struct json_value){.kind = JSON_KIND_NULL};
    return status;
}

enum status where_fields_write(struct buffer *out, const struct where_fields *fields) {
    char separator = '{';
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++) {
        if (fields->values[i].kind == JSON_KIND_NULL)
            continue;
        buffer_append_byte(out, separator);
        buffer_append_byte(out, '"');
        buffer_append_slice(out, names[i]);
        buffer_append_slice(out, SLICE("\":"));
        buffer_append_slice(out, fields->values[i].raw);
        separator = ',';
    }
    return buffer_append_slice(out, separator == '{' ? SLICE("{}") : SLICE("}"));
}

static bool has_value(const struct where *where, size_t first, size_t end,
                      struct json_value value) {
    for (size_t i = first; i < end; i++)
        if (json_string_is(value, value_at(where, i)))
            return true;
    return false;
}

bool where_matches(const struct where *where, const struct where_fields *fields) {
    size_t first = 0;
    for (size_t i = 0; i < WHERE_FIELD_COUNT; i++) {
        struct json_value value = fields->values[i];
        size_t end = first + where->counts[i];
        bool matches = end == first;
        if (!matches && value.kind == JSON_KIND_ARRAY) {
            struct json_value element;
            struct json_iterator iterator = json_iterate(value);
            while (!matches && json_next_element(&iterator, &element))
                matches = has_value(where, first, end, element);
        } else if (!matches) {
            matches = has_value(where, first, end, value);
        }
        if (!matches)
            return false;
        first = end;
    }
    return true;
}

/* ---- what a frame records ---- */

enum status where_record_write(struct buffer *out, enum where_before before, struct slice was) {
    if (before == WHERE_SAME)
        return buffer_append_slice(out, SLICE("{}"));
    if (before == WHERE_FIRST)
        return buffer_append_slice(out, SLICE("{\"was\":null}"));
    if (before == WHERE_UNKNOWN)
        return buffer_status(out);
    buffer_append_slice(out, SLICE("{\"was\":"));
    buffer_append_slice(out, was);
    return buffer_append_byte(out, '}');
}

struct record {
    struct json_value now; /* JSON_KIND_NULL: it is the record of a row */
    struct slice was;
    enum where_before before;
};

static struct record record_read(struct slice text) {
    struct json_field members[] = {{.name = SLICE("now")}, {.name = SLICE("was")}};
    struct record record = {.now = {.kind = JSON_KIND_NULL}, .before = WHERE_UNKNOWN};
    if (!text.data || json_read_object(text, &stored_limits, members, 2) != STATUS_OK)
        return record;
    if (members[0].present && members[0].value.kind == JSON_KIND_OBJECT)
        record.now = members[0].value;
    if (!members[1].present) {
        record.before = WHERE_SAME;
    } else if (members[1].value.kind == JSON_KIND_NULL) {
        record.before = WHERE_FIRST;
    } else if (members[1].value.kind == JSON_KIND_OBJECT) {
        record.before = WHERE_CHANGED;
        record.was = members[1].value.raw;
    }
    return record;
}

enum status where_record_complete(struct buffer *out, struct slice record,
                                  const struct where_fields *now) {
    struct record read = record_read(record);
    buffer_append_slice(out, SLICE("{\"now\":"));
    where_fields_write(out, now);
    if (read.before == WHERE_FIRST) {
        buffer_append_slice(out, SLICE(",\"was\":null"));
    } else if (read.before == WHERE_UNKNOWN) {
        buffer_append_slice(out, SLICE(",\"was\":\"unknown\""));
    } else if (read.before == WHERE_CHANGED) {
        buffer_append_slice(out, SLICE(",\"was\":"));
        buffer_append_slice(out, read.was);
    }
    return buffer_append_byte(out, '}');
}

/* ---- the decision ---- */

enum where_outcome where_decide(bool matched_before, bool matches_now) {
    if (matches_now)
        return WHERE_WHOLE;
    return matched_before ? WHERE_REMOVED : WHERE_HIDDEN;
}

enum where_outcome where_judge(const struct where *where, struct slice record) {
    struct record read = record_read(record);
    struct where_fields now, was;
    bool matched_before = true;
    if (read.now.kind != JSON_KIND_OBJECT || where_fields_read(read.now.raw, &now) != STATUS_OK)
        return WHERE_WHOLE;
    bool matches_now = where_matches(where, &now);
    if (read.before == WHERE_SAME)
        matched_before = matches_now;
    else if (read.before == WHERE_FIRST)
        matched_before = false;
    else if (read.before == WHERE_CHANGED && where_fields_read(read.was, &was) == STATUS_OK)
        matched_before = where_matches(where, &was);
    return where_decide(matched_before, matches_now);
}
