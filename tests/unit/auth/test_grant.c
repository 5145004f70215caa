#include "auth/grant.h"

#include "test.h"
#include "topic/topic_name.h"

static const struct owner owner_u = {.user_id = {"u", 1}};
static const struct owner owner_v = {.user_id = {"v", 1}};
static const struct owner owner_org = {.org_id = {"o", 1}};
static const struct owner owner_nobody = {.user_id = {NULL, 0}};

#define ALL_SCOPES ((1u << SCOPE_COUNT) - 1)

/* ---- the matrix: topic kind x principal x scopes x grants ---- */

static const struct topic_case {
    const char *topic;
    unsigned scopes;   /* one of them is enough */
    const char *other; /* a pattern that matches it */
    enum { ENTITY, FLEET, SHARED, APPLICATION, RESERVED } kind;
} topics[] = {
    {"run:r:events", SCOPE_RUN_EVENTS, "run:*:events", ENTITY},
    {"run:r:x:events", SCOPE_RUN_EVENTS, "run:r:*", ENTITY},
    {"worker:w:lifecycle", SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS, "worker:*",
     ENTITY},
    {"fleet:user:u:workers", SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS,
     "fleet:user:*:workers", FLEET},
    {"runtime.run_summaries", SCOPE_RUN_EVENTS, "runtime.*", SHARED},
    {"runtime.codex_worker_summaries", SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS,
     "runtime.*", SHARED},
    {"runtime.codex_worker_events", SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS,
     "runtime.*", SHARED},
    {"runtime.notifications", SCOPE_NOTIFICATIONS, "runtime.*", SHARED},
    {"runtime.audit", SCOPE_AUDIT, "runtime.*", SHARED},
    {"room:1", 0, "room:*", APPLICATION},
    {"room.1", 0, "room.*", APPLICATION},
    {"runtime.other", 0, "runtime.*", RESERVED},
    {"run:r", 0, "run:*", RESERVED},
    {"run::events", 0, "run:*", RESERVED},
};

enum grants { GRANTS_NONE, GRANTS_EXACT, GRANTS_PATTERN, GRANTS_OTHER, GRANTS_COUNT };

/* The expected answer for a row. */
static struct grant expected(const struct topic_case *row, const struct principal *who,
                             enum grants grants, const struct owner *owner) {
    const struct grant forbidden = {STATUS_FORBIDDEN_TOPIC, GRANT_VIEW_NONE};
    if (grants == GRANTS_OTHER)
        return forbidden;
    if (who->read_all)
        return (struct grant){STATUS_OK, GRANT_VIEW_ALL};
    if (row->kind == RESERVED || (row->kind == APPLICATION && grants == GRANTS_NONE))
        return forbidden;
    if (row->scopes && !(row->scopes & who->scopes))
        return (struct grant){STATUS_MISSING_SCOPE, GRANT_VIEW_NONE};
    if (row->kind == APPLICATION)
        return (struct grant){STATUS_OK, GRANT_VIEW_OWN_OR_UNOWNED};
    if (row->kind == SHARED)
        return (struct grant){STATUS_OK, GRANT_VIEW_OWN};
    if (grants == GRANTS_EXACT)
        return (struct grant){STATUS_OK, GRANT_VIEW_ALL};
    const struct owner *decisive = row->kind == FLEET ? &owner_u : owner;
    bool is_own = decisive && principal_may_read(who, decisive);
    return is_own ? (struct grant){STATUS_OK, GRANT_VIEW_OWN}
                  : (struct grant){STATUS_OWNER_MISMATCH, GRANT_VIEW_NONE};
}

