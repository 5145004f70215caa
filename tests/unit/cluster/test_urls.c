#include "test.h"

#include "cluster/fanout.h"

static void assert_url(const char *text, const char *host, int port, const char *user,
                       const char *password) {
    struct redis_url url;
    assert_null(redis_url_parse(text, &url));
    assert_string_equal(url.host, host);
    assert_int_equal(url.port, port);
    assert_string_equal(url.user, user);
    assert_string_equal(url.password, password);
}

static void parts_of_a_url(void **state) {
    (void)state;
    assert_url("redis://localhost", "localhost", 6379, "", "");
    assert_url("redis://10.0.0.1:7000/", "10.0.0.1", 7000, "", "");
    assert_url("redis://[::1]:7000", "::1", 7000, "", "");
    assert_url("redis://[::1]", "::1", 6379, "", "");
    assert_url("redis://:secret@h", "h", 6379, "", "secret");
    assert_url("redis://ada:p%40ss%3aword@h:1", "h", 1, "ada", "p@ss:word");
    assert_url("redis://ada:p@ss@h:1", "h", 1, "ada", "p@ss");
}

static void wrong_urls_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "redis",
        "redis://",
        "redis://:6379",
        "redis://h:",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:1x",
        "redis://h/1",
        "redis://[::1",
        "redis://[]:1",
        "redis://[::1]x",
        "redis://secret@h",
        "redis://u:%zz@h",
        "redis://u:%0@h",
        "redis://u:%00@h",
        "rediss://h",
        "nats://h",
        "REDIS://h",
    };
    struct redis_url url;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_non_null(redis_url_parse(texts[i], &url));
    char longest[1024] = "redis://u:";
    memset(longest + strlen(longest), 'x', 600);
    strcat(longest, "@h");
    assert_non_null(redis_url_parse(longest, &url));
}

static void each_driver_knows_its_urls(void **state) {
    (void)state;
    assert_null(fanout_check_url(FANOUT_MEMORY, ""));
    assert_null(fanout_check_url(FANOUT_NATS, "nats://u:p@127.0.0.1:4222"));
    assert_null(fanout_check_url(FANOUT_NATS, "tls://nats.example:4222"));
    assert_non_null(fanout_check_url(FANOUT_NATS, "http://127.0.0.1:4222"));
    assert_non_null(fanout_check_url(FANOUT_NATS, "nats://"));
    assert_null(fanout_check_url(FANOUT_REDIS, "redis://127.0.0.1:1"));
    assert_non_null(fanout_check_url(FANOUT_REDIS, "rediss://127.0.0.1:1"));
    assert_null(fanout_check_url(FANOUT_POSTGRES_NOTIFY, "postgres://u:p@h/db?sslmode=require"));
    assert_null(fanout_check_url(FANOUT_POSTGRES_NOTIFY, "postgresql:///db?host=/run"));
    assert_non_null(fanout_check_url(FANOUT_POSTGRES_NOTIFY, "host=h password=p"));
    assert_non_null(fanout_check_url(FANOUT_POSTGRES_NOTIFY, "postgres://h/db?nosuch=1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_url),
        cmocka_unit_test(wrong_urls_are_refused),
        cmocka_unit_test(each_driver_knows_its_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
