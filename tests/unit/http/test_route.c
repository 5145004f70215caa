#include "http/route.h"

#include "api/routes.h"
#include "test.h"

struct match {
    struct slice parameters[ROUTE_PARAMETERS_MAX];
    size_t count;
    bool found;
};

static struct match match(const char *pattern, const char *path) {
    struct match match = {.count = 99};
    match.found = route_path_matches(pattern, slice_of(path), match.parameters, &match.count);
    return match;
}

static void a_path_matches_only_itself(void **state) {
    (void)state;
    assert_true(match("/healthz/live", "/healthz/live").found);
    static const char *const others[] = {"",
                                         "/",
                                         "healthz/live",
                                         "/healthz",
                                         "/healthz/",
                                         "/healthz/l",
                                         "/healthz/liv",
                                         "/healthz/lived",
                                         "/healthz/live/",
                                         "/healthz/live//",
                                         "//healthz/live",
                                         "/healthz//live",
                                         "/healthz/live/x",
                                         "/Healthz/live",
                                         "/healthz/liv%65",
                                         "*",
                                         "/healthz/live?"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (match("/healthz/live", others[i]).found)
            fail_msg("/healthz/live matches '%s'", others[i]);
}

static void the_root_is_a_path_of_one_empty_segment(void **state) {
    (void)state;
    assert_true(match("/", "/").found);
    assert_false(match("/", "//").found);
    assert_false(match("/", "/a").found);
    assert_false(match("/", "").found);
    assert_true(match("/a/", "/a/").found);
    assert_false(match("/a/", "/a").found);
}

static void a_parameter_matches_one_nonempty_segment(void **state) {
    (void)state;
    struct match one = match("/runs/{run_id}/events", "/runs/a%2Fb/events");
    assert_true(one.found);
    assert_int_equal(one.count, 1);
    assert_slice(one.parameters[0], "a%2Fb");
    assert_false(match("/runs/{run_id}/events", "/runs//events").found);
    assert_false(match("/runs/{run_id}/events", "/runs/a/b/events").found);
    assert_false(match("/runs/{run_id}", "/runs/").found);
    assert_false(match("/runs/{run_id}", "/runs").found);
    assert_false(match("/runs/{run_id}", "/runs/a/").found);
    struct match last = match("/runs/{run_id}", "/runs/a");
    assert_true(last.found);
    assert_slice(last.parameters[0], "a");
}

static void parameters_are_in_the_order_of_the_path(void **state) {
    (void)state;
    struct match two = match("/a/{x}/{y}", "/a/1/2");
    assert_true(two.found);
    assert_int_equal(two.count, 2);
    assert_slice(two.parameters[0], "1");
    assert_slice(two.parameters[1], "2");
    assert_int_equal(match("/a/b", "/a/b").count, 0);
}

static enum status find(enum http1_method method, const char *path, const struct route **route) {
    struct http1_request request = {.method = method, .path = slice_of(path)};
    struct route_match found = {0};
    struct buffer memory;
    buffer_init(&memory, 64);
    enum status status = route_find(&api_routes, &request, 0, &memory, &found);
    buffer_release(&memory);
    *route = found.route;
    return status;
}

static void a_route_is_found_by_path_and_method(void **state) {
    (void)state;
    const struct route *route;
    const struct route *head;
    assert_ok(find(HTTP1_METHOD_GET, "/healthz/live", &route));
    assert_string_equal(route->path, "/healthz/live");
    assert_ok(find(HTTP1_METHOD_HEAD, "/healthz/live", &head));
    assert_ptr_equal(route, head);
    assert_int_equal(find(HTTP1_METHOD_POST, "/healthz/live", &route), STATUS_METHOD_NOT_ALLOWED);
    assert_null(route);
    assert_int_equal(find(HTTP1_METHOD_OTHER, "/healthz/live", &route), STATUS_METHOD_NOT_ALLOWED);
    assert_int_equal(find(HTTP1_METHOD_GET, "/healthz/dead", &route), STATUS_NOT_FOUND);
    assert_int_equal(find(HTTP1_METHOD_OPTIONS, "*", &route), STATUS_NOT_FOUND);
}

static void the_methods_of_a_path_are_listed(void **state) {
    (void)state;
    char text[64];
    route_allowed(&api_routes, SLICE("/healthz/live"), ROUTE_OPERATOR, text);
    assert_string_equal(text, "GET, HEAD");
    route_allowed(&api_routes, SLICE("/nowhere"), 0, text);
    assert_string_equal(text, "");
    route_allowed(&api_routes, SLICE("/metrics"), 0, text);
    assert_string_equal(text, "GET, HEAD");
    route_allowed(&api_routes, SLICE("/metrics"), ROUTE_OPERATOR, text);
    assert_string_equal(text, "");
}

static void a_route_takes_its_own_parameters_and_those_of_admission(void **state) {
    (void)state;
    static const char *const common[] = {"token", "_", "client_build_id", "protocol_version",
                                         "schema_version"};
    const struct route two = {.parameters = "after_seq limit"};
    const struct route none = {.parameters = ""};
    const struct route any = {.parameters = NULL};
    assert_true(route_takes(&two, SLICE("after_seq")));
    assert_true(route_takes(&two, SLICE("limit")));
    assert_false(route_takes(&two, SLICE("after")));
    assert_false(route_takes(&two, SLICE("after_seq limit")));
    assert_false(route_takes(&two, SLICE("LIMIT")));
    assert_false(route_takes(&two, SLICE("")));
    assert_false(route_takes(&none, SLICE("")));
    assert_false(route_takes(&none, SLICE("limit")));
    assert_true(route_takes(&any, SLICE("limit")));
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
        assert_true(route_takes(&none, slice_of(common[i])));
}

/* A write, a health check, the metrics and a route that stays open take any name. */
static void every_route_that_reads_lists_its_parameters(void **state) {
    (void)state;
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *route = &api_routes.rows[i];
        bool reads = route->method == HTTP1_METHOD_GET &&
                     !(route->flags & (ROUTE_STAYS_OPEN | ROUTE_TOKEN_IN_FIRST_MESSAGE)) &&
                     !slice_starts(slice_of(route->path), SLICE("/healthz/")) &&
                     !slice_equal(slice_of(route->path), SLICE("/metrics"));
        if (reads)
            assert_non_null(route->parameters);
        else if (route->flags & ROUTE_STAYS_OPEN)
            assert_null(route->parameters);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_matches_only_itself),
        cmocka_unit_test(the_root_is_a_path_of_one_empty_segment),
        cmocka_unit_test(a_parameter_matches_one_nonempty_segment),
        cmocka_unit_test(parameters_are_in_the_order_of_the_path),
        cmocka_unit_test(a_route_is_found_by_path_and_method),
        cmocka_unit_test(the_methods_of_a_path_are_listed),
        cmocka_unit_test(a_route_takes_its_own_parameters_and_those_of_admission),
        cmocka_unit_test(every_route_that_reads_lists_its_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
