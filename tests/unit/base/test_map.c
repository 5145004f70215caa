#include "base/map.h"
#include "death.h"
#include "test.h"

#define KEY_COUNT   200
#define MANY        1000000
#define ORDER_COUNT 1000

/* A value that holds its own key, as most do. */
struct thing {
    char name[24];
    size_t size;
    uint64_t born; /* the oracle's: when it was inserted, 0 when it is not in */
};

static struct slice key_of(const struct thing *thing) {
    return (struct slice){thing->name, thing->size};
}

static void name_thing(struct thing *thing, size_t number) {
    thing->size = (size_t)snprintf(thing->name, sizeof(thing->name), "run:%zu:events", number);
}

static void an_empty_map_answers(void **state) {
    (void)state;
    struct map map;
    map_init(&map, 1);
    assert_null(map_find(&map, SLICE("x")));
    assert_null(map_remove(&map, SLICE("x")));
    assert_null(map.entries);
    map_release(&map);
}

static void keys_are_byte_strings(void **state) {
    (void)state;
    struct map map;
    int values[5];
    map_init(&map, 10);
    assert_ok(map_insert(&map, (struct slice){NULL, 0}, &values[0]));
    assert_ok(map_insert(&map, SLICE("a"), &values[1]));
    assert_ok(map_insert(&map, SLICE("a\0"), &values[2]));
    assert_ok(map_insert(&map, SLICE("a\0b"), &values[3]));
    assert_ok(map_insert(&map, SLICE("A"), &values[4]));
    assert_ptr_equal(map_find(&map, SLICE("")), &values[0]);
    assert_ptr_equal(map_find(&map, SLICE("a")), &values[1]);
    assert_ptr_equal(map_find(&map, SLICE("a\0")), &values[2]);
    assert_ptr_equal(map_find(&map, SLICE("a\0b")), &values[3]);
    assert_ptr_equal(map_find(&map, SLICE("A")), &values[4]);
    assert_null(map_find(&map, SLICE("\0")));
    assert_ptr_equal(map_remove(&map, SLICE("")), &values[0]);
    assert_null(map_find(&map, SLICE("")));
    assert_int_equal(map.count, 4);
    map_release(&map);
    assert_null(map_find(&map, SLICE("a")));
}

static void a_refused_insert_changes_nothing(void **state) {
    (void)state;
    struct map map;
    int values[3];
    map_init(&map, 2);
    assert_ok(map_insert(&map, SLICE("a"), &values[0]));
    assert_int_equal(map_insert(&map, SLICE("a"), &values[1]), STATUS_ALREADY_EXISTS);
    assert_ptr_equal(map_find(&map, SLICE("a")), &values[0]);
    assert_ok(map_insert(&map, SLICE("b"), &values[1]));
    assert_int_equal(map_insert(&map, SLICE("c"), &values[2]), STATUS_LIMIT_REACHED);
    assert_int_equal(map_insert(&map, SLICE("a"), &values[2]), STATUS_ALREADY_EXISTS);
    assert_int_equal(map.count, 2);
    assert_null(map_find(&map, SLICE("c")));
    assert_ptr_equal(map_remove(&map, SLICE("a")), &values[0]);
    assert_ok(map_insert(&map, SLICE("c"), &values[2]));
    assert_ptr_equal(map_find(&map, SLICE("c")), &values[2]);
    map_release(&map);
}

/* The entries must be exactly what is in, by age. */
static void check_entries(const struct map *map, const struct thing *things, size_t thing_count) {
    size_t seen = 0, in = 0;
    uint64_t last_born = 0;
    for (size_t i = 0; i < map->entry_count; i++) {
        const struct map_entry *entry = &map->entries[i];
        const struct thing *thing = entry->value;
        if (!thing)
            continue;
        seen++;
        assert_true(thing->born > last_born);
        assert_ptr_equal(entry->key.data, thing->name);
        last_born = thing->born;
    }
    for (size_t i = 0; i < thing_count; i++)
        in += things[i].born > 0;
    assert_int_equal(seen, in);
    assert_int_equal(map->count, in);
}