static void check_row(const struct topic_case *row, struct principal who, enum grants grants) {
    const struct owner *const owners[] = {NULL, &owner_u, &owner_v, &owner_org, &owner_nobody};
    struct slice name = grants == GRANTS_EXACT     ? slice_of(row->topic)
                        : grants == GRANTS_PATTERN ? slice_of(row->other)
                                                   : SLICE("elsewhere");
    if (grants != GRANTS_NONE)
        who.topics = (struct grant_list){&name, 1};
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
        struct grant wanted = expected(row, &who, grants, owners[i]);
        struct grant got = grant_check(&who, slice_of(row->topic), owners[i]);
        if (got.status != wanted.status || got.view != wanted.view)
            fail_msg("%s scopes %u grants %d owner %zu: %s, view %d; wanted %s, view %d",
                     row->topic, who.scopes, (int)grants, i, status_code(got.status), (int)got.view,
                     status_code(wanted.status), (int)wanted.view);
    }
}

static void every_kind_of_topic_principal_scope_and_grant_has_its_answer(void **state) {
    (void)state;
    static const struct owner people[] = {{.user_id = {"u", 1}},
                                          {.user_id = {"v", 1}},
                                          {.guest_scope = {"u", 1}},
                                          {.user_id = {"v", 1}, .org_id = {"o", 1}},
                                          {.user_id = {NULL, 0}}};
    for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++)
        for (size_t j = 0; j < sizeof(people) / sizeof(people[0]); j++)
            for (unsigned scopes = 0; scopes <= ALL_SCOPES; scopes++)
                for (int grants = 0; grants < GRANTS_COUNT; grants++)
                    for (int read_all = 0; read_all < 2; read_all++)
                        check_row(&topics[i],
                                  (struct principal){.identity = people[j],
                                                     .scopes = scopes,
                                                     .read_all = read_all == 1},
                                  (enum grants)grants);
}

static void an_unknown_run_is_refused_like_one_of_another_owner(void **state) {
    (void)state;
    const struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES};
    struct grant unknown = grant_check(&who, SLICE("run:none:events"), NULL);
    struct grant foreign = grant_check(&who, SLICE("run:none:events"), &owner_v);
    assert_int_equal(unknown.status, foreign.status);
    assert_int_equal(unknown.status, STATUS_OWNER_MISMATCH);
}

static void a_subscription_waits_where_the_owner_of_an_entity_decides(void **state) {
    (void)state;
    struct principal who = {.identity.user_id = SLICE("ada"), .scopes = SCOPE_RUN_EVENTS};
    struct slice granted = SLICE("run:r:events");
    struct grant grant = grant_subscribe(&who, SLICE("run:r:events"));
    assert_int_equal(grant.status, STATUS_OK);
    assert_int_equal(grant.view, GRANT_VIEW_PENDING);
    assert_false(grant_may_read(&who, GRANT_VIEW_PENDING, &who.identity));
    assert_int_equal(grant_subscribe(&who, SLICE("worker:w:lifecycle")).status,
                     STATUS_MISSING_SCOPE);
    assert_int_equal(grant_subscribe(&who, SLICE("room:1")).status, STATUS_FORBIDDEN_TOPIC);
    who.scopes |= SCOPE_CODEX_WORKER_EVENTS;
    assert_int_equal(grant_subscribe(&who, SLICE("fleet:user:bob:workers")).status,
                     STATUS_OWNER_MISMATCH);
    who.topics = (struct grant_list){&granted, 1};
    assert_int_equal(grant_subscribe(&who, SLICE("run:r:events")).view, GRANT_VIEW_ALL);
    assert_int_equal(grant_subscribe(&who, SLICE("run:s:events")).status, STATUS_FORBIDDEN_TOPIC);
}

static void fleets_belong_to_the_owner_in_their_name(void **state) {
    (void)state;
    const struct principal user = {.identity.user_id = SLICE("a:b"), .scopes = ALL_SCOPES};
    const struct principal guest = {.identity.guest_scope = SLICE("a:b"), .scopes = ALL_SCOPES};
    assert_ok(grant_check(&user, SLICE("fleet:user:a:b:workers"), NULL).status);
    assert_ok(grant_check(&guest, SLICE("fleet:guest:a:b:workers"), NULL).status);
    assert_int_equal(grant_check(&user, SLICE("fleet:guest:a:b:workers"), NULL).status,
                     STATUS_OWNER_MISMATCH);
    assert_int_equal(grant_check(&guest, SLICE("fleet:user:a:b:workers"), NULL).status,
                     STATUS_OWNER_MISMATCH);
    assert_int_equal(grant_check(&user, SLICE("fleet:user:a:workers"), &owner_u).status,
                     STATUS_OWNER_MISMATCH);
}

