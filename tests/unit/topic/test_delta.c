/* Which events become one frame, by the vectors, and what only memory shows: folding what was
 * folded before, and runs that end at every event. */
#include "topic/delta.h"
#include "vectors.h"
#include "wire/canonical.h"

#define EVENTS_MAX 16

static struct buffer canonical_of(json_t *value) {
    const struct json_limits limits = {VECTOR_BYTES_MAX, JSON_DEPTH_MAX};
    struct canonical_scratch scratch;
    struct json_value parsed;
    struct buffer out;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(text);
    buffer_init(&out, VECTOR_BYTES_MAX);
    canonical_scratch_init(&scratch, VECTOR_BYTES_MAX);
    assert_ok(json_parse(slice_of(text), &limits, &parsed));
    assert_ok(canonical_write(parsed, &scratch, &out));
    canonical_scratch_release(&scratch);
    free(text);
    return out;
}

static void assert_same(const struct buffer *actual, const struct buffer *expected) {
    assert_int_equal(actual->size, expected->size);
    assert_memory_equal(actual->data, expected->data, expected->size);
}

struct events {
    size_t count;
    struct delta_event list[EVENTS_MAX];
    struct buffer payloads[EVENTS_MAX];
};

static void events_load(struct events *events, json_t *rows) {
    size_t index;
    json_t *row;
    assert_true(json_array_size(rows) <= EVENTS_MAX);
    events->count = json_array_size(rows);
    json_array_foreach(rows, index, row) {
        uint64_t seq = vector_number(row, "seq");
        events->payloads[index] = canonical_of(json_object_get(row, "payload"));
        events->list[index] = (struct delta_event){seq, seq, vector_text(row, "type"),
                                                   buffer_slice(&events->payloads[index])};
    }
}

static void events_release(struct events *events) {
    for (size_t i = 0; i < events->count; i++)
        buffer_release(&events->payloads[i]);
}

/* The first frame of the events: its joined payload, and how many of them it takes. */
static size_t join(const struct delta_event *events, size_t count, size_t bytes_max,
                   struct buffer *payload) {
    struct delta_run run;
    size_t taken = 1;
    if (!delta_run_begin(&run, &events[0])) {
        assert_ok(buffer_append_slice(payload, events[0].payload));
        return 1;
    }
    while (taken < count && delta_run_add(&run, &events[taken], bytes_max))
        taken++;
    assert_int_equal(run.from_seq, events[0].from_seq);
    assert_int_equal(run.seq, events[taken - 1].seq);
    size_t begin = payload->size;
    buffer_append_slice(payload, run.before);
    for (size_t i = 0; i < taken; i++)
        buffer_append_slice(payload, delta_run_text(&run, events[i].payload));
    assert_ok(buffer_append_slice(payload, run.after));
    assert_int_equal(payload->size - begin, run.bytes);
    return taken;
}

static void events_become_the_frames_of_the_vectors(void **state) {
    (void)state;
    json_t *vectors = vectors_load("fold");
    size_t index, at;
    json_t *vector, *frame;
    json_array_foreach(vectors_array(vectors, "vectors"), index, vector) {
        struct events events;
        size_t taken = 0;
        events_load(&events, json_object_get(vector, "events"));
        json_array_foreach(json_object_get(vector, "frames"), at, frame) {
            struct buffer payload;
            struct buffer expected = canonical_of(json_object_get(frame, "payload"));
            buffer_init(&payload, VECTOR_BYTES_MAX);
            assert_true(taken < events.count);
            assert_int_equal(events.list[taken].seq, vector_number(frame, "from_seq"));
            taken += join(events.list + taken, events.count - taken,
                          vector_number(vector, "max_payload_bytes"), &payload);
            assert_int_equal(events.list[taken - 1].seq, vector_number(frame, "seq"));
            assert_same(&payload, &expected);
            buffer_release(&payload);
            buffer_release(&expected);
        }
        assert_int_equal(taken, events.count);
        events_release(&events);
    }
    json_decref(vectors);
}

/* A frame may end anywhere, and later be folded with the frame behind it. */
static void what_was_folded_can_be_folded_again(void **state) {
    (void)state;
    json_t *vectors = vectors_load("fold");
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "vectors"), index, vector) {
        struct events events;
        size_t bytes_max = vector_number(vector, "max_payload_bytes");
        events_load(&events, json_object_get(vector, "events"));
        for (size_t cut = 1; cut < events.count; cut++) {
            struct buffer whole, first, second, again;
            struct buffer *const all[] = {&whole, &first, &second, &again};
            for (size_t i = 0; i < 4; i++)
                buffer_init(all[i], VECTOR_BYTES_MAX);
            size_t taken = join(events.list, events.count, bytes_max, &whole);
            if (taken > cut) {
                size_t one = join(events.list, cut, bytes_max, &first);
                size_t two = join(events.list + cut, taken - cut, bytes_max, &second);
                assert_int_equal(one + two, taken);
                const struct delta_event pair[] = {
                    {events.list[0].seq, events.list[cut - 1].seq, events.list[0].type,
                     buffer_slice(&first)},
                    {events.list[cut].seq, events.list[taken - 1].seq, events.list[0].type,
                     buffer_slice(&second)},
                };
                assert_int_equal(join(pair, 2, bytes_max, &again), 2);
                assert_same(&again, &whole);
            }
            for (size_t i = 0; i < 4; i++)
                buffer_release(all[i]);
        }
        events_release(&events);
    }
    json_decref(vectors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_become_the_frames_of_the_vectors),
        cmocka_unit_test(what_was_folded_can_be_folded_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
