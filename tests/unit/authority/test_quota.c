/* Quotas: owners by name, limits that change, and the check at the border of each. */
#include "authority/quota.h"

#include "test.h"

#define SECOND_NS UINT64_C(1000000000)
#define NOW_NS    (100 * SECOND_NS)

struct world {
    struct quota_table *table;
    struct usages usages;
    struct usage *usage;
    struct append_refusal refusal;
};

static void begin(struct world *world, const struct quota_limits *limits) {
    *world = (struct world){.table = NULL};
    assert_int_equal(quota_table_open(&world->table, limits), STATUS_OK);
    assert_int_equal(usages_init(&world->usages, world->table), STATUS_OK);
    usages_begin(&world->usages);
    world->usage = usages_expect(&world->usages, SLICE("user:a"));
    assert_non_null(world->usage);
    world->usage->is_loaded = true;
}

static void end(struct world *world) {
    usages_committed(&world->usages);
    usages_release(&world->usages);
    quota_table_close(world->table);
}

static struct quota_limits limits_but(enum quota quota, uint64_t limit) {
    struct quota_limits limits;
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        limits.of[i] = UINT64_C(1) << 50;
    limits.of[quota] = limit;
    return limits;
}

static bool takes(struct world *world, const struct quota_use *use, uint64_t now_ns) {
    world->refusal = (struct append_refusal){0};
    enum status status = usage_check(&world->usages, world->usage, use, now_ns, &world->refusal);
    if (status == STATUS_OK)
        usage_take(&world->usages, world->usage, use, now_ns);
    else
        assert_int_equal(status, STATUS_QUOTA_EXCEEDED);
    return status == STATUS_OK;
}

static const struct quota_use small = {.events = 1, .bytes = 10, .written_bytes = 10};

static void owners_have_names(void **state) {
    (void)state;
    char text[QUOTA_OWNER_BYTES_MAX];
    const struct owner both = {.user_id = SLICE("u"), .org_id = SLICE("o")};
    const struct owner guest = {.guest_scope = SLICE("g"), .org_id = SLICE("o")};
    const struct owner org = {.org_id = SLICE("o")};
    assert_true(slice_equal(quota_owner(&both, text), SLICE("user:u")));
    assert_true(slice_equal(quota_owner(&guest, text), SLICE("guest:g")));
    assert_true(slice_equal(quota_owner(&org, text), SLICE("org:o")));
    assert_int_equal(quota_owner(&(struct owner){.user_id = {NULL, 0}}, text).size, 0);
    assert_true(quota_owner_is_valid(SLICE("org:o")));
    assert_false(quota_owner_is_valid(SLICE("org:")));
    assert_false(quota_owner_is_valid(SLICE("orgs:o")));
    assert_false(quota_owner_is_valid(SLICE("")));
    enum quota quota;
    assert_true(quota_parse(SLICE("batch_bytes"), &quota));
    assert_int_equal(quota, QUOTA_BATCH_BYTES);
    assert_false(quota_parse(SLICE("batch"), &quota));
}

static void stored_bytes_have_an_exact_border(void **state) {
    (void)state;
    struct world world;
    struct quota_use ending = small;
    struct quota_limits limits = limits_but(QUOTA_BYTES_STORED, 25);
    begin(&world, &limits);
    assert_true(takes(&world, &small, NOW_NS));
    assert_true(takes(&world, &small, NOW_NS));
    assert_false(takes(&world, &small, NOW_NS));
    assert_string_equal(world.refusal.quota, "bytes_stored");
    assert_int_equal(world.refusal.used, 20);
    assert_int_equal(world.refusal.limit, 25);
    assert_int_equal(world.refusal.retry_after_ms, 0);
    assert_true(takes(&world, &(struct quota_use){.events = 1, .bytes = 5}, NOW_NS));
    ending.is_ending = true;
    assert_true(takes(&world, &ending, NOW_NS));
    assert_int_equal(world.usage->stored.bytes, 35);
    /* What becomes smaller always passes. */
    assert_true(takes(&world, &(struct quota_use){.events = 1, .bytes = -30}, NOW_NS));
    assert_true(takes(&world, &small, NOW_NS));
    end(&world);
}

static void a_rate_refills_and_says_how_long_to_wait(void **state) {
    (void)state;
    struct world world;
    struct quota_limits limits = limits_but(QUOTA_EVENTS_PER_SECOND, 4);
    begin(&world, &limits);
    for (int i = 0; i < 4; i++)
        assert_true(takes(&world, &small, NOW_NS));
    assert_false(takes(&world, &small, NOW_NS));
    assert_string_equal(world.refusal.quota, "events_per_second");
    assert_int_equal(world.refusal.used, 4);
    assert_int_equal(world.refusal.retry_after_ms, 250);
    assert_false(takes(&world, &small, NOW_NS + SECOND_NS / 4 - 1));
    assert_true(takes(&world, &small, NOW_NS + SECOND_NS / 4));
    end(&world);
}