static void random_use_agrees_with_a_list(void **state) {
    (void)state;
    static struct thing things[KEY_COUNT];
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct map map;
        uint64_t random = seed;
        size_t count_max = 20 * seed;
        memset(things, 0, sizeof(things));
        for (size_t i = 0; i < KEY_COUNT; i++)
            name_thing(&things[i], i);
        map_init(&map, count_max);
        for (uint64_t step = 1; step <= 20000; step++) {
            struct thing *thing = &things[test_random(&random) % KEY_COUNT];
            /* Long spells of growing and of shrinking. */
            bool insert = test_random(&random) % 8 < (step / 3000 % 2 ? 2 : 6);
            if (insert) {
                enum status expected = thing->born              ? STATUS_ALREADY_EXISTS
                                       : map.count == count_max ? STATUS_LIMIT_REACHED
                                                                : STATUS_OK;
                assert_int_equal(map_insert(&map, key_of(thing), thing), expected);
                if (expected == STATUS_OK)
                    thing->born = step;
            } else {
                assert_ptr_equal(map_remove(&map, key_of(thing)), thing->born ? thing : NULL);
                thing->born = 0;
            }
            const struct thing *other = &things[test_random(&random) % KEY_COUNT];
            assert_ptr_equal(map_find(&map, key_of(other)), other->born ? other : NULL);
            if (step % 500 == 0)
                check_entries(&map, things, KEY_COUNT);
        }
        for (size_t i = 0; i < KEY_COUNT; i++)
            assert_ptr_equal(map_find(&map, key_of(&things[i])),
                             things[i].born ? &things[i] : NULL);
        map_release(&map);
    }
}

static struct thing *fill(struct map *map, size_t count) {
    struct thing *things = calloc(count, sizeof(*things));
    assert_non_null(things);
    map_init(map, count);
    for (size_t i = 0; i < count; i++) {
        name_thing(&things[i], i);
        things[i].born = i + 1;
        assert_ok(map_insert(map, key_of(&things[i]), &things[i]));
    }
    return things;
}

static void a_million_go_in_and_out(void **state) {
    (void)state;
    struct map map;
    struct thing *things = fill(&map, MANY);
    struct thing absent;
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(map_find(&map, key_of(&things[i])), &things[i]);
    for (size_t i = MANY; i < MANY + 100000; i++) {
        name_thing(&absent, i);
        assert_null(map_find(&map, key_of(&absent)));
    }
    check_entries(&map, things, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_ptr_equal(map_remove(&map, key_of(&things[i])), &things[i]);
    assert_int_equal(map.count, 0);
    assert_null(map_find(&map, key_of(&things[0])));
    map_release(&map);
    free(things);
}

/* Memory follows the count, not the number of inserts ever made; nor what the count once was. */
static void a_long_life_costs_nothing(void **state) {
    (void)state;
    struct map map;
    struct thing *things = fill(&map, 10000);
    assert_true(map.capacity >= 10000);
    for (size_t i = 50; i < 10000; i++)
        map_remove(&map, key_of(&things[i]));
    for (size_t step = 0; step < 100000; step++) {
        assert_ptr_equal(map_remove(&map, key_of(&things[step % 10000])), &things[step % 10000]);
        struct thing *next = &things[(step + 50) % 10000];
        assert_ok(map_insert(&map, key_of(next), next));
        assert_int_equal(map.count, 50);
    }
    assert_true(map.capacity <= 128);
    map_release(&map);
    free(things);
}

static void insert_nothing(void *user) {
    if (map_insert(user, SLICE("new"), NULL) != STATUS_OK)
        return;
}

static void misuse_asserts(void **state) {
    (void)state;
    struct map map;
    map_init(&map, 10);
    assert_ok(map_insert(&map, SLICE("old"), &map));
    assert_true(aborts(insert_nothing, &map));
    map_release(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_answers),
        cmocka_unit_test(keys_are_byte_strings),
        cmocka_unit_test(a_refused_insert_changes_nothing),
        cmocka_unit_test(random_use_agrees_with_a_list),
        cmocka_unit_test(a_million_go_in_and_out),
        cmocka_unit_test(a_long_life_costs_nothing),
        cmocka_unit_test(misuse_asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
