#include "base/arena.h"
#include "base/poison.h"
#include "test.h"

static void pieces_are_aligned_and_apart(void **state) {
    (void)state;
    struct arena arena;
    unsigned char *pieces[400];
    size_t sizes[400];
    uint64_t seed = 3;
    arena_init(&arena, 1 << 20);
    for (size_t i = 0; i < 400; i++) {
        sizes[i] = test_random(&seed) % 300;
        pieces[i] = arena_alloc(&arena, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % ARENA_ALIGNMENT, 0);
        memset(pieces[i], (int)(i & 255), sizes[i]);
    }
    for (size_t i = 0; i < 400; i++)
        for (size_t at = 0; at < sizes[i]; at++)
            assert_int_equal(pieces[i][at], i & 255);
    arena_release(&arena);
    assert_int_equal(arena.bytes_held, 0);
}

static void empty_pieces_are_distinct(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1000);
    void *first = arena_alloc(&arena, 0);
    void *second = arena_alloc(&arena, 0);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    arena_release(&arena);
}

static void the_maximum_holds_for_any_sizes(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 300; round++) {
        struct arena arena;
        size_t bytes_max = 1 + test_random(&seed) % 100000;
        size_t given = 0;
        arena_init(&arena, bytes_max);
        for (int i = 0; i < 200; i++) {
            size_t size = test_random(&seed) % (1 + test_random(&seed) % 20000);
            char *piece = arena_alloc(&arena, size);
            assert_true(arena.bytes_held <= bytes_max);
            if (piece) {
                memset(piece, 1, size);
                given += size;
            }
        }
        assert_true(given < bytes_max);
        arena_release(&arena);
    }
}

static void a_refusal_leaves_it_usable(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1000);
    assert_null(arena_alloc(&arena, 1001));
    assert_null(arena_alloc(&arena, 1000));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_int_equal(arena.bytes_held, 0);
    /* All but the block's header of 16 bytes can be had, to the last byte. */
    for (int i = 0; i < 61; i++)
        assert_non_null(arena_alloc(&arena, 16));
    assert_null(arena_alloc(&arena, 9));
    assert_non_null(arena_alloc(&arena, 8));
    assert_null(arena_alloc(&arena, 0));
    arena_reset(&arena);
    assert_non_null(arena_alloc(&arena, 1000 - 16));
    assert_null(arena_alloc(&arena, 0));
    arena_release(&arena);
}

static void a_maximum_below_a_header_gives_nothing(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 1);
    assert_null(arena_alloc(&arena, 0));
    assert_null(arena_alloc(&arena, 1));
    arena_reset(&arena);
    arena_release(&arena);
}

static void blocks_double(void **state) {
    (void)state;
    struct arena arena;
    int block_count = 0;
    arena_init(&arena, SIZE_MAX);
    for (size_t held = 0, i = 0; i < 1 << 16; i++) {
        assert_non_null(arena_alloc(&arena, 64));
        block_count += arena.bytes_held != held;
        held = arena.bytes_held;
    }
    assert_in_range(block_count, 9, 12);
    arena_release(&arena);
}

static void a_reset_keeps_a_bounded_part(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 10 << 20);
    arena_reset(&arena);
    assert_int_equal(arena.bytes_held, 0);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 5000; i++)
            assert_non_null(arena_alloc(&arena, 1000));
        arena_reset(&arena);
        assert_true(arena.bytes_held > 0 && arena.bytes_held <= ARENA_KEEP_BYTES);
    }
    size_t kept = arena.bytes_held;
    assert_non_null(arena_alloc(&arena, kept / 2));
    assert_int_equal(arena.bytes_held, kept);
    arena_release(&arena);
    assert_non_null(arena_alloc(&arena, ARENA_KEEP_BYTES));
    arena_reset(&arena);
    assert_int_equal(arena.bytes_held, 0);
    arena_release(&arena);
}

static void copies_are_equal_and_its_own(void **state) {
    (void)state;
    struct arena arena;
    char text[] = "some\0text";
    arena_init(&arena, 200);
    struct slice copy = arena_copy(&arena, (struct slice){text, sizeof(text)});
    memset(text, 'x', sizeof(text));
    assert_true(slice_equal(copy, (struct slice){"some\0text", sizeof(text)}));
    copy = arena_copy(&arena, (struct slice){NULL, 0});
    assert_non_null(copy.data);
    assert_int_equal(copy.size, 0);
    static const char large[300];
    copy = arena_copy(&arena, (struct slice){large, sizeof(large)});
    assert_null(copy.data);
    assert_int_equal(copy.size, 0);
    arena_release(&arena);
}

static void memory_is_watched_outside_of_pieces(void **state) {
    (void)state;
#ifdef POISON_IS_WATCHED
    struct arena arena;
    arena_init(&arena, 10000);
    char *piece = arena_alloc(&arena, 20);
    assert_false(__asan_address_is_poisoned(piece));
    assert_false(__asan_address_is_poisoned(piece + 19));
    assert_true(__asan_address_is_poisoned(piece + 20));
    assert_true(__asan_address_is_poisoned(piece + 32));
    arena_reset(&arena);
    assert_true(__asan_address_is_poisoned(piece));
    assert_ptr_equal(arena_alloc(&arena, 1), piece);
    assert_false(__asan_address_is_poisoned(piece));
    assert_true(__asan_address_is_poisoned(piece + 1));
    arena_release(&arena);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_apart),
        cmocka_unit_test(empty_pieces_are_distinct),
        cmocka_unit_test(the_maximum_holds_for_any_sizes),
        cmocka_unit_test(a_refusal_leaves_it_usable),
        cmocka_unit_test(a_maximum_below_a_header_gives_nothing),
        cmocka_unit_test(blocks_double),
        cmocka_unit_test(a_reset_keeps_a_bounded_part),
        cmocka_unit_test(copies_are_equal_and_its_own),
        cmocka_unit_test(memory_is_watched_outside_of_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