static void streams_grant_as_topics_do(void **state) {
    (void)state;
    struct slice exact = SLICE("runtime.run.r.events");
    struct slice pattern = SLICE("runtime.run.*.events");
    struct slice other = SLICE("runtime.topic.room.1");
    struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES, .streams = {&exact, 1}};
    assert_int_equal(grant_check(&who, SLICE("run:r:events"), &owner_v).view, GRANT_VIEW_ALL);
    assert_int_equal(grant_check(&who, SLICE("run:s:events"), &owner_u).status,
                     STATUS_FORBIDDEN_TOPIC);
    who.streams.names = &pattern;
    assert_int_equal(grant_check(&who, SLICE("run:r:events"), &owner_v).status,
                     STATUS_OWNER_MISMATCH);
    assert_int_equal(grant_check(&who, SLICE("run:r:events"), &owner_u).view, GRANT_VIEW_OWN);
    who.streams.names = &other;
    assert_ok(grant_check(&who, SLICE("room:1"), NULL).status);
}

static void stream_ids_stand_among_the_topics_only_whole(void **state) {
    (void)state;
    const struct slice exact = SLICE("runtime.topic.a.b");
    const struct slice pattern = SLICE("runtime.*");
    struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES, .topics = {&exact, 1}};
    assert_int_equal(grant_check(&who, SLICE("a.b"), NULL).status, STATUS_OK);
    assert_int_equal(grant_check(&who, SLICE("a:b"), NULL).status, STATUS_OK);
    assert_int_equal(grant_check(&who, SLICE("a.c"), NULL).status, STATUS_FORBIDDEN_TOPIC);
    assert_true(grant_opens_any(&who));
    who.topics.names = &pattern;
    assert_int_equal(grant_check(&who, SLICE("a.b"), NULL).status, STATUS_FORBIDDEN_TOPIC);
    assert_int_equal(grant_check(&who, SLICE("run:r:events"), NULL).status, STATUS_FORBIDDEN_TOPIC);
}

static void a_stream_without_a_topic_is_open_to_tokens_that_grant_one_of_its_names(void **state) {
    (void)state;
    static const struct {
        const char *granted;
        bool is_stream;
        enum status status;
    } cases[] = {
        {"runtime.topic.a.b", true, STATUS_OK},
        {"runtime.topic.a.*", true, STATUS_OK},
        {"runtime.topic.a.b", false, STATUS_OK},
        {"a.b", false, STATUS_OK},
        {"a:b", false, STATUS_OK},
        {"a:*", false, STATUS_OK},
        {"a.*", false, STATUS_OK},
        {"a:c", false, STATUS_FORBIDDEN_TOPIC},
        {"a.b", true, STATUS_FORBIDDEN_TOPIC},
        {"runtime.*", false, STATUS_FORBIDDEN_TOPIC},
    };
    struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES};
    const struct slice stream = SLICE("runtime.topic.a.b");
    assert_int_equal(grant_check(&who, stream, NULL).status, STATUS_FORBIDDEN_TOPIC);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct slice name = slice_of(cases[i].granted);
        const struct grant_list list = {&name, 1};
        const struct grant_list none = {NULL, 0};
        who.topics = cases[i].is_stream ? none : list;
        who.streams = cases[i].is_stream ? list : none;
        assert_int_equal(grant_check(&who, stream, NULL).status, cases[i].status);
    }
    const struct principal all = {.read_all = true};
    assert_int_equal(grant_check(&all, stream, NULL).view, GRANT_VIEW_ALL);
}

