/* Which stored events a principal gets, by the event's owner or its entity's. */
#include "delivery/access.h"

#include "delivery/publisher.h"

struct count {
    struct viewer viewer;
    uint64_t seen;
    uint64_t all;
};

static enum status count_event(void *user, const struct store_event *event) {
    struct count *count = user;
    bool may_read;
    enum status status = viewer_check(&count->viewer, event->entity_ref, event, &may_read);
    count->all++;
    count->seen += may_read ? 1 : 0;
    return status;
}

static enum status count_row(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    struct count *count = user;
    bool may_read;
    enum status status = viewer_check(&count->viewer, row->entity_ref, event, &may_read);
    count->all++;
    count->seen += may_read ? 1 : 0;
    return status;
}

static void each_principal_sees_the_events_and_rows_of_its_entities(void **state) {
    (void)state;
    static const struct principal user = {.identity.user_id = SLICE("u")};
    static const struct principal guest = {.identity.guest_scope = SLICE("g")};
    static const struct principal stranger = {.identity.user_id = SLICE("g")};
    static const struct {
        const struct principal *principal;
        enum grant_view view;
        uint64_t seen;
    } rows[] = {
        {&user, GRANT_VIEW_OWN, 21},
        {&guest, GRANT_VIEW_OWN, 20},
        {&stranger, GRANT_VIEW_OWN, 0},
        {&stranger, GRANT_VIEW_OWN_OR_UNOWNED, 0},
        {&stranger, GRANT_VIEW_NONE, 0},
        {&stranger, GRANT_VIEW_ALL, 41},
        {&principal_operator, GRANT_VIEW_OWN, 41},
    };
    struct publisher *publisher = publisher_open(NULL);
    publisher_commit(publisher, 41);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct count events = {.seen = 0};
        struct count journal = {.seen = 0};
        viewer_init(&events.viewer, publisher->session, rows[i].principal, rows[i].view);
        viewer_init(&journal.viewer, publisher->session, rows[i].principal, rows[i].view);
        assert_ok(store_walk_log(publisher->session, 0, 100, &events, count_event));
        assert_ok(store_walk_journal(publisher->session, publisher->summaries_ref, 0, 100, &journal,
                                     count_row));
        assert_int_equal(events.all, 41);
        assert_int_equal(events.seen, rows[i].seen);
        assert_int_equal(journal.seen, rows[i].seen);
        viewer_release(&events.viewer);
        viewer_release(&journal.viewer);
    }
    publisher_close(publisher);
}

static void an_events_own_owner_comes_before_its_entitys(void **state) {
    (void)state;
    static const struct principal user = {.identity.user_id = SLICE("u")};
    static const struct principal guest = {.identity.guest_scope = SLICE("g")};
    static const struct store_event of_guest = {.owner.guest_scope = SLICE("g")};
    struct publisher *publisher = publisher_open(NULL);
    struct viewer viewer;
    bool may_read;
    publisher_commit(publisher, 1); /* run 101 is u's */
    viewer_init(&viewer, publisher->session, &user, GRANT_VIEW_OWN);
    assert_ok(viewer_check(&viewer, 101, &of_guest, &may_read));
    assert_false(may_read);
    viewer_release(&viewer);
    viewer_init(&viewer, publisher->session, &guest, GRANT_VIEW_OWN);
    assert_ok(viewer_check(&viewer, 101, &of_guest, &may_read));
    assert_true(may_read);
    viewer_release(&viewer);
    publisher_close(publisher);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_principal_sees_the_events_and_rows_of_its_entities),
        cmocka_unit_test(an_events_own_owner_comes_before_its_entitys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
