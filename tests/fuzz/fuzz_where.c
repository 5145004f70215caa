/* Any bytes as a condition. One that is read is within its limits, matches a document with its own
 * first values, and is read again from its own JSON as the same. The same bytes as a record of a
 * frame or as a document must be judged without a fault. */
#include "fuzz.h"
#include "topic/where.h"

#define OUT_BYTES_MAX (1 << 20)

static struct slice value_at(const struct where *where, size_t index) {
    size_t begin = index > 0 ? where->ends[index - 1] : 0;
    return (struct slice){where->text + begin, where->ends[index] - begin};
}

/* With all values of each field, or only with the first. */
static void write_object(const struct where *where, bool is_document, struct buffer *out) {
    static const char *const names[] = {"status", "tags", "parent_run_id", "worker_id"};
    size_t at = 0;
    char separator = '{';
    for (size_t field = 0; field < WHERE_FIELD_COUNT; field++) {
        bool is_list = !is_document || field == WHERE_TAGS;
        for (size_t i = 0; i < where->counts[field]; i++, at++) {
            require(value_at(where, at).size > 0);
            if (is_document && i > 0)
                continue;
            if (i == 0)
                require(buffer_printf(out, "%c\"%s\":%s", separator, names[field],
                                      is_list ? "[" : "") == STATUS_OK);
            else
                require(buffer_append_byte(out, ',') == STATUS_OK);
            require(json_write_string(out, value_at(where, at)) == STATUS_OK);
            separator = ',';
        }
        if (where->counts[field] > 0 && is_list)
            require(buffer_append_byte(out, ']') == STATUS_OK);
    }
    require(buffer_append_slice(out, separator == '{' ? SLICE("{}") : SLICE("}")) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct where where, again;
    struct where_fields fields;
    struct slice unknown;
    struct buffer out;
    buffer_init(&out, OUT_BYTES_MAX);
    enum status status = where_read(text, &where, &unknown);
    require(status == STATUS_OK || status == STATUS_INVALID_REQUEST ||
            status == STATUS_UNKNOWN_PARAMETER);
    if (status == STATUS_UNKNOWN_PARAMETER)
        require(unknown.data > text.data && unknown.data + unknown.size < text.data + text.size);
    if (status == STATUS_OK) {
        require(where_size(&where) <= sizeof(where));
        write_object(&where, false, &out);
        require(where_read(buffer_slice(&out), &again, &unknown) == STATUS_OK);
        require(where_equal(&where, &again));
        buffer_clear(&out);
        write_object(&where, true, &out);
        require(where_fields_read(buffer_slice(&out), &fields) == STATUS_OK);
        require(where_matches(&where, &fields));
    } else {
        require(where_read(SLICE("{\"status\":\"a\"}"), &where, &unknown) == STATUS_OK);
    }
    (void)where_judge(&where, text);
    if (where_fields_read(text, &fields) == STATUS_OK) {
        buffer_clear(&out);
        require(where_record_complete(&out, text, &fields) == STATUS_OK);
        /* A record of a frame tells of its document what the document tells itself. */
        require((where_judge(&where, buffer_slice(&out)) == WHERE_WHOLE) ==
                where_matches(&where, &fields));
    }
    buffer_release(&out);
    return 0;
}
