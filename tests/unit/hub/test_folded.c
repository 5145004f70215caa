/* Folded frames and the list that a topic keeps of them. */
#include "hub/folded.h"

#include <stdio.h>

#include "base/limits.h"
#include "test.h"

#define FRAMES_MAX 4096
#define ALL        ((struct fold_limits){FRAMES_MAX, SIZE_MAX, 65536})

static struct owner ada = {.user_id = SLICE("ada")};

struct made {
    const char *type;
    const char *text; /* of its delta */
    uint64_t entity_ref;
    const struct owner *owner;
};

/* A frame as it is made of a stored event. */
static struct frame *make(uint64_t seq, const struct made *made) {
    char payload[256];
    char id[32];
    struct frame *frame;
    snprintf(payload, sizeof(payload), "{\"delta\":\"%s\",\"id\":\"m\"}", made->text);
    snprintf(id, sizeof(id), "%llu", (unsigned long long)made->entity_ref);
    const struct store_event event = {.seq = seq,
                                      .entity_ref = made->entity_ref,
                                      .entity_kind = ENTITY_RUN,
                                      .entity_id = slice_of(id),
                                      .type = slice_of(made->type),
                                      .payload = slice_of(payload),
                                      .event_id = uuid7_first(1000 + seq),
                                      .cursor = uuid7_first(1000 + seq),
                                      .recorded_at_ms = 1000 + seq,
                                      .owner = *made->owner};
    const struct frame_topic topic = {SLICE("run:r:events"), SLICE("v")};
    assert_ok(frame_of_event(&topic, &event, NULL, NULL, &frame));
    return frame;
}

static struct frame *plain(uint64_t seq) {
    return make(seq, &(struct made){"said", "", 1, &ada});
}

static struct frame *delta(uint64_t seq, const char *text) {
    return make(seq, &(struct made){"x.delta", text, 1, &ada});
}

static void release(struct frame **frames, size_t count) {
    for (size_t i = 0; i < count; i++)
        frame_unref(frames[i]);
}

static bool has(struct slice text, const char *part) {
    return memmem(text.data, text.size, part, strlen(part));
}

static void a_folded_frame_has_what_is_true_of_all_its_events(void **state) {
    (void)state;
    struct frame *frames[] = {delta(7, "a"), delta(8, "\\n"), delta(9, "c")};
    struct frame *last = frame_ref(frames[2]);
    size_t made;
    assert_int_equal(frames_fold(frames, 3, &ALL, &made), 3);
    assert_int_equal(made, 1);
    const struct frame *folded = frames[0];
    assert_int_equal(folded->first_seq, 7);
    assert_int_equal(folded->content.seq, 9);
    assert_slice(folded->content.payload, "{\"delta\":\"a\\nc\",\"id\":\"m\"}");
    assert_slice(folded->content.kind, "x.delta");
    assert_slice(folded->content.owner.user_id, "ada");
    assert_int_equal(folded->committed_ns, 0);
    for (size_t form = 0; form < FRAME_FORM_COUNT; form++) {
        struct slice text = folded->forms[form];
        assert_true(has(text, "\"seq\":9,"));
        assert_true(has(text, "\"folded\":{\"from_seq\":7,\"count\":3},\"payload\":"
                              "{\"delta\":\"a\\nc\",\"id\":\"m\"}"));
        assert_true(has(text, "\"recorded_at\":1009"));
        assert_false(has(text, "payload_hash") || has(text, "doc_key") || has(text, "doc_version"));
    }
    /* Otherwise both forms have the members of the last event. */
    assert_true(has(folded->forms[FRAME_FULL], "\"topic\":\"run:r:events\""));
    assert_true(has(folded->forms[FRAME_FULL], "\"entity_seq\":9"));
    assert_int_equal(*folded->forms[FRAME_LEAN].data, '"');
    assert_memory_equal(folded->forms[FRAME_LEAN].data, last->forms[FRAME_LEAN].data, 16);
    frame_unref(last);
    release(frames, made);
}

static void other_owners_entities_and_steps_end_a_run(void **state) {
    (void)state;
    struct owner bob = {.user_id = SLICE("bob")};
    const struct made a = {"x.delta", "t", 1, &ada};
    const struct made other_entity = {"x.delta", "t", 2, &ada};
    const struct made other_owner = {"x.delta", "t", 2, &bob};
    struct frame *frames[] = {make(1, &a),           make(2, &a),           make(3, &other_entity),
                              make(4, &other_owner), make(5, &other_owner), make(7, &other_owner)};
    size_t made;
    assert_int_equal(frames_fold(frames, 6, &ALL, &made), 6);
    static const uint64_t seqs[][2] = {{1, 2}, {3, 3}, {4, 5}, {7, 7}};
    assert_int_equal(made, 4);
    for (size_t i = 0; i < made; i++) {
        assert_int_equal(frames[i]->first_seq, seqs[i][0]);
        assert_int_equal(frames[i]->content.seq, seqs[i][1]);
    }
    release(frames, made);
    /* Readers that began at different positions come to the same frames. */
    struct frame *steps[] = {delta(1023, "a"), delta(1024, "b"), delta(1025, "c"),
                             delta(1026, "d")};
    assert_int_equal(frames_fold(steps, 4, &ALL, &made), 4);
    assert_int_equal(made, 2);
    assert_int_equal(steps[1]->first_seq, 1025);
    release(steps, made);
}

