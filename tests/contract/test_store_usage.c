/* What owners have stored, and their quotas: written by commits, found again, and compared with a
 * count. */
#include "backend.h"
#include "rows.h"

#define PAYLOAD_BYTES 17 /* of rows_event, by bytes and not by characters */

static struct store_usage usage_of(struct fixture *fixture, const char *owner) {
    struct store_usage usages[] = {{.owner = SLICE("user:none")}, {.owner = slice_of(owner)}};
    usages[0].bytes = 7;
    assert_ok(store_load_usages(fixture->reader, usages, 2));
    assert_int_equal(usages[0].bytes + usages[0].events + usages[0].open_runs, 0);
    return usages[1];
}

static void assert_usage(const struct store_usage *usage, const struct store_usage *wanted) {
    assert_int_equal(usage->events, wanted->events);
    assert_int_equal(usage->bytes, wanted->bytes);
    assert_int_equal(usage->metadata_bytes, wanted->metadata_bytes);
    assert_int_equal(usage->open_runs, wanted->open_runs);
    assert_int_equal(usage->open_workers, wanted->open_workers);
    assert_int_equal(usage->unowned_bytes, wanted->unowned_bytes);
}

static void a_commit_replaces_the_usage_of_its_owners(void **state) {
    struct fixture *fixture = *state;
    struct store_usage rows[] = {{SLICE("user:a"), 1, 2, 3, 4, 5, 6},
                                 {SLICE("org:ä"), 7, 8, 9, 10, 11, 12}};
    struct store_event event = rows_event(1, 1, 1);
    struct store_batch batch = {
        .events = &event, .event_count = 1, .usages = rows, .usage_count = 2};
    assert_ok(store_commit(fixture->writer, &batch));
    rows[0].events = 11;
    rows[0].unowned_bytes = 13;
    rows[0].bytes = STORE_SEQ_MAX;
    event = rows_event(2, 1, 2);
    batch.usage_count = 1;
    assert_ok(store_commit(fixture->writer, &batch));
    fixture_reopen(fixture);
    struct store_usage a = usage_of(fixture, "user:a");
    struct store_usage b = usage_of(fixture, "org:ä");
    assert_usage(&a, &rows[0]);
    assert_usage(&b, &rows[1]);
}

static void a_failed_commit_changes_no_usage(void **state) {
    struct fixture *fixture = *state;
    struct store_usage row = {SLICE("user:a"), 1, 2, 3, 4, 5, 6};
    struct store_event event = rows_event(1, 1, 1);
    struct store_batch batch = {
        .events = &event, .event_count = 1, .usages = &row, .usage_count = 1};
    assert_ok(store_commit(fixture->writer, &batch));
    row.bytes = 99;
    assert_int_not_equal(store_commit(fixture->writer, &batch), STATUS_OK);
    assert_int_equal(usage_of(fixture, "user:a").bytes, 2);
}

struct seen {
    size_t count;
    char text[256];
};

static enum status see_usage(void *user, const struct store_usage *usage) {
    struct seen *seen = user;
    seen->count++;
    snprintf(seen->text + strlen(seen->text), sizeof(seen->text) - strlen(seen->text), "%.*s %llu;",
             (int)usage->owner.size, usage->owner.data,
             (unsigned long long)(usage->bytes + usage->unowned_bytes));
    return STATUS_OK;
}

static void usages_are_listed_by_owner(void **state) {
    struct fixture *fixture = *state;
    const struct store_usage rows[] = {{.owner = SLICE("user:b"), .bytes = 1},
                                       {.owner = SLICE("guest:x"), .unowned_bytes = 2},
                                       {.owner = SLICE("user:B"), .bytes = 3}};
    struct store_event event = rows_event(1, 1, 1);
    struct seen all = {0}, some = {0};
    assert_ok(store_commit(fixture->writer, &(struct store_batch){.events = &event,
                                                                  .event_count = 1,
                                                                  .usages = rows,
                                                                  .usage_count = 3}));
    assert_ok(store_walk_usages(fixture->reader, SLICE(""), 10, &all, see_usage));
    assert_string_equal(all.text, "guest:x 2;user:B 3;user:b 1;");
    assert_ok(store_walk_usages(fixture->reader, SLICE("guest:x"), 1, &some, see_usage));
    assert_string_equal(some.text, "user:B 3;");
}

struct differences {
    size_t count;
    char owner[64];
    struct store_usage stored;
    struct store_usage counted;
};

