/* The codec of summaries. A layout lists the members of a document in the order of canonical JSON,
 * and where each is in the summary. Writing notes where each value stands in the text, so that the
 * summary can point into its document and both hashes follow without parsing it. */
#include "projector/summary.h"

#include <assert.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "topic/where.h"
#include "wire/put.h"

/* Room for the names of kind and entity in a document, and for its last brace. */
#define FIXED_BYTES_MAX 256

static const struct json_limits document_limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};

static struct slice *text_at(struct summary *summary, size_t offset) {
    return (struct slice *)(void *)((char *)summary + offset);
}

static uint64_t *number_at(struct summary *summary, size_t offset) {
    return (uint64_t *)(void *)((char *)summary + offset);
}

/* Whether the summary holds the member as JSON text. */
static bool is_text(const struct summary_field *field) {
    return field->kind == SUMMARY_TEXT || field->kind == SUMMARY_OBJECT ||
           field->kind == SUMMARY_METADATA || field->kind == SUMMARY_ARRAY;
}

void summary_init(const struct summary_layout *layout, struct summary *summary,
                  struct slice entity_id) {
    memset(summary, 0, layout->summary_size);
    for (size_t i = 0; i < layout->field_count; i++) {
        const struct summary_field *field = &layout->fields[i];
        if (is_text(field))
            *text_at(summary, field->offset) =
                field->kind == SUMMARY_ARRAY ? SLICE("[]") : SLICE("null");
    }
    summary->entity_id = entity_id;
}

enum status summary_count(struct summary *summary, const struct store_event *event,
                          struct arena *arena) {
    struct json_value known = {JSON_KIND_STRING, summary->latest_event_type};
    assert(event->seq == summary->latest_seq + 1);
    /* A type that repeats the previous one costs no memory. */
    if (summary_is_null(known.raw) || !json_string_is(known, event->type)) {
        struct buffer quoted;
        struct slice copy = {NULL, 0};
        buffer_init(&quoted, SUMMARY_BYTES_MAX);
        if (json_write_string(&quoted, event->type) == STATUS_OK)
            copy = arena_copy(arena, buffer_slice(&quoted));
        buffer_release(&quoted);
        if (!copy.data)
            return STATUS_OUT_OF_MEMORY;
        summary->latest_event_type = copy;
    }
    summary->latest_seq = event->seq;
    summary->event_count++;
    summary->latest_event_at_ms = event->recorded_at_ms;
    return STATUS_OK;
}

/* ---- writing ------------------------------------------------------------------------------ */

enum status summary_document_key(enum document_kind kind, struct slice entity_id,
                                 struct buffer *out) {
    buffer_append_slice(out, slice_of(document_row(kind)->key_prefix));
    return buffer_append_slice(out, entity_id);
}

static char *put_source_id(char *at, const char *member, struct slice id) {
    *at++ = '"';
    at = put_slice(at, slice_of(member));
    return json_put_string(PUT_LITERAL(at, "\":"), id);
}

/* The origin of a document: {"entity","run_id","seq"}. Canonical JSON sorts the members: "run_id"
 * stands before "seq", "worker_id" after it. */
static char *put_source(char *at, const struct entity_row *entity, const struct summary *summary) {
    bool is_id_first = strcmp(entity->id_member, "seq") < 0;
    at = put_slice(PUT_LITERAL(at, "{\"entity\":\""), slice_of(entity->name));
    at = PUT_LITERAL(at, "\",");
    if (is_id_first) {
        at = put_source_id(at, entity->id_member, summary->entity_id);
        *at++ = ',';
    }
    at = decimal_write_u64(PUT_LITERAL(at, "\"seq\":"), summary->latest_seq);
    if (!is_id_first) {
        *at++ = ',';
        at = put_source_id(at, entity->id_member, summary->entity_id);
    }
    *at++ = '}';
    return at;
}

