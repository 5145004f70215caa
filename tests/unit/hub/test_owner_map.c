/* The owners of frames: what is known, what is not, and what is forgotten. */
#include "hub/owner_map.h"

#include "auth/principal.h"
#include "base/limits.h"
#include "test.h"

static const struct owner_map_journal journal = {7, 0};
static const struct owner ann = {.user_id = {"ann", 3}};
static const struct owner bob = {.user_id = {"bob", 3}};
static const struct owner nobody;

static struct owner_map *open_map(void) {
    struct owner_map *map = NULL;
    assert_ok(owner_map_open(&map));
    return map;
}

static struct owner_map_run next_of(struct owner_map *map, const struct owner *owner, uint64_t seq,
                                    uint64_t end_seq) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    const struct owner_map_keys own = {keys, owner_keys(owner, keys)};
    return owner_map_next(map, &journal, own, seq, end_seq);
}

static void assert_run(struct owner_map_run run, uint64_t seq, uint64_t count) {
    assert_int_equal(run.seq, seq);
    assert_int_equal(run.count, count);
}

/* Ann has every hundredth of the frames from 1 to count, and Bob the others. */
static void note_frames(struct owner_map *map, uint64_t count) {
    for (uint64_t seq = 1; seq <= count; seq++)
        owner_map_note(map, &journal, seq, seq % 100 == 0 ? &ann : &bob);
}

static void frames_that_are_not_known_may_be_of_any_owner(void **state) {
    (void)state;
    struct owner_map *map = open_map();
    assert_run(next_of(map, &ann, 5, 25), 5, 20);
    assert_int_equal(next_of(map, &ann, 5, 25).unknown, 20);
    owner_map_note(map, &journal, 10, &ann);
    assert_run(next_of(map, &ann, 5, 25), 5, 20);
    assert_int_equal(next_of(map, &ann, 5, 25).unknown, 19);
    owner_map_note(map, &journal, 10, &bob);
    assert_run(next_of(map, &ann, 5, 25), 5, 5);
    assert_run(next_of(map, &ann, 10, 25), 11, 14);
    owner_map_close(map);
}

static void the_frames_of_an_owner_are_found(void **state) {
    (void)state;
    struct owner_map *map = open_map();
    note_frames(map, 5000);
    assert_run(next_of(map, &ann, 1, 5001), 100, 1);
    assert_run(next_of(map, &ann, 101, 5001), 200, 1);
    assert_run(next_of(map, &ann, 2001, 2099), 2099, 0);
    assert_run(next_of(map, &bob, 100, 5001), 101, 99);
    /* Beyond the frames that are known. */
    assert_run(next_of(map, &ann, 4901, 5011), 5000, 11);
    assert_run(next_of(map, &ann, 9, 9), 9, 0);
    owner_map_close(map);
}

static void a_frame_without_an_owner_is_of_none(void **state) {
    (void)state;
    struct owner_map *map = open_map();
    owner_map_note(map, &journal, 1, &nobody);
    owner_map_note(map, &journal, 2, &ann);
    assert_run(next_of(map, &ann, 1, 3), 2, 1);
    assert_run(next_of(map, &bob, 1, 3), 3, 0);
    owner_map_close(map);
}

static void another_epoch_of_the_journal_is_not_known(void **state) {
    (void)state;
    const struct owner_map_journal later = {7, 1};
    const uint32_t key = 12345;
    struct owner_map *map = open_map();
    note_frames(map, 10);
    assert_run(owner_map_next(map, &later, (struct owner_map_keys){&key, 1}, 1, 11), 1, 10);
    /* What is noted of it replaces what was known. */
    owner_map_note(map, &later, 1, &bob);
    assert_run(next_of(map, &ann, 1, 11), 1, 10);
    owner_map_close(map);
}

static void old_frames_are_forgotten_for_new_ones(void **state) {
    (void)state;
    struct owner_map *map = open_map();
    uint64_t far = 1024 * (uint64_t)OWNER_MAP_BLOCKS_MAX;
    note_frames(map, 10);
    assert_run(next_of(map, &ann, 1, 11), 11, 0);
    owner_map_note(map, &journal, far + 3, &bob);
    assert_run(next_of(map, &ann, 1, 11), 1, 10);
    assert_run(next_of(map, &ann, far + 3, far + 4), far + 4, 0);
    owner_map_close(map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_that_are_not_known_may_be_of_any_owner),
        cmocka_unit_test(the_frames_of_an_owner_are_found),
        cmocka_unit_test(a_frame_without_an_owner_is_of_none),
        cmocka_unit_test(another_epoch_of_the_journal_is_not_known),
        cmocka_unit_test(old_frames_are_forgotten_for_new_ones),
    };
    return cmocka_run_group_tests_name("owner map", tests, NULL, NULL);
}
