#include "http/admit/conn_shares.h"

#include <arpa/inet.h>

#include "test.h"

#define NOW_MS UINT64_C(1000000)

static struct conn_shares shares;
static struct principal_share all[10];
static struct conn_share addresses[10];

static int open_shares(void **state) {
    (void)state;
    memset(all, 0, sizeof(all));
    memset(addresses, 0, sizeof(addresses));
    shares = (struct conn_shares){.principal_max = 2, .address_max = 1};
    assert_ok(conn_shares_init(&shares));
    return 0;
}

/* The release asserts that no holder is left. */
static int close_shares(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        conn_share_return_principal(&shares, &all[i]);
        conn_share_return(&shares, &addresses[i]);
    }
    conn_shares_release(&shares);
    return 0;
}

static enum status take(size_t index, struct principal principal, uint64_t left_ms) {
    principal.expires_at_ms = NOW_MS + left_ms;
    return conn_share_take_principal(&shares, &all[index], &principal, NOW_MS);
}

static const struct principal user = {.identity.user_id = SLICE("a"), .subject = SLICE("s")};

static void a_principal_has_its_own_limit(void **state) {
    (void)state;
    const struct principal guest = {.identity.guest_scope = SLICE("a"), .subject = SLICE("s")};
    const struct principal service = {.subject = SLICE("a"), .token_id = SLICE("j")};
    const struct principal token = {.token_id = SLICE("a")};
    assert_ok(take(0, user, 300000));
    assert_ok(take(1, user, 300000));
    assert_int_equal(take(2, user, 300000), STATUS_TOO_MANY_CONNECTIONS);
    assert_ok(take(3, guest, 300000));
    assert_ok(take(4, service, 300000));
    assert_ok(take(5, token, 300000));
    conn_share_return_principal(&shares, &all[0]);
    assert_ok(take(2, user, 300000));
}

static void a_share_moves_to_another_principal_unless_that_one_is_at_its_limit(void **state) {
    (void)state;
    const struct principal other = {.identity.org_id = SLICE("o")};
    assert_ok(take(0, user, 300000));
    assert_ok(take(1, user, 300000));
    assert_ok(take(2, other, 300000));
    assert_int_equal(take(2, user, 300000), STATUS_TOO_MANY_CONNECTIONS);
    assert_ok(take(1, other, 300000));
    assert_ok(take(3, user, 300000));
    assert_int_equal(take(4, other, 300000), STATUS_TOO_MANY_CONNECTIONS);
}

static void shares_near_the_end_of_their_token_count_only_twice_the_limit(void **state) {
    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_ok(take(i, user, i % 2 ? 300000 : 60000));
    assert_int_equal(take(4, user, 300000), STATUS_TOO_MANY_CONNECTIONS);
    conn_share_return_principal(&shares, &all[0]);
    assert_int_equal(take(4, user, 300000), STATUS_TOO_MANY_CONNECTIONS);
    conn_share_return_principal(&shares, &all[1]);
    assert_ok(take(4, user, 300000));
    assert_ok(take(2, user, 300000)); /* a fresh token: counts again */
    conn_share_return_principal(&shares, &all[3]);
    assert_int_equal(take(3, user, 300000), STATUS_TOO_MANY_CONNECTIONS);
}

static enum status take_address(size_t index, const char *text) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    bool is_four = inet_pton(AF_INET, text, &four.sin_addr) == 1;
    assert_true(is_four || inet_pton(AF_INET6, text, &six.sin6_addr) == 1);
    return conn_share_take_address(&shares, &addresses[index],
                                   is_four ? (struct sockaddr *)&four : (struct sockaddr *)&six);
}

static void an_address_is_an_ipv4_address_or_an_ipv6_network(void **state) {
    (void)state;
    assert_ok(take_address(0, "192.0.2.1"));
    assert_int_equal(take_address(1, "192.0.2.1"), STATUS_TOO_MANY_CONNECTIONS);
    assert_int_equal(take_address(1, "::ffff:192.0.2.1"), STATUS_TOO_MANY_CONNECTIONS);
    assert_ok(take_address(1, "192.0.2.2"));
    assert_ok(take_address(2, "2001:db8::1"));
    assert_int_equal(take_address(3, "2001:db8::2"), STATUS_TOO_MANY_CONNECTIONS);
    assert_ok(take_address(3, "2001:db8:0:1::2"));
}

int main(void) {
#define SHARE_TEST(name) cmocka_unit_test_setup_teardown(name, open_shares, close_shares)
    const struct CMUnitTest tests[] = {
        SHARE_TEST(a_principal_has_its_own_limit),
        SHARE_TEST(a_share_moves_to_another_principal_unless_that_one_is_at_its_limit),
        SHARE_TEST(shares_near_the_end_of_their_token_count_only_twice_the_limit),
        SHARE_TEST(an_address_is_an_ipv4_address_or_an_ipv6_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
