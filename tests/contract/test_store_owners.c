/* The owners of journal rows, read without the rows' payloads. */
#include "rows_check.h"

#define OWNED_ROWS 2500 /* several pages */

static const struct owner row_owners[] = {
    {.user_id = {"ann", 3}, .org_id = {"org", 3}}, {.guest_scope = {"g", 1}}, {.user_id = {0}}};
#define ROW_OWNERS (sizeof(row_owners) / sizeof(*row_owners))

struct owners_seen {
    uint64_t last_seq;
    size_t count;
    size_t stop_after; /* 0: never */
};

static enum status see_owner(void *user, uint64_t seq, const struct owner *owner) {
    struct owners_seen *seen = user;
    assert_int_equal(seq, seen->last_seq + 1);
    assert_owner(owner, &row_owners[seq % ROW_OWNERS]);
    seen->last_seq = seq;
    return ++seen->count == seen->stop_after ? STATUS_SLOW_CONSUMER : STATUS_OK;
}

static void the_owners_of_the_journal_are_walked_by_topic(void **state) {
    struct fixture *fixture = *state;
    static struct store_journal_row rows[OWNED_ROWS];
    struct rows_text ids[ROW_OWNERS];
    struct store_entity runs[ROW_OWNERS];
    check_fill(fixture);
    for (size_t i = 0; i < ROW_OWNERS; i++) {
        runs[i] = rows_run(10 + i, &ids[i]);
        runs[i].owner = row_owners[i];
    }
    for (uint64_t i = 0; i < OWNED_ROWS; i++) {
        rows[i] = rows_journal(1, i + 1, 1);
        rows[i].entity_ref = 10 + (i + 1) % ROW_OWNERS;
    }
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = runs,
                                                                  .entity_count = ROW_OWNERS,
                                                                  .journal = rows,
                                                                  .journal_count = OWNED_ROWS}));
    struct owners_seen seen = {0};
    assert_ok(store_walk_owners(fixture->reader, 1, 0, UINT64_MAX, &seen, see_owner));
    assert_int_equal(seen.count, OWNED_ROWS);
    seen = (struct owners_seen){.last_seq = 4};
    assert_ok(store_walk_owners(fixture->reader, 1, 4, 1500, &seen, see_owner));
    assert_int_equal(seen.count, 1500);
    seen = (struct owners_seen){.last_seq = 4, .stop_after = 3};
    assert_int_equal(store_walk_owners(fixture->reader, 1, 4, 1500, &seen, see_owner),
                     STATUS_SLOW_CONSUMER);
    assert_int_equal(seen.count, 3);
    seen = (struct owners_seen){0};
    assert_ok(store_walk_owners(fixture->reader, 1, OWNED_ROWS, 3, &seen, see_owner));
    assert_ok(store_walk_owners(fixture->reader, 2, 0, 3, &seen, see_owner));
    assert_ok(store_walk_owners(fixture->reader, 1, 0, 0, &seen, see_owner));
    assert_int_equal(seen.count, 0);
}

static void a_journal_row_without_its_entity_ends_a_walk_of_owners(void **state) {
    struct fixture *fixture = *state;
    struct rows_text id;
    struct store_entity run = rows_run(10, &id);
    struct store_journal_row rows[2] = {rows_journal(1, 1, 1), rows_journal(1, 2, 1)};
    check_fill(fixture);
    run.owner = row_owners[1];
    rows[0].entity_ref = 10;
    rows[1].entity_ref = 99;
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.entities = &run,
                                                                  .entity_count = 1,
                                                                  .journal = rows,
                                                                  .journal_count = 2}));
    struct owners_seen seen = {0};
    assert_int_equal(store_walk_owners(fixture->reader, 1, 0, 10, &seen, see_owner),
                     STATUS_INTERNAL_ERROR);
    assert_int_equal(seen.count, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owners_of_the_journal_are_walked_by_topic),
        cmocka_unit_test(a_journal_row_without_its_entity_ends_a_walk_of_owners),
    };
    return CONTRACT_RUN("store: owners of journal rows", tests);
}
