/* The memory of frames: of their own, or shared by those of one read. */
#include "hub/frame.h"

#include "base/limits.h"
#include "test.h"

#define COUNT 100

static struct frame *make(struct frame_room *room, uint64_t seq, struct slice payload) {
    const struct frame_content content = {.seq = seq, .kind = SLICE("tick"), .payload = payload};
    const struct frame_text text = {.head = SLICE("\"payload\":"), .tail = SLICE(",\"a\":1")};
    struct frame *frame;
    assert_ok(frame_make(room, &content, &text, &frame));
    return frame;
}

static void frames_outlive_the_room_that_they_were_made_in(void **state) {
    (void)state;
    struct frame_room room = {0};
    struct frame *frames[COUNT];
    char payload[1000];
    memset(payload, '1', sizeof(payload));
    /* More than one block. */
    _Static_assert(COUNT * sizeof(payload) > 2 * FRAME_BLOCK_BYTES, "several blocks");
    for (size_t i = 0; i < COUNT; i++)
        frames[i] = make(&room, i, (struct slice){payload, i});
    frame_room_release(&room);
    frame_room_release(&room);
    /* The order in which they are freed does not matter. */
    for (size_t i = 0; i < COUNT; i++) {
        struct frame *frame = frames[i * 37 % COUNT];
        assert_non_null(frame->block);
        assert_slice(frame->content.kind, "tick");
        assert_int_equal(frame->content.payload.size, frame->content.seq);
        assert_int_equal(frame->forms[FRAME_FULL].size,
                         strlen("\"payload\":,\"a\":1") + frame->content.seq);
        assert_memory_equal(frame->content.payload.data, payload, frame->content.seq);
        frame_unref(frame);
    }
}

static void a_large_frame_has_its_own_memory(void **state) {
    (void)state;
    struct frame_room room = {0};
    static char payload[FRAME_BLOCK_BYTES];
    struct frame *small = make(&room, 1, SLICE("1"));
    struct frame *large = make(&room, 2, (struct slice){payload, sizeof(payload)});
    struct frame *next = make(&room, 3, SLICE("1"));
    assert_null(large->block);
    assert_ptr_equal(small->block, next->block);
    frame_room_release(&room);
    frame_unref(small);
    frame_unref(large);
    frame_unref(next);
    struct frame *alone = make(NULL, 4, SLICE("1"));
    assert_null(alone->block);
    frame_unref(alone);
}

static void a_copy_holds_no_block(void **state) {
    (void)state;
    struct frame_room room = {0};
    struct frame *frame = make(&room, 1, SLICE("{}"));
    struct frame *copy = frame_copy(frame);
    frame_room_release(&room);
    frame_unref(frame);
    assert_non_null(copy);
    assert_null(copy->block);
    assert_int_equal(copy->content.seq, 1);
    assert_slice(copy->content.kind, "tick");
    assert_slice(copy->content.payload, "{}");
    assert_slice(copy->forms[FRAME_FULL], "\"payload\":{},\"a\":1");
    assert_null(copy->content.owner.user_id.data);
    frame_unref(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_outlive_the_room_that_they_were_made_in),
        cmocka_unit_test(a_large_frame_has_its_own_memory),
        cmocka_unit_test(a_copy_holds_no_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
