/* Lines of JSON as the payloads of deltas that follow each other, in their canonical form. What is
 * folded is what jansson says: one object with all texts, of payloads that differ in the text
 * alone. */
#include <string.h>

#include "fuzz.h"
#include "topic/delta.h"
#include "wire/canonical.h"

#define BYTES_MAX  65536
#define EVENTS_MAX 32

struct events {
    size_t count;
    struct delta_event list[EVENTS_MAX];
    struct buffer payloads[EVENTS_MAX];
};

static bool add(struct events *events, struct slice line) {
    const struct json_limits limits = {BYTES_MAX, JSON_DEPTH_MAX};
    struct canonical_scratch scratch;
    struct json_value value;
    struct buffer *out = &events->payloads[events->count];
    if (json_parse(line, &limits, &value) != STATUS_OK)
        return false;
    buffer_init(out, 6 * BYTES_MAX);
    canonical_scratch_init(&scratch, value.raw.size);
    enum status status = canonical_write(value, &scratch, out);
    canonical_scratch_release(&scratch);
    if (status != STATUS_OK) {
        buffer_release(out);
        return false;
    }
    events->list[events->count] = (struct delta_event){events->count + 1, events->count + 1,
                                                       SLICE("x.delta"), buffer_slice(out)};
    events->count++;
    return true;
}

static json_t *load(struct slice text) {
    json_error_t error;
    json_t *tree = json_loadb(text.data, text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    require(tree || is_jansson_limit(&error));
    return tree;
}

static bool is_foldable(json_t *tree) {
    return json_is_string(json_object_get(tree, "id")) &&
           json_is_string(json_object_get(tree, "delta"));
}

/* Whether b differs from a in its delta alone. */
static bool continues(json_t *a, json_t *b) {
    json_t *before = json_copy(a);
    json_t *after = json_copy(b);
    json_object_del(before, "delta");
    json_object_del(after, "delta");
    bool is_same = is_foldable(b) && json_equal(before, after);
    json_decref(before);
    json_decref(after);
    return is_same;
}

/* The run of events with those trees, NULL for one that jansson cannot read. */
static void check_run(const struct delta_event *events, json_t *const *trees, size_t count) {
    struct buffer joined, text;
    struct delta_run run;
    size_t taken = 1;
    bool begins = delta_run_begin(&run, &events[0]);
    require(!trees[0] || begins == is_foldable(trees[0]));
    if (!begins)
        return;
    while (taken < count && delta_run_add(&run, &events[taken], 6 * BYTES_MAX)) {
        require(!trees[0] || !trees[taken] || continues(trees[0], trees[taken]));
        taken++;
    }
    buffer_init(&joined, 6 * BYTES_MAX + 1);
    buffer_init(&text, BYTES_MAX * EVENTS_MAX);
    buffer_append_slice(&joined, run.before);
    bool is_known = true;
    for (size_t i = 0; i < taken; i++) {
        buffer_append_slice(&joined, delta_run_text(&run, events[i].payload));
        is_known = is_known && trees[i];
        json_t *delta = is_known ? json_object_get(trees[i], "delta") : NULL;
        buffer_append(&text, json_string_value(delta), json_string_length(delta));
    }
    buffer_append_slice(&joined, run.after);
    require(buffer_status(&joined) == STATUS_OK && joined.size == run.bytes);
    json_t *whole = is_known ? load(buffer_slice(&joined)) : NULL;
    if (whole) {
        json_t *delta = json_object_get(whole, "delta");
        require(continues(trees[0], whole));
        const struct slice joined_text = {json_string_value(delta), json_string_length(delta)};
        require(slice_equal(joined_text, buffer_slice(&text)));
    }
    json_decref(whole);
    buffer_release(&joined);
    buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct events events = {.count = 0};
    json_t *trees[EVENTS_MAX];
    const char *at = (const char *)data;
    const char *end = at + size;
    if (size > BYTES_MAX)
        return 0;
    while (at < end && events.count < EVENTS_MAX) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        (void)add(&events, (struct slice){at, (size_t)(line_end - at)});
        at = line_end < end ? line_end + 1 : end;
    }
    for (size_t i = 0; i < events.count; i++)
        trees[i] = load(events.list[i].payload);
    for (size_t i = 0; i < events.count; i++)
        check_run(events.list + i, trees + i, events.count - i);
    for (size_t i = 0; i < events.count; i++) {
        json_decref(trees[i]);
        buffer_release(&events.payloads[i]);
    }
    return 0;
}
