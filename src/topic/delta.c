/* The first event of a run is parsed. For the others it is enough to compare the bytes before and
 * behind the text of "delta", and to find the end of that text. */
#include "topic/delta.h"

#include "wire/json.h"
#include "wire/json_text.h"

bool delta_run_begin(struct delta_run *run, const struct delta_event *event) {
    const char *end = event->payload.data + event->payload.size;
    struct json_field fields[] = {{.name = SLICE("delta")}, {.name = SLICE("id")}};
    const struct json_value object = {JSON_KIND_OBJECT, event->payload};
    if (!slice_ends(event->type, SLICE(".delta")) || event->payload.size < 2 ||
        *event->payload.data != '{' || json_read_members(object, fields, 2) != STATUS_OK)
        return false;
    for (size_t i = 0; i < 2; i++)
        if (!fields[i].present || fields[i].value.kind != JSON_KIND_STRING)
            return false;
    const struct slice quoted = fields[0].value.raw;
    const char *text = quoted.data + 1;
    const char *text_end = quoted.data + quoted.size - 1;
    *run = (struct delta_run){
        .from_seq = event->from_seq,
        .seq = event->seq,
        .type = event->type,
        .before = {event->payload.data, (size_t)(text - event->payload.data)},
        .after = {text_end, (size_t)(end - text_end)},
        .bytes = event->payload.size,
    };
    return true;
}

/* The text of "delta" may hold what looks like other members, so its end is looked for. */
static bool has_members_of(const struct delta_run *run, struct slice payload) {
    if (payload.size < run->before.size + run->after.size ||
        memcmp(payload.data, run->before.data, run->before.size) != 0)
        return false;
    const char *end = payload.data + payload.size;
    const char *after = end - run->after.size;
    const char *quote = payload.data + run->before.size - 1;
    return json_text_string_end(quote, end) == after + 1 &&
           memcmp(after, run->after.data, run->after.size) == 0;
}

struct slice delta_run_text(const struct delta_run *run, struct slice payload) {
    return (struct slice){payload.data + run->before.size,
                          payload.size - run->before.size - run->after.size};
}

bool delta_run_add(struct delta_run *run, const struct delta_event *event, size_t bytes_max) {
    if (event->from_seq != run->seq + 1 || !slice_equal(event->type, run->type) ||
        !has_members_of(run, event->payload))
        return false;
    size_t bytes = run->bytes + delta_run_text(run, event->payload).size;
    if (bytes > bytes_max)
        return false;
    run->seq = event->seq;
    run->bytes = bytes;
    return true;
}
