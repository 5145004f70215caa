/* The scanner against jansson: both accept, or both refuse, and strings decode alike. Texts in
 * pieces and the one-pass reader must agree with the plain parse. */
#include <jansson.h>
#include <stdlib.h>

#include "fuzz.h"
#include "wire/json.h"

#define BYTES_MAX 65536

static const struct json_limits limits = {BYTES_MAX, 100};

static void compare(struct json_value ours, json_t *theirs);

static void compare_string(struct json_value ours, json_t *theirs) {
    struct buffer decoded;
    buffer_init(&decoded, BYTES_MAX);
    require(json_string_decode(ours, &decoded) == STATUS_OK);
    struct slice expected = {json_string_value(theirs), json_string_length(theirs)};
    require(slice_equal(buffer_slice(&decoded), expected));
    require(json_string_is(ours, expected));
    struct slice plain;
    if (json_string_slice(ours, &plain))
        require(slice_equal(plain, expected));
    /* What we write of it reads back the same. */
    struct buffer written;
    buffer_init(&written, 6 * BYTES_MAX);
    require(json_write_string(&written, expected) == STATUS_OK);
    struct json_limits roomy = {6 * BYTES_MAX, 0};
    struct json_value again;
    require(json_parse(buffer_slice(&written), &roomy, &again) == STATUS_OK);
    require(json_string_is(again, expected));
    buffer_release(&written);
    buffer_release(&decoded);
}

static void compare_array(struct json_value ours, json_t *theirs) {
    struct json_iterator iterator = json_iterate(ours);
    struct json_value element;
    size_t count = 0;
    while (json_next_element(&iterator, &element))
        compare(element, json_array_get(theirs, count++));
    require(count == json_array_size(theirs));
}

static void compare_object(struct json_value ours, json_t *theirs) {
    struct json_iterator iterator = json_iterate(ours);
    struct json_value name, value;
    size_t count = 0;
    while (json_next_member(&iterator, &name, &value))
        count++;
    require(count >= json_object_size(theirs));
    if (count > json_object_size(theirs))
        return; /* a key came twice: jansson kept the last, we keep both */
    iterator = json_iterate(ours);
    while (json_next_member(&iterator, &name, &value)) {
        struct buffer key;
        buffer_init(&key, BYTES_MAX);
        require(json_string_decode(name, &key) == STATUS_OK);
        struct slice text = buffer_slice(&key);
        json_t *member = json_object_getn(theirs, text.size ? text.data : "", text.size);
        require(member != NULL);
        compare(value, member);
        struct json_field field = {.name = text};
        /* Each of these walks the whole object: not for objects of thousands. */
        if (count <= 32) {
            require(json_read_members(ours, &field, 1) == STATUS_OK);
            require(field.present && slice_equal(field.value.raw, value.raw));
        }
        buffer_release(&key);
    }
}

static void compare_number(struct json_value ours, json_t *theirs) {
    char text[400];
    uint64_t number;
    if (json_u64(ours, JSON_INTEGER_MAX, &number))
        require((double)number == json_real_value(theirs));
    if (ours.raw.size >= sizeof(text))
        return;
    memcpy(text, ours.raw.data, ours.raw.size);
    text[ours.raw.size] = '\0';
    require(strtod(text, NULL) == json_real_value(theirs));
}

static void compare(struct json_value ours, json_t *theirs) {
    struct json_value again;
    require(json_parse(ours.raw, &limits, &again) == STATUS_OK);
    require(again.kind == ours.kind && slice_equal(again.raw, ours.raw));
    switch (ours.kind) {
    case JSON_KIND_NULL:
        return require(json_is_null(theirs));
    case JSON_KIND_FALSE:
        return require(json_is_false(theirs));
    case JSON_KIND_TRUE:
        return require(json_is_true(theirs));
    case JSON_KIND_NUMBER:
        require(json_is_real(theirs));
        return compare_number(ours, theirs);
    case JSON_KIND_STRING:
        require(json_is_string(theirs));
        return compare_string(ours, theirs);
    case JSON_KIND_ARRAY:
        require(json_is_array(theirs));
        return compare_array(ours, theirs);
    case JSON_KIND_OBJECT:
        require(json_is_object(theirs));
        return compare_object(ours, theirs);
    }
    abort();
}

static void against_jansson(struct slice text, enum status status, struct json_value value) {
    /* jansson loses a NUL behind a number; no JSON text has that byte. */
    if (text.size > 0 && memchr(text.data, '\0', text.size))
        return require(status != STATUS_OK);
    json_error_t error;
    size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    json_t *theirs = json_loadb(text.data, text.size, flags, &error);
    if (theirs) {
        require(status == STATUS_OK || status == STATUS_JSON_TOO_DEEP);
        if (status == STATUS_OK)
            compare(value, theirs);
        json_decref(theirs);
    } else {
        require(status != STATUS_OK || is_jansson_limit(&error));
    }
}

static void object_reader_agrees(struct slice text, enum status status, struct json_value value) {
    struct json_field fields[] = {{.name = SLICE("a")}, {.name = SLICE("payload")}};
    struct json_field again[] = {{.name = SLICE("payload")}, {.name = SLICE("a")}};
    enum status read = json_read_object(text, &limits, fields, 2);
    if (status != STATUS_OK) {
        require(read == status || read == STATUS_JSON_DUPLICATE_KEY);
        return;
    }
    require(read == json_read_members(value, again, 2));
    require((value.kind == JSON_KIND_OBJECT) == (read != STATUS_INVALID_REQUEST));
    for (int i = 0; i < 2; i++) {
        require(fields[i].present == again[1 - i].present);
        if (fields[i].present)
            require(slice_equal(fields[i].value.raw, again[1 - i].value.raw));
    }
}

/* A byte at a time, then all at once: the same statuses, values and ends. */
static void pieces_agree(struct slice text, enum status status, struct json_value value) {
    struct json_scan whole_scan = {0}, piece_scan = {0};
    struct json_value whole, piece;
    size_t whole_used, piece_used = 0, size = 0;
    enum status whole_status = json_scan(&whole_scan, text, &limits, &whole, &whole_used);
    enum status piece_status;
    do {
        struct slice front = {text.data, size};
        piece_status = json_scan(&piece_scan, front, &limits, &piece, &piece_used);
    } while (piece_status == STATUS_OK && piece_used == 0 && size++ < text.size);
    require(piece_status == whole_status && piece_used == whole_used);
    if (whole_used > 0)
        require(slice_equal(piece.raw, whole.raw) && whole_used <= text.size);
    if (status != STATUS_OK)
        return;
    /* A valid text is one value: complete, unless it ends in a number or literal. */
    require(whole_status == STATUS_OK);
    if (whole_used > 0)
        require(slice_equal(whole.raw, value.raw) && whole.kind == value.kind);
    else
        require(value.kind <= JSON_KIND_NUMBER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > BYTES_MAX)
        return 0;
    struct slice text = {(const char *)data, size};
    struct json_value value = {0};
    enum status status = json_parse(text, &limits, &value);
    against_jansson(text, status, value);
    object_reader_agrees(text, status, value);
    pieces_agree(text, status, value);
    return 0;
}
