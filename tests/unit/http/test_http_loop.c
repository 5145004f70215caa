#include "http/http_loop.h"

#include "test.h"

static void a_time_has_the_form_of_an_http_date(void **state) {
    (void)state;
    struct http_date date = {0};
    assert_slice(http_date_at(&date, UINT64_C(784111777000)), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_slice(http_date_at(&date, UINT64_C(784111777999)), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_slice(http_date_at(&date, UINT64_C(784111778000)), "Sun, 06 Nov 1994 08:49:38 GMT");
}

static void the_date_follows_a_clock_that_steps_back(void **state) {
    (void)state;
    struct http_date date = {0};
    assert_slice(http_date_at(&date, UINT64_C(1709210096000)), "Thu, 29 Feb 2024 12:34:56 GMT");
    assert_slice(http_date_at(&date, 0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_has_the_form_of_an_http_date),
        cmocka_unit_test(the_date_follows_a_clock_that_steps_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