static void patterns_are_whole_parts(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        const char *topic;
        bool matches;
    } rows[] = {
        {"room:*", "room:1", true},
        {"room:*", "room:1:2", true},
        {"room:*", "room:", false},
        {"room:*", "room", false},
        {"room:*", "zoom:1", false},
        {"room:*:log", "room:1:log", true},
        {"room:*:log", "room::log", false},
        {"room:*:log", "room:log", false},
        {"*", "room", false},
        {"*:log", "room:log", false},
        {"ro*", "room", false},
        {"room:1*", "room:12", false},
        {"room:*2", "room:12", false},
        {"a:*:b:*", "a:1:b:2", false},
        {"a:*b", "a:*b", false},
        {"*", "*", false},
        {"a.*.c", "a.b.c", true},
        {"a.*", "a:b", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct slice name = slice_of(rows[i].pattern);
        const struct principal who = {.topics = {&name, 1}};
        if ((grant_check(&who, slice_of(rows[i].topic), NULL).status == STATUS_OK) !=
            rows[i].matches)
            fail_msg("%s on %s", rows[i].pattern, rows[i].topic);
    }
}

static void names_that_cannot_be_topics_are_forbidden(void **state) {
    (void)state;
    char name[TOPIC_NAME_BYTES_MAX + 1];
    memset(name, 'n', sizeof(name));
    assert_int_equal(
        grant_check(&principal_operator, (struct slice){name, sizeof(name)}, NULL).status,
        STATUS_FORBIDDEN_TOPIC);
    assert_int_equal(grant_check(&principal_operator, SLICE(""), NULL).status,
                     STATUS_FORBIDDEN_TOPIC);
    assert_ok(
        grant_check(&principal_operator, (struct slice){name, TOPIC_NAME_BYTES_MAX}, NULL).status);
}

static void a_wildcard_is_never_the_name_of_a_topic(void **state) {
    (void)state;
    static const char *const names[][2] = {{"run:*:events", "run:*:events"},
                                           {"run:*:events", "runtime.run.*.events"},
                                           {"worker:*:lifecycle", "worker:*:lifecycle"},
                                           {"fleet:user:*:workers", "fleet:user:*:workers"},
                                           {"run:a*:events", "run:a*:events"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct slice name = slice_of(names[i][1]);
        struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES, .topics = {&name, 1}};
        struct slice topic = slice_of(names[i][0]);
        assert_int_not_equal(grant_check(&who, topic, &owner_v).status, STATUS_OK);
        assert_int_not_equal(grant_check_append(&who, topic, &owner_v), STATUS_OK);
        who.topics.count = 0;
        who.streams = (struct grant_list){&name, 1};
        assert_int_not_equal(grant_check(&who, topic, &owner_v).status, STATUS_OK);
    }
    struct slice broken = SLICE("room*");
    struct principal who = {.identity = owner_u, .scopes = ALL_SCOPES, .topics = {&broken, 1}};
    assert_int_equal(grant_check(&who, broken, NULL).status, STATUS_FORBIDDEN_TOPIC);
}