static void what_has_no_room_stays_as_it_was(void **state) {
    (void)state;
    struct frame *frames[] = {delta(1, "a"), delta(2, "b"), plain(3), plain(4), plain(5)};
    size_t made;
    assert_int_equal(frames_fold(frames, 5, &(struct fold_limits){2, SIZE_MAX, 65536}, &made), 3);
    assert_int_equal(made, 2);
    assert_int_equal(frames[0]->content.seq, 2);
    assert_int_equal(frames[1]->content.seq, 3);
    assert_int_equal(frames[3]->content.seq, 4);
    release(frames, 2);
    assert_int_equal(frames_fold(frames + 3, 2, &(struct fold_limits){9, 1, 65536}, &made), 1);
    assert_int_equal(made, 1);
    release(frames + 3, 2);
}

/* So many deltas behind a position, folded, are added to the list. */
static void add(struct folded_list *list, uint64_t first_seq, size_t count, size_t bytes_max) {
    static struct frame *frames[FRAMES_MAX];
    size_t made;
    for (size_t i = 0; i < count; i++)
        frames[i] = delta(first_seq + i, "t");
    assert_int_equal(frames_fold(frames, count, &ALL, &made), count);
    folded_add(list, frames, made, bytes_max, 65536);
    release(frames, made);
}

static void check_list(const struct folded_list *list, size_t count, uint64_t first_seq,
                       uint64_t last_seq) {
    assert_int_equal(list->count, count);
    uint64_t next = first_seq;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list->frames[i]->first_seq, next);
        assert_int_equal(folded_find(list, next), i);
        next++;
        /* No frame begins inside another one. */
        if (next <= list->frames[i]->content.seq)
            assert_int_equal(folded_find(list, next), list->count);
        next = list->frames[i]->content.seq + 1;
    }
    assert_int_equal(next, last_seq + 1);
}

static void a_list_grows_at_both_ends_and_folds_its_last_frame(void **state) {
    (void)state;
    struct folded_list list = {0};
    add(&list, 1025, 100, SIZE_MAX);
    check_list(&list, 1, 1025, 1124);
    add(&list, 1125, 100, SIZE_MAX);
    check_list(&list, 1, 1025, 1224);
    add(&list, 1, 1024, SIZE_MAX);
    check_list(&list, 2, 1, 1224);
    struct frame *next[] = {plain(1225), delta(1226, "u")};
    folded_add(&list, next, 2, SIZE_MAX, 65536);
    check_list(&list, 4, 1, 1226);
    release(next, 2);
    folded_release(&list);
    add(&list, 100, 50, SIZE_MAX);
    add(&list, 1, 99, SIZE_MAX);
    check_list(&list, 1, 1, 149);
    /* A reader inside the list has what others have already. */
    add(&list, 50, 2000, SIZE_MAX);
    check_list(&list, 1, 1, 149);
    folded_release(&list);
    assert_int_equal(list.count + list.bytes, 0);
}

static void a_list_that_nobody_uses_begins_anew(void **state) {
    (void)state;
    struct folded_list list = {0};
    add(&list, 1, 100, SIZE_MAX);
    list.is_used = true;
    add(&list, 5000, 50, SIZE_MAX);
    check_list(&list, 1, 1, 100);
    add(&list, 5000, 50, SIZE_MAX);
    check_list(&list, 1, 5000, 5049);
    /* Frames of which none is folded begin no list. */
    struct frame *frames[] = {plain(1), plain(2)};
    folded_add(&list, frames, 2, SIZE_MAX, 65536);
    check_list(&list, 1, 5000, 5049);
    release(frames, 2);
    folded_release(&list);
}

static void a_full_list_drops_its_oldest_frames(void **state) {
    (void)state;
    struct folded_list list = {0};
    add(&list, 1, 2048, SIZE_MAX);
    check_list(&list, 2, 1, 2048);
    size_t bytes_max = list.bytes + 64;
    for (uint64_t step = 2; step < 6; step++) {
        add(&list, step * 1024 + 1, 1024, bytes_max);
        check_list(&list, 2, (step - 1) * 1024 + 1, (step + 1) * 1024);
        assert_true(list.bytes <= bytes_max);
    }
    folded_release(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folded_frame_has_what_is_true_of_all_its_events),
        cmocka_unit_test(other_owners_entities_and_steps_end_a_run),
        cmocka_unit_test(what_has_no_room_stays_as_it_was),
        cmocka_unit_test(a_list_grows_at_both_ends_and_folds_its_last_frame),
        cmocka_unit_test(a_list_that_nobody_uses_begins_anew),
        cmocka_unit_test(a_full_list_drops_its_oldest_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
