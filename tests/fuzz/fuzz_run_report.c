/* The events of a run, [[type, payload], …], of any shape. Each is refused with the name of a
 * member, or is folded. A refused one changes nothing but the counts. After each event the document
 * is canonical and bounded, and a summary that is read from it folds on like the one in memory. */
#include "authority/run_report.h"

#include "authority/append.h"
#include "base/limits.h"
#include "fuzz.h"
#include "projector/fold.h"
#include "wire/canonical.h"

#define BYTES_MAX       65536
#define EVENTS_MAX      64
#define ARENA_BYTES_MAX ((size_t)64 << 20)

static void write_document(union any_summary *summary, struct buffer *out) {
    const struct summary_stamp stamp = {SLICE(PROJECTION_VERSION_DEFAULT), 1};
    struct summary_marks marks;
    require(summary_write(&run_summary_layout, &summary->common, &stamp, out, &marks) == STATUS_OK);
}

static void check_document(struct slice document, const struct run_summary *run) {
    const struct json_limits limits = {SUMMARY_BYTES_MAX, JSON_DEPTH_MAX};
    struct canonical_scratch scratch;
    struct payload_hash hash;
    struct json_value value, item;
    struct run_fault fault;
    size_t others = 0;
    require(json_parse(document, &limits, &value) == STATUS_OK);
    canonical_scratch_init(&scratch, document.size);
    require(payload_hash(value, &scratch, &hash) == STATUS_OK);
    require(slice_equal(buffer_slice(&scratch.text), document));
    canonical_scratch_release(&scratch);
    struct json_iterator steps =
        json_iterate((struct json_value){JSON_KIND_ARRAY, run->other_open_steps});
    while (json_next_element(&steps, &item))
        others++;
    require(others < RUN_OPEN_STEPS_KEPT_MAX);
    require(run->open_steps >= others + !summary_is_null(run->current_step));
    require(run_member_check(RUN_MEMBER_TAGS, (struct json_value){JSON_KIND_ARRAY, run->tags},
                             &fault) == STATUS_OK);
    require(summary_is_null(run->title) ||
            run_member_check(RUN_MEMBER_TITLE, (struct json_value){JSON_KIND_STRING, run->title},
                             &fault) == STATUS_OK);
    require(run->metadata.size <= RUN_METADATA_BYTES_MAX);
}

/* Both summaries after the event. The first is folded on in memory, the second from its document.
 */
static void fold_both(union any_summary summaries[2], const struct store_event *event,
                      struct arena *arena, struct buffer documents[2]) {
    struct run_report report;
    struct run_fault fault = {NULL, NULL};
    struct run_summary before = summaries[0].run;
    enum status shape = run_report_read(event->type, event->payload, &report, &fault);
    for (size_t i = 0; i < 2; i++) {
        require(run_summary_layout.fold(&summaries[i].common, event, arena) == STATUS_OK);
        buffer_clear(&documents[i]);
        write_document(&summaries[i], &documents[i]);
    }
    require(slice_equal(buffer_slice(&documents[0]), buffer_slice(&documents[1])));
    check_document(buffer_slice(&documents[0]), &summaries[0].run);
    if (shape != STATUS_OK) {
        require(fault.member && *fault.member && fault.problem && *fault.problem);
        const struct run_summary *after = &summaries[0].run;
        require(slice_equal(after->title, before.title) && slice_equal(after->tags, before.tags));
        require(slice_equal(after->metadata, before.metadata));
        require(slice_equal(after->usage, before.usage));
        require(slice_equal(after->waiting, before.waiting));
        require(slice_equal(after->current_step, before.current_step));
    }
    struct slice kept = arena_copy(arena, buffer_slice(&documents[1]));
    require(kept.data &&
            summary_read(&run_summary_layout, kept, SLICE("r"), &summaries[1].common) == STATUS_OK);
}

static bool read_event(struct json_value pair, struct canonical_scratch *scratch,
                       struct arena *arena, struct store_event *event) {
    struct json_value type, payload;
    if (pair.kind != JSON_KIND_ARRAY)
        return false;
    struct json_iterator iterator = json_iterate(pair);
    if (!json_next_element(&iterator, &type) || !json_next_element(&iterator, &payload) ||
        !json_string_slice(type, &event->type) || event->type.size > APPEND_TYPE_BYTES_MAX)
        return false;
    buffer_clear(&scratch->text);
    if (canonical_write(payload, scratch, &scratch->text) != STATUS_OK)
        return false;
    event->payload = arena_copy(arena, buffer_slice(&scratch->text));
    require(event->payload.data != NULL);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct json_limits limits = {BYTES_MAX, 64};
    struct json_value events, pair;
    if (json_parse((struct slice){(const char *)data, size}, &limits, &events) != STATUS_OK ||
        events.kind != JSON_KIND_ARRAY)
        return 0;
    struct canonical_scratch scratch;
    struct buffer documents[2];
    struct arena arena;
    union any_summary summaries[2];
    canonical_scratch_init(&scratch, BYTES_MAX);
    arena_init(&arena, ARENA_BYTES_MAX);
    for (size_t i = 0; i < 2; i++) {
        buffer_init(&documents[i], SUMMARY_BYTES_MAX);
        summary_init(&run_summary_layout, &summaries[i].common, SLICE("r"));
    }
    struct store_event event = {.type = SLICE("run.started"), .payload = SLICE("{}"), .seq = 1};
    fold_both(summaries, &event, &arena, documents);
    struct json_iterator iterator = json_iterate(events);
    while (event.seq < EVENTS_MAX && json_next_element(&iterator, &pair)) {
        if (!read_event(pair, &scratch, &arena, &event))
            continue;
        event.seq++;
        event.recorded_at_ms = 1000 * event.seq;
        fold_both(summaries, &event, &arena, documents);
    }
    for (size_t i = 0; i < 2; i++)
        buffer_release(&documents[i]);
    arena_release(&arena);
    canonical_scratch_release(&scratch);
    return 0;
}
