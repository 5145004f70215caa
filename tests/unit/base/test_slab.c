#include "base/poison.h"
#include "base/slab.h"
#include "death.h"
#include "test.h"

#define OBJECT_BYTES 40

static void takes_up_to_the_maximum(void **state) {
    (void)state;
    struct slab slab;
    void *objects[25];
    slab_init(&slab, OBJECT_BYTES, 10, 25);
    for (int i = 0; i < 25; i++) {
        objects[i] = slab_take(&slab);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % SLAB_ALIGNMENT, 0);
        memset(objects[i], i, OBJECT_BYTES);
    }
    assert_int_equal(slab.made_count, 25);
    assert_null(slab_take(&slab));
    assert_null(slab_take(&slab));
    assert_int_equal(slab.taken_count, 25);
    for (int i = 0; i < 25; i++)
        for (int at = 0; at < OBJECT_BYTES; at++)
            assert_int_equal(((char *)objects[i])[at], i);
    slab_give(&slab, objects[7]);
    assert_ptr_equal(slab_take(&slab), objects[7]);
    assert_null(slab_take(&slab));
    for (int i = 0; i < 25; i++)
        slab_give(&slab, objects[i]);
    assert_int_equal(slab.taken_count, 0);
    slab_release(&slab);
    assert_non_null(objects[0] = slab_take(&slab));
    slab_give(&slab, objects[0]);
    slab_release(&slab);
}

static void memory_comes_a_block_at_a_time_and_stays(void **state) {
    (void)state;
    struct slab slab;
    void *objects[11];
    slab_init(&slab, 1, 10, 1000);
    assert_int_equal(slab.made_count, 0);
    for (int i = 0; i < 11; i++)
        objects[i] = slab_take(&slab);
    assert_int_equal(slab.made_count, 20);
    for (int i = 0; i < 11; i++)
        slab_give(&slab, objects[i]);
    assert_int_equal(slab.made_count, 20);
    slab_release(&slab);
}

static void random_use_hands_out_no_object_twice(void **state) {
    (void)state;
    struct slab slab;
    uint64_t *taken[200];
    size_t count = 0;
    uint64_t seed = 9;
    slab_init(&slab, 64, 16, 200);
    for (uint64_t round = 1; round < 50000; round++) {
        if (count == 0 || test_random(&seed) % 2) {
            uint64_t *object = slab_take(&slab);
            assert_int_equal(object == NULL, count == 200);
            if (object) {
                for (int i = 0; i < 8; i++)
                    object[i] = (uintptr_t)object + (uint64_t)i;
                taken[count++] = object;
            }
        } else {
            size_t index = test_random(&seed) % count;
            for (int i = 0; i < 8; i++)
                assert_int_equal(taken[index][i], (uintptr_t)taken[index] + (uint64_t)i);
            slab_give(&slab, taken[index]);
            taken[index] = taken[--count];
        }
        assert_int_equal(slab.taken_count, count);
    }
    while (count > 0)
        slab_give(&slab, taken[--count]);
    slab_give(&slab, NULL);
    slab_release(&slab);
}

struct misuse {
    struct slab slab;
    char *object;
};

static void give_twice(void *user) {
    struct misuse *misuse = user;
    slab_give(&misuse->slab, misuse->object);
    /* Read as other builds would, so that it is the slab that speaks. */
    unpoison(misuse->object, OBJECT_BYTES);
    slab_give(&misuse->slab, misuse->object);
}

static void give_foreign(void *user) {
    struct misuse *misuse = user;
    _Alignas(SLAB_ALIGNMENT) char foreign[OBJECT_BYTES] = {0};
    slab_give(&misuse->slab, foreign);
}

static void give_inside(void *user) {
    struct misuse *misuse = user;
    slab_give(&misuse->slab, misuse->object + 8);
}

static void write_after_give(void *user) {
    struct misuse *misuse = user;
    slab_give(&misuse->slab, misuse->object);
    unpoison(misuse->object, OBJECT_BYTES);
    memset(misuse->object, 0, OBJECT_BYTES);
    slab_take(&misuse->slab);
}

static void release_too_early(void *user) {
    struct misuse *misuse = user;
    slab_release(&misuse->slab);
}

static void give_once(void *user) {
    struct misuse *misuse = user;
    slab_give(&misuse->slab, misuse->object);
    slab_release(&misuse->slab);
}

static void misuse_asserts(void **state) {
    (void)state;
    struct misuse misuse;
    slab_init(&misuse.slab, OBJECT_BYTES, 4, 8);
    void *other = slab_take(&misuse.slab);
    misuse.object = slab_take(&misuse.slab);
    assert_true(aborts(give_twice, &misuse));
    assert_true(aborts(give_foreign, &misuse));
    assert_true(aborts(give_inside, &misuse));
    assert_true(aborts(write_after_give, &misuse));
    assert_true(aborts(release_too_early, &misuse));
    slab_give(&misuse.slab, other);
    assert_false(aborts(give_once, &misuse));
    slab_give(&misuse.slab, misuse.object);
    slab_release(&misuse.slab);
}

static void given_objects_are_watched(void **state) {
    (void)state;
#ifdef POISON_IS_WATCHED
    struct slab slab;
    slab_init(&slab, OBJECT_BYTES, 4, 8);
    char *object = slab_take(&slab);
    char *neighbour = object + slab.object_bytes;
    assert_false(__asan_address_is_poisoned(object));
    assert_false(__asan_address_is_poisoned(object + OBJECT_BYTES - 1));
    assert_true(__asan_address_is_poisoned(neighbour));
    slab_give(&slab, object);
    assert_true(__asan_address_is_poisoned(object));
    assert_true(__asan_address_is_poisoned(object + OBJECT_BYTES - 1));
    slab_release(&slab);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_up_to_the_maximum),
        cmocka_unit_test(memory_comes_a_block_at_a_time_and_stays),
        cmocka_unit_test(random_use_hands_out_no_object_twice),
        cmocka_unit_test(misuse_asserts),
        cmocka_unit_test(given_objects_are_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