static void producers_append_to_what_they_own_or_to_what_their_token_names(void **state) {
    (void)state;
    static const struct {
        const char *granted; /* NULL: the token lists nothing */
        const char *topic;
        enum status own;
        enum status foreign;
        enum status absent;
    } rows[] = {
        {NULL, "run:r:events", STATUS_OK, STATUS_OWNER_MISMATCH, STATUS_OWNER_MISMATCH},
        {NULL, "worker:w:lifecycle", STATUS_OK, STATUS_OWNER_MISMATCH, STATUS_OWNER_MISMATCH},
        {NULL, "room:1", STATUS_FORBIDDEN_TOPIC, STATUS_FORBIDDEN_TOPIC, STATUS_FORBIDDEN_TOPIC},
        {NULL, "runtime.notifications", STATUS_OK, STATUS_OK, STATUS_OK},
        {"run:r:events", "run:r:events", STATUS_OK, STATUS_OK, STATUS_OK},
        {"run:r:events", "run:s:events", STATUS_FORBIDDEN_TOPIC, STATUS_FORBIDDEN_TOPIC,
         STATUS_FORBIDDEN_TOPIC},
        {"run:r:events", "runtime.notifications", STATUS_FORBIDDEN_TOPIC, STATUS_FORBIDDEN_TOPIC,
         STATUS_FORBIDDEN_TOPIC},
        {"run:*:events", "run:r:events", STATUS_OK, STATUS_OWNER_MISMATCH, STATUS_OWNER_MISMATCH},
        {"runtime.run.r.events", "run:r:events", STATUS_OK, STATUS_OK, STATUS_OK},
        {"room:*", "room:1", STATUS_OK, STATUS_OK, STATUS_OK},
        {"room:*", "run:r:events", STATUS_FORBIDDEN_TOPIC, STATUS_FORBIDDEN_TOPIC,
         STATUS_FORBIDDEN_TOPIC},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct slice name = slice_of(rows[i].granted ? rows[i].granted : "");
        const struct principal who = {.identity = owner_u,
                                      .scopes = SCOPE_APPEND,
                                      .topics = {&name, rows[i].granted != NULL}};
        const struct slice topic = slice_of(rows[i].topic);
        assert_int_equal(grant_check_append(&who, topic, &owner_u), rows[i].own);
        assert_int_equal(grant_check_append(&who, topic, &owner_v), rows[i].foreign);
        assert_int_equal(grant_check_append(&who, topic, NULL), rows[i].absent);
    }
}

static void frames_are_filtered_by_view(void **state) {
    (void)state;
    const struct principal who = {.identity = owner_u};
    static const struct {
        enum grant_view view;
        bool own, other, unowned;
    } rows[] = {{GRANT_VIEW_NONE, false, false, false},
                {GRANT_VIEW_OWN, true, false, false},
                {GRANT_VIEW_OWN_OR_UNOWNED, true, false, true},
                {GRANT_VIEW_ALL, true, true, true}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(grant_may_read(&who, rows[i].view, &owner_u), rows[i].own);
        assert_int_equal(grant_may_read(&who, rows[i].view, &owner_v), rows[i].other);
        assert_int_equal(grant_may_read(&who, rows[i].view, &owner_nobody), rows[i].unowned);
    }
}

static void the_entity_behind_a_topic_is_named(void **state) {
    (void)state;
    struct slice id;
    assert_int_equal(grant_entity_of(SLICE("run:a:b:events"), &id), ENTITY_RUN);
    assert_slice(id, "a:b");
    assert_int_equal(grant_entity_of(SLICE("worker:w:lifecycle"), &id), ENTITY_WORKER);
    assert_slice(id, "w");
    assert_int_equal(grant_entity_of(SLICE("run::events"), &id), ENTITY_NONE);
    assert_int_equal(grant_entity_of(SLICE("runtime.audit"), &id), ENTITY_NONE);
    assert_int_equal(grant_entity_of(SLICE("room:1"), &id), ENTITY_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_topic_principal_scope_and_grant_has_its_answer),
        cmocka_unit_test(an_unknown_run_is_refused_like_one_of_another_owner),
        cmocka_unit_test(a_subscription_waits_where_the_owner_of_an_entity_decides),
        cmocka_unit_test(fleets_belong_to_the_owner_in_their_name),
        cmocka_unit_test(streams_grant_as_topics_do),
        cmocka_unit_test(stream_ids_stand_among_the_topics_only_whole),
        cmocka_unit_test(a_stream_without_a_topic_is_open_to_tokens_that_grant_one_of_its_names),
        cmocka_unit_test(patterns_are_whole_parts),
        cmocka_unit_test(names_that_cannot_be_topics_are_forbidden),
        cmocka_unit_test(a_wildcard_is_never_the_name_of_a_topic),
        cmocka_unit_test(producers_append_to_what_they_own_or_to_what_their_token_names),
        cmocka_unit_test(frames_are_filtered_by_view),
        cmocka_unit_test(the_entity_behind_a_topic_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