static char *put_value(char *at, const struct summary_field *field,
                       const struct summary_layout *layout, const struct summary *summary,
                       const struct summary_stamp *stamp) {
    const struct document_row *row = document_row(layout->document);
    const void *value = (const char *)summary + field->offset;
    switch (field->kind) {
    case SUMMARY_TEXT:
    case SUMMARY_OBJECT:
    case SUMMARY_METADATA:
    case SUMMARY_ARRAY: {
        /* Most texts are null: a copy of a fixed size is faster. */
        struct slice text = *(const struct slice *)value;
        return text.size == 4 ? put_bytes(at, text.data, 4) : put_slice(at, text);
    }
    case SUMMARY_COUNT:
        return decimal_write_u64(at, *(const uint64_t *)value);
    case SUMMARY_TIME_MS:
        return *(const uint64_t *)value > 0 ? decimal_write_u64(at, *(const uint64_t *)value)
                                            : PUT_LITERAL(at, "null");
    case SUMMARY_DOCUMENT_ID: {
        /* The id is written as a separate string. Its opening quote is replaced by the colon of the
         * key. */
        *at++ = '"';
        char *colon = put_bytes(at, row->key_prefix, strlen(row->key_prefix) - 1);
        at = json_put_string(colon, summary->entity_id);
        *colon = ':';
        return at;
    }
    case SUMMARY_KIND:
        return json_put_string(at, slice_of(row->name));
    case SUMMARY_ENTITY_ID:
        return json_put_string(at, summary->entity_id);
    case SUMMARY_SOURCE:
        return put_source(at, entity_row(row->entity), summary);
    case SUMMARY_VERSION:
        return json_put_string(at, stamp->projection_version);
    case SUMMARY_PROJECTED_AT:
        return decimal_write_u64(at, stamp->projected_at_ms);
    }
    return at;
}

/* A document is written with each event of a run, so the memory of all members is reserved once. */
enum status summary_write(const struct summary_layout *layout, const struct summary *summary,
                          const struct summary_stamp *stamp, struct buffer *out,
                          struct summary_marks *marks) {
    assert(out->size == 0 && layout->field_count <= SUMMARY_FIELDS_MAX);
    size_t bytes = FIXED_BYTES_MAX + 3 * json_string_bytes(summary->entity_id) +
                   json_string_bytes(stamp->projection_version);
    for (size_t i = 0; i < layout->field_count; i++) {
        const struct summary_field *field = &layout->fields[i];
        bytes += SUMMARY_OPENING_BYTES + DECIMAL_U64_SIZE_MAX;
        if (is_text(field))
            bytes +=
                ((const struct slice *)(const void *)((const char *)summary + field->offset))->size;
    }
    enum status status = buffer_reserve(out, bytes);
    if (status != STATUS_OK)
        return status;
    char *at = out->data;
    marks->metadata = 0;
    for (size_t i = 0; i < layout->field_count; i++) {
        const struct summary_field *field = &layout->fields[i];
        const char *begin = at;
        memcpy(at, field->opening, SUMMARY_OPENING_BYTES);
        at += field->opening_bytes;
        marks->values[i] = (size_t)(at - out->data);
        if (field->kind == SUMMARY_METADATA)
            marks->metadata = marks->values[i];
        at = put_value(at, field, layout, summary, stamp);
        if (field->kind == SUMMARY_PROJECTED_AT) {
            marks->projected_at = (size_t)(begin - out->data);
            marks->projected_at_end = (size_t)(at - out->data);
        }
    }
    *at++ = '}';
    out->data[0] = '{'; /* instead of the comma before the first member */
    out->size = (size_t)(at - out->data);
    assert(out->size <= bytes);
    return STATUS_OK;
}

struct slice summary_value(const struct summary_layout *layout, const struct summary_marks *marks,
                           struct slice document, struct slice name) {
    for (size_t i = 0; i < layout->field_count; i++) {
        if (!slice_equal(layout->fields[i].name, name))
            continue;
        size_t end = i + 1 < layout->field_count
                         ? marks->values[i + 1] - layout->fields[i + 1].opening_bytes
                         : document.size - 1;
        struct slice text = {document.data + marks->values[i], end - marks->values[i]};
        return summary_is_null(text) ? (struct slice){NULL, 0} : text;
    }
    return (struct slice){NULL, 0};
}

