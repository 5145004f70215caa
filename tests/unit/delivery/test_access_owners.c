/* Owners of entities, on a real store. The session counts how often the store was read. */
#include "delivery/access.h"

#include "delivery/publisher.h"

#define ENTITIES 200

/* Entities from 1001 on, each of a different user, with metadata of that size. */
static void add_entities(struct publisher *publisher, size_t metadata_bytes) {
    static char ids[ENTITIES][16];
    struct store_entity entities[ENTITIES] = {0};
    struct buffer metadata;
    buffer_init(&metadata, 1 << 20);
    assert_ok(buffer_append_slice(&metadata, SLICE("{\"x\":\"")));
    while (metadata.size < metadata_bytes)
        assert_ok(buffer_append_byte(&metadata, 'x'));
    assert_ok(buffer_append_slice(&metadata, SLICE("\"}")));
    for (size_t i = 0; i < ENTITIES; i++) {
        snprintf(ids[i], sizeof(ids[i]), "u%zu", i);
        entities[i] = (struct store_entity){.ref = 1001 + i,
                                            .kind = ENTITY_RUN,
                                            .id = slice_of(ids[i]),
                                            .owner.user_id = slice_of(ids[i]),
                                            .status = SLICE("running"),
                                            .metadata = buffer_slice(&metadata)};
    }
    const struct store_batch batch = {.entities = entities, .entity_count = ENTITIES};
    assert_ok(store_commit(publisher->session, &batch));
    buffer_release(&metadata);
}

static void assert_owner(struct owners *owners, size_t index) {
    const struct owner *owner;
    char id[16];
    snprintf(id, sizeof(id), "u%zu", index);
    assert_ok(owners_find(owners, 1001 + index, &owner));
    assert_slice(owner->user_id, id);
    assert_null(owner->guest_scope.data);
}

static void alternating_entities_are_looked_up_once_each(void **state) {
    struct publisher *publisher = *state;
    struct owners owners;
    add_entities(publisher, 100);
    owners_init(&owners, publisher->session);
    uint64_t before = store_session_rows_read(publisher->session);
    for (size_t turn = 0; turn < 10; turn++)
        for (size_t i = 0; i < OWNERS_MAX; i++)
            assert_owner(&owners, i);
    assert_int_equal(store_session_rows_read(publisher->session) - before, OWNERS_MAX);
    owners_release(&owners);
}

static void more_entities_than_slots_keep_their_owners(void **state) {
    struct publisher *publisher = *state;
    struct owners owners;
    add_entities(publisher, 100);
    owners_init(&owners, publisher->session);
    for (size_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < ENTITIES; i++)
            assert_owner(&owners, i * 7 % ENTITIES);
    owners_release(&owners);
}

static void large_owners_are_evicted_before_they_take_much_memory(void **state) {
    struct publisher *publisher = *state;
    struct owners owners;
    add_entities(publisher, 100000);
    owners_init(&owners, publisher->session);
    for (size_t turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < ENTITIES; i++) {
            assert_owner(&owners, i);
            assert_true(owners.arena.bytes_held < 1 << 20);
        }
    owners_release(&owners);
}

static void a_missing_entity_is_not_cached(void **state) {
    struct publisher *publisher = *state;
    const struct owner *owner;
    struct owners owners;
    owners_init(&owners, publisher->session);
    for (int i = 0; i < 2; i++)
        assert_int_equal(owners_find(&owners, 1001, &owner), STATUS_NOT_FOUND);
    add_entities(publisher, 100);
    assert_owner(&owners, 0);
    owners_release(&owners);
}

static int setup(void **state) {
    *state = publisher_open(NULL);
    return 0;
}

static int teardown(void **state) {
    publisher_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(alternating_entities_are_looked_up_once_each, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(more_entities_than_slots_keep_their_owners, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(large_owners_are_evicted_before_they_take_much_memory,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_entity_is_not_cached, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
