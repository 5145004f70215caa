/* Readers listed by owner: who is visited for a frame, while readers come and go. */
#include "delivery/feed.h"

#include "test.h"

#define READERS 200

struct named {
    struct reader reader;
    struct principal principal;
    char user[16];
    char org[16];
    size_t visits;
    bool leaves; /* when it is visited */
};

static struct readers readers;
static struct named all[READERS];

static void visit(struct reader *reader, void *user) {
    struct named *named = container_of(reader, struct named, reader);
    (void)user;
    named->visits++;
    if (!named->leaves)
        return;
    readers_remove(&readers, reader);
    memset(reader, 0xee, sizeof(*reader));
}

/* A user, a guest or neither, in one of a few organisations or in none. */
static void add(size_t i) {
    struct named *named = &all[i];
    memset(named, 0, sizeof(*named));
    snprintf(named->user, sizeof(named->user), "p%zu", i % 20);
    snprintf(named->org, sizeof(named->org), "o%zu", i % 3);
    if (i % 3 == 0)
        named->principal.identity.user_id = slice_of(named->user);
    else if (i % 3 == 1)
        named->principal.identity.guest_scope = slice_of(named->user);
    if (i % 4 > 0)
        named->principal.identity.org_id = slice_of(named->org);
    named->principal.read_all = i % 50 == 0;
    assert_ok(readers_add(&readers, &named->reader, &named->principal,
                          i % 31 == 0 ? GRANT_VIEW_OWN_OR_UNOWNED : GRANT_VIEW_OWN));
}

static void fill(void) {
    memset(&readers, 0, sizeof(readers));
    for (size_t i = 0; i < READERS; i++)
        add(i);
}

static void empty(void) {
    for (size_t i = 0; i < READERS; i++)
        if (!all[i].leaves || all[i].visits == 0)
            readers_remove(&readers, &all[i].reader);
    assert_true(readers_is_empty(&readers));
    readers_release(&readers);
}

static void visit_for(const struct owner *owner) {
    readers_visit_all(&readers, visit, NULL);
    readers_visit_owner(&readers, owner, visit, NULL);
}

static const struct owner owners[] = {
    {.user_id = SLICE("p6")},     {.guest_scope = SLICE("p7")},
    {.user_id = SLICE("p7")},     {.user_id = SLICE("p3"), .org_id = SLICE("o1")},
    {.org_id = SLICE("o0")},      {.org_id = SLICE("o2")},
    {.user_id = SLICE("nobody")}, {.user_id = {NULL, 0}},
};

static void a_frame_visits_exactly_the_readers_that_may_read_it(void **state) {
    (void)state;
    fill();
    for (size_t o = 0; o < sizeof(owners) / sizeof(owners[0]); o++) {
        for (size_t i = 0; i < READERS; i++)
            all[i].visits = 0;
        visit_for(&owners[o]);
        for (size_t i = 0; i < READERS; i++) {
            bool is_in_all = !reader_is_listed(&all[i].reader);
            bool may_read = grant_may_read(&all[i].principal, GRANT_VIEW_OWN, &owners[o]);
            assert_int_equal(all[i].visits, is_in_all || may_read ? 1 : 0);
        }
    }
    empty();
}

static void readers_that_leave_when_visited_hide_no_other(void **state) {
    (void)state;
    for (size_t o = 0; o < sizeof(owners) / sizeof(owners[0]); o++) {
        fill();
        for (size_t i = 0; i < READERS; i++)
            all[i].leaves = i % 2 == 0;
        for (size_t i = 0; i < READERS; i++)
            all[i].visits = 0;
        visit_for(&owners[o]);
        for (size_t i = 0; i < READERS; i++)
            if (grant_may_read(&all[i].principal, GRANT_VIEW_OWN, &owners[o]))
                assert_int_equal(all[i].visits, 1);
        empty();
    }
}

static void every_listed_reader_is_visited_once_also_when_it_leaves(void **state) {
    (void)state;
    fill();
    for (size_t i = 0; i < READERS; i++)
        all[i].leaves = reader_is_listed(&all[i].reader);
    readers_visit_listed(&readers, visit, NULL);
    assert_int_equal(readers.entry_count, 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(all[i].visits, all[i].leaves ? 1 : 0);
    empty();
}

static void add_others(struct reader *reader, void *user) {
    size_t *added = user;
    (void)reader;
    if (*added < READERS)
        add((*added)++);
}

static void readers_may_be_added_during_a_visit(void **state) {
    (void)state;
    size_t added = 0;
    memset(&readers, 0, sizeof(readers));
    while (added < 8)
        add(added++);
    for (int i = 0; i < 100; i++)
        readers_visit_listed(&readers, add_others, &added);
    assert_int_equal(added, READERS);
    for (size_t i = 0; i < READERS; i++)
        all[i].visits = 0;
    visit_for(&owners[0]);
    for (size_t i = 0; i < READERS; i++)
        if (grant_may_read(&all[i].principal, GRANT_VIEW_OWN, &owners[0]))
            assert_int_equal(all[i].visits, 1);
    empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_visits_exactly_the_readers_that_may_read_it),
        cmocka_unit_test(readers_that_leave_when_visited_hide_no_other),
        cmocka_unit_test(every_listed_reader_is_visited_once_also_when_it_leaves),
        cmocka_unit_test(readers_may_be_added_during_a_visit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