struct slice summary_metadata(const struct summary_layout *layout, const struct summary *summary) {
    for (size_t i = 0; i < layout->field_count; i++) {
        if (layout->fields[i].kind != SUMMARY_METADATA)
            continue;
        const void *at = (const char *)summary + layout->fields[i].offset;
        struct slice text = *(const struct slice *)at;
        return summary_is_null(text) ? (struct slice){NULL, 0} : text;
    }
    return (struct slice){NULL, 0};
}

enum status summary_write_fields(const struct summary_layout *layout, const struct summary *summary,
                                 struct buffer *out) {
    bool is_first = true;
    buffer_append_byte(out, '{');
    for (size_t i = 0; i < layout->field_count; i++) {
        const struct summary_field *field = &layout->fields[i];
        struct slice text = {NULL, 0};
        if (where_field_of(field->name) == WHERE_FIELD_COUNT)
            continue;
        if (is_text(field))
            text = *(const struct slice *)(const void *)((const char *)summary + field->offset);
        /* A list without texts matches what no list does: nothing. */
        bool is_empty = text.size == 0 || summary_is_null(text) || slice_equal(text, SLICE("[]"));
        if (is_empty && field->kind != SUMMARY_ENTITY_ID)
            continue;
        buffer_append_slice(out, slice_from((struct slice){field->opening, field->opening_bytes},
                                            is_first ? 1 : 0));
        if (field->kind == SUMMARY_ENTITY_ID)
            buffer_note(out, json_write_string(out, summary->entity_id));
        else
            buffer_append_slice(out, text);
        is_first = false;
    }
    return buffer_append_byte(out, '}');
}

void summary_settle(const struct summary_layout *layout, const struct summary_marks *marks,
                    const char *document, struct summary *summary) {
    for (size_t i = 0; i < layout->field_count; i++) {
        const struct summary_field *field = &layout->fields[i];
        if (!is_text(field))
            continue;
        /* Most texts are null. The next fold reads these without reading the old document. */
        struct slice *text = text_at(summary, field->offset);
        if (summary_is_null(*text))
            *text = SLICE("null");
        else
            text->data = document + marks->values[i];
    }
}

static void hash_end(struct sha256 *hash, struct slice text, uint8_t digest[SHA256_BYTES]) {
    sha256_update(hash, text.data, text.size);
    sha256_final(hash, digest);
}

/* Both hashes begin with the same members, which are read once. */
void summary_hash_marked(struct slice document, const struct summary_marks *marks,
                         uint8_t payload_hash[SHA256_BYTES], uint8_t hash[SHA256_BYTES]) {
    struct sha256 of_payload;
    sha256_init(&of_payload);
    sha256_update(&of_payload, document.data, marks->projected_at);
    struct sha256 of_summary = of_payload;
    hash_end(&of_payload, slice_from(document, marks->projected_at), payload_hash);
    hash_end(&of_summary, slice_from(document, marks->projected_at_end), hash);
}

/* ---- reading ------------------------------------------------------------------------------ */

static bool read_held(struct summary *summary, const struct summary_field *field,
                      struct json_value value) {
    bool is_null = value.kind == JSON_KIND_NULL;
    switch (field->kind) {
    case SUMMARY_TEXT:
        *text_at(summary, field->offset) = value.raw;
        return is_null || value.kind == JSON_KIND_STRING;
    case SUMMARY_OBJECT:
    case SUMMARY_METADATA:
        *text_at(summary, field->offset) = value.raw;
        return is_null || value.kind == JSON_KIND_OBJECT;
    case SUMMARY_ARRAY:
        *text_at(summary, field->offset) = value.raw;
        return value.kind == JSON_KIND_ARRAY;
    case SUMMARY_COUNT:
        return json_u64(value, JSON_INTEGER_MAX, number_at(summary, field->offset));
    case SUMMARY_TIME_MS:
        *number_at(summary, field->offset) = 0;
        return is_null || json_u64(value, JSON_INTEGER_MAX, number_at(summary, field->offset));
    case SUMMARY_ENTITY_ID:
        return json_string_is(value, summary->entity_id);
    case SUMMARY_DOCUMENT_ID:
    case SUMMARY_KIND:
    case SUMMARY_SOURCE:
    case SUMMARY_VERSION:
    case SUMMARY_PROJECTED_AT:
        return true;
    }
    return false;
}

