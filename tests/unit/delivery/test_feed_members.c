/* Members listed by owner: which of them are visited for a frame, while members come and go. */
#include "delivery/feed.h"

#include "test.h"

#define READERS 200

struct named {
    struct feed_member member;
    struct principal principal;
    char user[16];
    char org[16];
    size_t visits;
    bool leaves; /* when it is visited */
};

static struct feed_members members;
static struct named all[READERS];

static void visit(struct feed_member *member, void *user) {
    struct named *named = container_of(member, struct named, member);
    (void)user;
    named->visits++;
    if (!named->leaves)
        return;
    feed_members_remove(&members, member);
    memset(member, 0xee, sizeof(*member));
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
    assert_ok(feed_members_add(&members, &named->member, &named->principal,
                               i % 31 == 0 ? GRANT_VIEW_OWN_OR_UNOWNED : GRANT_VIEW_OWN));
}

static void fill(void) {
    memset(&members, 0, sizeof(members));
    for (size_t i = 0; i < READERS; i++)
        add(i);
}

static void empty(void) {
    for (size_t i = 0; i < READERS; i++)
        if (!all[i].leaves || all[i].visits == 0)
            feed_members_remove(&members, &all[i].member);
    assert_true(feed_members_is_empty(&members));
    feed_members_release(&members);
}

static void visit_for(const struct owner *owner) {
    feed_members_visit_all(&members, visit, NULL);
    feed_members_visit_owner(&members, owner, visit, NULL);
}

static const struct owner owners[] = {
    {.user_id = SLICE("p6")},     {.guest_scope = SLICE("p7")},
    {.user_id = SLICE("p7")},     {.user_id = SLICE("p3"), .org_id = SLICE("o1")},
    {.org_id = SLICE("o0")},      {.org_id = SLICE("o2")},
    {.user_id = SLICE("nobody")}, {.user_id = {NULL, 0}},
};

static void a_frame_visits_exactly_the_members_that_may_read_it(void **state) {
    (void)state;
    fill();
    for (size_t o = 0; o < sizeof(owners) / sizeof(owners[0]); o++) {
        for (size_t i = 0; i < READERS; i++)
            all[i].visits = 0;
        visit_for(&owners[o]);
        for (size_t i = 0; i < READERS; i++) {
            bool is_in_all = !all[i].member.listing;
            bool may_read = grant_may_read(&all[i].principal, GRANT_VIEW_OWN, &owners[o]);
            assert_int_equal(all[i].visits, is_in_all || may_read ? 1 : 0);
        }
    }
    empty();
}

static void members_that_leave_when_visited_hide_no_other(void **state) {
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

static void every_listed_member_is_visited_once_also_when_it_leaves(void **state) {
    (void)state;
    fill();
    for (size_t i = 0; i < READERS; i++)
        all[i].leaves = all[i].member.listing != NULL;
    feed_members_visit_listed(&members, visit, NULL);
    assert_int_equal(members.entry_count, 0);
    for (size_t i = 0; i < READERS; i++)
        assert_int_equal(all[i].visits, all[i].leaves ? 1 : 0);
    empty();
}

static void add_others(struct feed_member *member, void *user) {
    size_t *added = user;
    (void)member;
    if (*added < READERS)
        add((*added)++);
}

static void members_may_be_added_during_a_visit(void **state) {
    (void)state;
    size_t added = 0;
    memset(&members, 0, sizeof(members));
    while (added < 8)
        add(added++);
    for (int i = 0; i < 100; i++)
        feed_members_visit_listed(&members, add_others, &added);
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
        cmocka_unit_test(a_frame_visits_exactly_the_members_that_may_read_it),
        cmocka_unit_test(members_that_leave_when_visited_hide_no_other),
        cmocka_unit_test(every_listed_member_is_visited_once_also_when_it_leaves),
        cmocka_unit_test(members_may_be_added_during_a_visit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
