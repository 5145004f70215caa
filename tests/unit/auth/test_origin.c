#include "auth/origin.h"

#include "test.h"

static void origins_follow_the_table(void **state) {
    (void)state;
    static const struct {
        const char *list;
        const char *origin;
        bool allowed;
    } rows[] = {
        {"", "https://a.example", false},
        {"https://a.example", "https://a.example", true},
        {"https://a.example", "HTTPS://A.Example", true},
        {"https://a.example", "http://a.example", false},
        {"https://a.example", "https://a.example:443", true},
        {"https://a.example:443", "https://a.example", true},
        {"https://a.example", "https://a.example:8443", false},
        {"http://a.example:80", "http://a.example", true},
        {"https://a.example:80", "https://a.example", false},
        {"https://a.example", "https://a.example.evil", false},
        {"https://a.example", "https://evil-a.example", false},
        {"https://a.example", "https://a.example/", false},
        {"https://a.example", "https://a.example@evil", false},
        {"https://a.example", "https://evil,https://a.example", false},
        {"https://a.example", "a.example", false},
        {"https://a.example", "", false},
        {"https://a.example", "null", false},
        {"null", "null", true},
        {"*", "null", true},
        {"*", "https://any.example", true},
        {"*", "no origin", false},
        {"https://a, https://b ,https://c", "https://b", true},
        {"https://a, https://b ,https://c", "https://c", true},
        {"https://a, https://b ,https://c", "https://d", false},
        {"https://*.a.example", "https://x.a.example", true},
        {"https://*.a.example", "https://x.y.a.example", true},
        {"https://*.a.example", "https://a.example", false},
        {"https://*.a.example", "https://.a.example", false},
        {"https://*.a.example", "https://xa.example", false},
        {"https://*.a.example", "http://x.a.example", false},
        {"https://*.a.example:8443", "https://x.a.example:8443", true},
        {"http://[::1]:3000", "http://[::1]:3000", true},
        {"http://[::1]", "http://[::1]:80", true},
        {"http://[::1]", "http://[::2]", false},
        {"capacitor://localhost", "capacitor://localhost", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (origin_is_allowed(slice_of(rows[i].list), slice_of(rows[i].origin)) != rows[i].allowed)
            fail_msg("row %zu: %s in %s", i, rows[i].origin, rows[i].list);
}

static void malformed_lists_are_found(void **state) {
    (void)state;
    static const char *const good[] = {
        "", "*", "null", "https://a", "https://*.a:99, http://b", "http://[::1]:3000"};
    static const char *const bad[] = {
        "a.example",   "https://",         "https://a/",    "https://a b", "https://*",
        "https://a.*", "https://a:",       "https://a:x",   ",",           "https://a,,b",
        "https://u@a", "https://a:123456", "https://*.*.a", "https://[zz", "://a"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!origin_list_check(slice_of(good[i])))
            fail_msg("good: %s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (origin_list_check(slice_of(bad[i])))
            fail_msg("bad: %s", bad[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(origins_follow_the_table),
        cmocka_unit_test(malformed_lists_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