static void an_event_above_the_rate_passes_alone(void **state) {
    (void)state;
    struct world world;
    struct quota_limits limits = limits_but(QUOTA_BYTES_PER_SECOND, 100);
    const struct quota_use large = {.events = 1, .written_bytes = 350};
    begin(&world, &limits);
    assert_true(takes(&world, &small, NOW_NS));
    assert_false(takes(&world, &large, NOW_NS));
    assert_int_equal(world.refusal.retry_after_ms, 100);
    assert_true(takes(&world, &large, NOW_NS + SECOND_NS));
    assert_false(takes(&world, &small, NOW_NS + 2 * SECOND_NS));
    assert_false(takes(&world, &small, NOW_NS + 4 * SECOND_NS - SECOND_NS / 2));
    assert_true(takes(&world, &small, NOW_NS + 4 * SECOND_NS));
    end(&world);
}

static void what_is_never_refused_leaves_no_debt(void **state) {
    (void)state;
    struct world world;
    struct quota_limits limits = limits_but(QUOTA_EVENTS_PER_SECOND, 2);
    const struct quota_use outbox = {.events = 1, .bytes = 10, .is_unrefused = true};
    const struct quota_use import = {
        .events = 1, .bytes = 10, .is_unrefused = true, .is_unpaced = true};
    begin(&world, &limits);
    for (int i = 0; i < 100; i++)
        assert_true(takes(&world, &import, NOW_NS));
    assert_true(takes(&world, &small, NOW_NS));
    for (int i = 0; i < 100; i++)
        assert_true(takes(&world, &outbox, NOW_NS));
    assert_false(takes(&world, &small, NOW_NS));
    assert_int_equal(world.refusal.retry_after_ms, 500);
    assert_int_equal(world.usage->stored.bytes, 2010);
    end(&world);
}

static void a_failed_batch_gives_its_use_back(void **state) {
    (void)state;
    struct world world;
    struct quota_limits limits = limits_but(QUOTA_EVENTS_PER_SECOND, 2);
    struct store_batch rows = {0};
    begin(&world, &limits);
    assert_true(takes(&world, &small, NOW_NS));
    usages_fill(&world.usages, &rows);
    assert_int_equal(rows.usage_count, 1);
    assert_int_equal(rows.usages[0].bytes, 10);
    usages_committed(&world.usages);
    usages_begin(&world.usages);
    assert_true(takes(&world, &small, NOW_NS));
    assert_false(takes(&world, &small, NOW_NS));
    usages_forget(&world.usages);
    assert_null(usages_find(&world.usages, SLICE("user:a")));
    usages_begin(&world.usages);
    assert_ptr_equal(usages_expect(&world.usages, SLICE("user:a")), world.usage);
    assert_int_equal(world.usages.expected_count, 1);
    world.usage->is_loaded = true;
    assert_true(takes(&world, &small, NOW_NS));
    assert_false(takes(&world, &small, NOW_NS));
    end(&world);
}

static void owners_used_longest_ago_leave(void **state) {
    (void)state;
    struct world world;
    struct quota_limits limits = limits_but(QUOTA_OPEN_RUNS, 1);
    begin(&world, &limits);
    for (unsigned i = 0; i < 40000; i++) {
        char owner[32];
        snprintf(owner, sizeof(owner), "user:%u", i);
        if (i % 4096 == 0)
            usages_begin(&world.usages);
        struct usage *usage = usages_expect(&world.usages, slice_of(owner));
        assert_non_null(usage);
        usage->is_loaded = true;
    }
    assert_in_range(world.usages.by_owner.count, 1, 16384 + 8192);
    assert_null(usages_find(&world.usages, SLICE("user:0")));
    assert_non_null(usages_find(&world.usages, SLICE("user:39999")));
    end(&world);
}

static void metadata_is_counted_as_it_is_written(void **state) {
    (void)state;
    char text[STORE_METADATA_CUT_BYTES];
    const struct store_entity large = {.kind = ENTITY_WORKER, .metadata = {text, sizeof(text)}};
    const struct store_entity little = {.kind = ENTITY_WORKER, .metadata = {text, 255}};
    const struct store_entity run = {.kind = ENTITY_RUN, .metadata = {text, 255}};
    assert_int_equal(usage_metadata_copied(&large, true, true), 256);
    assert_int_equal(usage_metadata_copied(&large, true, false), 256);
    assert_int_equal(usage_metadata_copied(&large, false, true), 0);
    assert_int_equal(usage_metadata_copied(&little, false, true), 3 * 255);
    assert_int_equal(usage_metadata_copied(&little, true, false), 0);
    assert_int_equal(usage_metadata_copied(&run, false, true), 2 * 255);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_have_names),
        cmocka_unit_test(stored_bytes_have_an_exact_border),
        cmocka_unit_test(a_rate_refills_and_says_how_long_to_wait),
        cmocka_unit_test(an_event_above_the_rate_passes_alone),
        cmocka_unit_test(what_is_never_refused_leaves_no_debt),
        cmocka_unit_test(a_failed_batch_gives_its_use_back),
        cmocka_unit_test(owners_used_longest_ago_leave),
        cmocka_unit_test(metadata_is_counted_as_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
