#include "base/buffer.h"
#include "test.h"

static void grows_to_its_maximum_and_no_further(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    for (int i = 0; i < 1000; i++)
        assert_ok(buffer_append_byte(&buffer, (char)i));
    assert_int_equal(buffer_append_byte(&buffer, 'x'), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer.size, 1000);
    assert_true(buffer.capacity <= 1000);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer.data[i], (char)i);
    buffer_release(&buffer);
    assert_null(buffer.data);
}

static void a_refused_append_changes_nothing(void **state) {
    (void)state;
    struct buffer buffer;
    volatile size_t everything = SIZE_MAX; /* or the compiler warns of what is tested here */
    buffer_init(&buffer, 8);
    assert_ok(buffer_append(&buffer, "abcd", 4));
    assert_int_equal(buffer_append(&buffer, "efghi", 5), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer_printf(&buffer, "%s", "efgh"), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer_append_hex(&buffer, "abc", 3), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer_append(&buffer, "x", everything), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&buffer), "abcd");
    buffer_release(&buffer);
}

static void keeps_the_first_failure(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 8);
    buffer_append(&buffer, "abcd", 4);
    buffer_append(&buffer, "efghi", 5);
    buffer_append_byte(&buffer, 'x'); /* would fit */
    buffer_append_u64(&buffer, 1);
    buffer_append_hex(&buffer, "a", 1);
    buffer_printf(&buffer, "%d", 1);
    assert_int_equal(buffer_status(&buffer), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(buffer_append_byte(&buffer, 'x'), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&buffer), "abcd");
    assert_int_equal(buffer_end(&buffer, 2), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&buffer), "ab");
    buffer_append_slice(&buffer, SLICE("cdefgh"));
    assert_ok(buffer_end(&buffer, 2));
    assert_slice(buffer_slice(&buffer), "abcdefgh");
    buffer_append_byte(&buffer, 'x');
    buffer_clear(&buffer);
    assert_ok(buffer_append_byte(&buffer, 'y'));
    /* A reservation that fails is the caller's to handle. */
    assert_int_equal(buffer_reserve(&buffer, 8), STATUS_PAYLOAD_TOO_LARGE);
    assert_ok(buffer_status(&buffer));
    buffer_release(&buffer);
}

static void writes_numbers_and_hex(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 100);
    assert_ok(buffer_append_u64(&buffer, 0));
    assert_ok(buffer_append_byte(&buffer, ' '));
    assert_ok(buffer_append_u64(&buffer, UINT64_MAX));
    assert_ok(buffer_append_byte(&buffer, ' '));
    assert_ok(buffer_append_hex(&buffer, "\x00\xff\x1a", 3));
    assert_ok(buffer_printf(&buffer, " %d", 7));
    assert_slice(buffer_slice(&buffer), "0 18446744073709551615 00ff1a 7");
    buffer_consume(&buffer, 2);
    assert_slice(buffer_slice(&buffer), "18446744073709551615 00ff1a 7");
    buffer_consume(&buffer, buffer.size);
    assert_int_equal(buffer.size, 0);
    buffer_release(&buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_its_maximum_and_no_further),
        cmocka_unit_test(a_refused_append_changes_nothing),
        cmocka_unit_test(keeps_the_first_failure),
        cmocka_unit_test(writes_numbers_and_hex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
