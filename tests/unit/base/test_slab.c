#include "base/slab.h"

#include "test.h"

#define ITEMS      1000
#define ITEM_BYTES 200

static struct slab slab;

static int open_slab(void **state) {
    (void)state;
    slab = (struct slab){0};
    return 0;
}

static int close_slab(void **state) {
    (void)state;
    slab_release(&slab);
    return 0;
}

static bool is_all(const unsigned char *item, unsigned char byte) {
    for (size_t at = 0; at < ITEM_BYTES; at++)
        if (item[at] != byte)
            return false;
    return true;
}

static void items_are_zeroed_aligned_and_apart(void **state) {
    (void)state;
    static unsigned char *items[ITEMS];
    uint64_t seed = 5;
    for (size_t round = 0; round < 20000; round++) {
        size_t i = test_random(&seed) % ITEMS;
        if (items[i]) {
            assert_true(is_all(items[i], (unsigned char)(i & 255)));
            slab_give(&slab, items[i]);
            items[i] = NULL;
            continue;
        }
        items[i] = slab_take(&slab, ITEM_BYTES);
        assert_non_null(items[i]);
        assert_int_equal((uintptr_t)items[i] % SLAB_ALIGNMENT, 0);
        assert_true(is_all(items[i], 0));
        memset(items[i], (int)(i & 255), ITEM_BYTES);
    }
    for (size_t i = 0; i < ITEMS; i++)
        if (items[i])
            slab_give(&slab, items[i]);
    assert_int_equal(slab.item_count, 0);
}

static size_t count_blocks(void) {
    size_t count = 0;
    for (const struct hlist_node *node = slab.roomy.first; node; node = node->next)
        count++;
    return count;
}

static void blocks_without_items_are_freed(void **state) {
    (void)state;
    static void *items[ITEMS];
    for (size_t i = 0; i < ITEMS; i++)
        items[i] = slab_take(&slab, ITEM_BYTES);
    for (size_t i = 0; i < ITEMS; i++)
        slab_give(&slab, items[i]);
    assert_int_equal(count_blocks(), 1);
}

static void items_lie_side_by_side(void **state) {
    (void)state;
    static char *items[ITEMS];
    size_t apart = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = slab_take(&slab, ITEM_BYTES);
        if (i > 0 && items[i] - items[i - 1] != ITEM_BYTES)
            apart++;
    }
    assert_true(apart <= ITEMS * ITEM_BYTES / SLAB_BLOCK_BYTES + 1);
    for (size_t i = 0; i < ITEMS; i++)
        slab_give(&slab, items[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(items_are_zeroed_aligned_and_apart, open_slab, close_slab),
        cmocka_unit_test_setup_teardown(blocks_without_items_are_freed, open_slab, close_slab),
        cmocka_unit_test_setup_teardown(items_lie_side_by_side, open_slab, close_slab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