enum status summary_read(const struct summary_layout *layout, struct slice document,
                         struct slice entity_id, struct summary *summary) {
    struct json_field members[SUMMARY_FIELDS_MAX];
    assert(layout->field_count <= SUMMARY_FIELDS_MAX);
    for (size_t i = 0; i < layout->field_count; i++)
        members[i] = (struct json_field){.name = layout->fields[i].name};
    summary_init(layout, summary, entity_id);
    enum status status = json_read_object(document, &document_limits, members, layout->field_count);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < layout->field_count; i++)
        if (!members[i].present || !read_held(summary, &layout->fields[i], members[i].value))
            return STATUS_INVALID_REQUEST;
    return STATUS_OK;
}

/* The text of a member of an object, with one adjacent comma. */
static struct slice find_member(struct json_value object, struct slice wanted) {
    struct json_iterator iterator = json_iterate(object);
    struct json_value name;
    struct json_value value;
    const char *previous_end = NULL;
    while (json_next_member(&iterator, &name, &value)) {
        const char *end = value.raw.data + value.raw.size;
        if (json_string_is(name, wanted)) {
            const char *begin = previous_end ? previous_end : name.raw.data;
            end += !previous_end && *end == ',';
            return (struct slice){begin, (size_t)(end - begin)};
        }
        previous_end = end;
    }
    return (struct slice){object.raw.data + object.raw.size, 0};
}

enum status summary_hash(struct slice document, uint8_t hash[SHA256_BYTES]) {
    struct json_value object;
    enum status status = json_parse(document, &document_limits, &object);
    if (status == STATUS_OK && object.kind != JSON_KIND_OBJECT)
        status = STATUS_INVALID_REQUEST;
    if (status != STATUS_OK)
        return status;
    struct slice cut = find_member(object, SLICE("projected_at"));
    const char *after = cut.data + cut.size;
    struct sha256 hasher;
    sha256_init(&hasher);
    sha256_update(&hasher, object.raw.data, (size_t)(cut.data - object.raw.data));
    sha256_update(&hasher, after, (size_t)(object.raw.data + object.raw.size - after));
    sha256_final(&hasher, hash);
    sha256_release(&hasher);
    return STATUS_OK;
}

/* ---- for folds ---------------------------------------------------------------------------- */

static bool take(const struct json_field *field, enum json_kind kind, struct arena *arena,
                 struct slice *text) {
    *text = kind == JSON_KIND_ARRAY ? SLICE("[]") : SLICE("null");
    if (!field->present || field->value.kind != kind)
        return true;
    struct slice copy = arena_copy(arena, field->value.raw);
    if (!copy.data)
        return false;
    *text = copy;
    return true;
}

bool summary_take_text(const struct json_field *field, struct arena *arena, struct slice *text) {
    return take(field, JSON_KIND_STRING, arena, text);
}

bool summary_take_object(const struct json_field *field, struct arena *arena, struct slice *text) {
    return take(field, JSON_KIND_OBJECT, arena, text);
}

bool summary_take_array(const struct json_field *field, struct arena *arena, struct slice *text) {
    return take(field, JSON_KIND_ARRAY, arena, text);
}

void summary_payload_fields(struct slice payload, struct json_field *fields, size_t count) {
    if (json_read_object(payload, &document_limits, fields, count) == STATUS_OK)
        return;
    for (size_t i = 0; i < count; i++)
        fields[i].present = false;
}
