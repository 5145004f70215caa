#include "api/routes.h"

#include "test.h"

static bool has_role(const struct route *route, enum key_role role) {
    return (route->roles & KEY_ROLE_BIT(role)) != 0;
}

static bool changes(const struct route *route) {
    return route->method != HTTP1_METHOD_GET &&
           !slice_equal(slice_of(route->path), SLICE("/v1/cursors/plan"));
}

static bool is_path(const struct route *route, const char *end) {
    return slice_ends(slice_of(route->path), slice_of(end));
}

static void each_route_that_takes_a_key_says_which_roles(void **state) {
    (void)state;
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *route = &api_routes.rows[i];
        bool takes_key = route->flags & (ROUTE_OPERATOR | ROUTE_PRODUCER | ROUTE_TOKEN_OR_OPERATOR);
        if (takes_key != has_role(route, KEY_ROLE_ADMIN))
            fail_msg("%s: admin may call exactly the routes that take a key", route->path);
        if (!takes_key && route->roles != 0)
            fail_msg("%s: a route without a key has no roles", route->path);
        if (has_role(route, KEY_ROLE_NONE) || route->roles >= KEY_ROLE_BIT(KEY_ROLE_COUNT))
            fail_msg("%s: has a role that no key has", route->path);
    }
}

static void a_role_reaches_its_own_routes_and_no_other(void **state) {
    (void)state;
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *route = &api_routes.rows[i];
        bool is_keys = slice_starts(slice_of(route->path), SLICE("/internal/v1/keys"));
        if (has_role(route, KEY_ROLE_READ) && (changes(route) || is_keys))
            fail_msg("%s: a key of the role read changes nothing", route->path);
        if (has_role(route, KEY_ROLE_METRICS) != is_path(route, "/metrics") &&
            !is_path(route, "/fanout/metrics"))
            fail_msg("%s: a key of the role metrics reads /metrics", route->path);
        if (is_path(route, "/fanout/metrics") && has_role(route, KEY_ROLE_METRICS))
            fail_msg("%s: names topics", route->path);
        if (has_role(route, KEY_ROLE_MINT) != is_path(route, "/sync/token"))
            fail_msg("%s: a key of the role mint mints", route->path);
        if (has_role(route, KEY_ROLE_APPEND) !=
            ((route->flags & ROUTE_PRODUCER) != 0 || is_path(route, "/api/events/ingest")))
            fail_msg("%s: a key of the role append appends", route->path);
        if (route->flags & ROUTE_TOKEN && route->roles != 0)
            fail_msg("%s: a WebSocket takes no key", route->path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_route_that_takes_a_key_says_which_roles),
        cmocka_unit_test(a_role_reaches_its_own_routes_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
