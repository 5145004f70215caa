#include "wire/csv.h"

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

static bool needs_quotes(struct slice field) {
    if (field.size > 0 && (is_blank(field.data[0]) || is_blank(field.data[field.size - 1])))
        return true;
    for (size_t i = 0; i < field.size; i++)
        if (memchr(",\"\r\n", field.data[i], 4))
            return true;
    return false;
}

enum status csv_write_field(struct buffer *out, struct slice field) {
    size_t quotes = 0;
    if (!needs_quotes(field))
        return buffer_append_slice(out, field);
    for (size_t i = 0; i < field.size; i++)
        quotes += field.data[i] == '"';
    enum status status = buffer_reserve(out, field.size + quotes + 2);
    if (status != STATUS_OK)
        return status;
    char *to = out->data + out->size;
    *to++ = '"';
    for (size_t i = 0; i < field.size; i++) {
        if (field.data[i] == '"')
            *to++ = '"';
        *to++ = field.data[i];
    }
    *to++ = '"';
    out->size = (size_t)(to - out->data);
    return STATUS_OK;
}

enum status csv_write_comma(struct buffer *out) {
    return buffer_append_byte(out, ',');
}

enum status csv_write_end(struct buffer *out) {
    return buffer_append_slice(out, SLICE("\r\n"));
}