static enum status see_difference(void *user, const struct store_usage *stored,
                                  const struct store_usage *counted) {
    struct differences *seen = user;
    seen->count++;
    snprintf(seen->owner, sizeof(seen->owner), "%.*s", (int)stored->owner.size, stored->owner.data);
    seen->stored = *stored;
    seen->counted = *counted;
    return STATUS_OK;
}

static struct differences check(struct fixture *fixture) {
    struct differences seen = {0};
    assert_ok(store_check_usages(fixture->reader, 10, &seen, see_difference));
    return seen;
}

static void a_count_finds_a_row_that_differs(void **state) {
    struct fixture *fixture = *state;
    struct rows_text id;
    struct store_entity run = rows_run(2, &id);
    struct store_event events[] = {rows_event(1, 2, 1), rows_event(2, 1, 1)};
    const uint64_t event_bytes = STORE_USAGE_ROW_BYTES + strlen("run.note") + PAYLOAD_BYTES;
    struct store_usage row = {.owner = SLICE("user:user"),
                              .events = 1,
                              .metadata_bytes = 7,
                              .open_runs = 1,
                              .unowned_bytes = 99};
    events[1].owner = (struct owner){.guest_scope = SLICE("g"), .org_id = SLICE("o")};
    row.bytes = event_bytes + STORE_USAGE_ROW_BYTES + run.id.size + run.worker_id.size +
                run.thread_id.size + run.workspace_ref.size + run.codex_home_ref.size +
                run.adapter.size + run.metadata.size;
    run.owner = (struct owner){.user_id = SLICE("user")};
    struct store_batch batch = {.entities = &run,
                                .entity_count = 1,
                                .events = events,
                                .event_count = 2,
                                .usages = &row,
                                .usage_count = 1};
    assert_ok(store_commit(fixture->writer, &batch));
    struct differences seen = check(fixture);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.owner, "guest:g");
    assert_usage(&seen.stored, &(struct store_usage){0});
    assert_usage(&seen.counted, &(struct store_usage){.events = 1, .bytes = event_bytes});
    struct store_usage both[] = {{.owner = SLICE("guest:g"), .events = 1, .bytes = event_bytes},
                                 row};
    events[0] = rows_event(3, 1, 2);
    batch =
        (struct store_batch){.events = events, .event_count = 1, .usages = both, .usage_count = 2};
    assert_ok(store_commit(fixture->writer, &batch));
    assert_int_equal(check(fixture).count, 0);
}

static enum status see_quota(void *user, const struct store_quota *quota) {
    struct seen *seen = user;
    seen->count++;
    snprintf(seen->text + strlen(seen->text), sizeof(seen->text) - strlen(seen->text),
             "%.*s %.*s %lld;", (int)quota->owner.size, quota->owner.data, (int)quota->name.size,
             quota->name.data, quota->is_set ? (long long)quota->value : -1);
    assert_true(quota->serial > 0);
    return STATUS_OK;
}

static void quotas_are_read_by_their_changes(void **state) {
    struct fixture *fixture = *state;
    const struct store_quota first[] = {{SLICE("user:a"), SLICE("open_runs"), true, 0, 0},
                                        {SLICE("user:b"), SLICE("open_runs"), true, 5, 0},
                                        {SLICE("user:a"), SLICE("subscriptions"), true, 7, 0}};
    const struct store_quota second[] = {{SLICE("user:a"), SLICE("open_runs"), false, 0, 0},
                                         {SLICE("user:c"), SLICE("other"), true, STORE_SEQ_MAX, 0}};
    struct seen before = {0}, after = {0}, late = {0};
    assert_ok(store_put_quotas(fixture->writer, first, 3));
    assert_ok(store_walk_quotas(fixture->reader, 0, &before, see_quota));
    assert_string_equal(before.text,
                        "user:a open_runs 0;user:b open_runs 5;user:a subscriptions 7;");
    assert_ok(store_put_quotas(fixture->writer, second, 2));
    fixture_reopen(fixture);
    assert_ok(store_walk_quotas(fixture->reader, 3, &after, see_quota));
    assert_string_equal(after.text, "user:a open_runs -1;user:c other 4503599627370496;");
    assert_ok(store_walk_quotas(fixture->reader, 5, &late, see_quota));
    assert_int_equal(late.count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_replaces_the_usage_of_its_owners),
        cmocka_unit_test(a_failed_commit_changes_no_usage),
        cmocka_unit_test(usages_are_listed_by_owner),
        cmocka_unit_test(a_count_finds_a_row_that_differs),
        cmocka_unit_test(quotas_are_read_by_their_changes),
    };
    return CONTRACT_RUN("usage", tests);
}
