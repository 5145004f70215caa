#include "test.h"
#include "wire/csv.h"

static void assert_field(const char *field, const char *written) {
    struct buffer out;
    buffer_init(&out, 1024);
    assert_ok(csv_write_field(&out, slice_of(field)));
    assert_slice(buffer_slice(&out), written);
    buffer_release(&out);
}

static void a_plain_field_stays_as_it_is(void **state) {
    (void)state;
    assert_field("abc", "abc");
    assert_field("", "");
    assert_field("a b;c'd", "a b;c'd");
    assert_field("h\xc3\xa9llo", "h\xc3\xa9llo");
}

static void separators_inside_a_field_are_quoted(void **state) {
    (void)state;
    assert_field("a,b", "\"a,b\"");
    assert_field("a\nb", "\"a\nb\"");
    assert_field("a\rb", "\"a\rb\"");
    assert_field(",", "\",\"");
}

static void quotes_are_doubled(void **state) {
    (void)state;
    assert_field("\"", "\"\"\"\"");
    assert_field("{\"a\":[1,2]}", "\"{\"\"a\"\":[1,2]}\"");
}

static void blanks_at_the_ends_are_kept_by_quotes(void **state) {
    (void)state;
    assert_field(" a", "\" a\"");
    assert_field("a\t", "\"a\t\"");
    assert_field(" ", "\" \"");
}

static void formulas_are_left_exact(void **state) {
    (void)state;
    assert_field("=1+1", "=1+1");
    assert_field("@x", "@x");
}

static void commas_and_ends_stand_between(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1024);
    assert_ok(csv_write_field(&out, SLICE("a")));
    assert_ok(csv_write_comma(&out));
    assert_ok(csv_write_field(&out, SLICE("b\"")));
    assert_ok(csv_write_end(&out));
    assert_slice(buffer_slice(&out), "a,\"b\"\"\"\r\n");
    buffer_release(&out);
}

static void without_room_nothing_is_written(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 5);
    assert_ok(csv_write_field(&out, SLICE("\"")));
    assert_int_equal(csv_write_field(&out, SLICE(",")), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&out), "\"\"\"\"");
    assert_int_equal(csv_write_end(&out), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(out.size, 4);
    buffer_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_field_stays_as_it_is),
        cmocka_unit_test(separators_inside_a_field_are_quoted),
        cmocka_unit_test(quotes_are_doubled),
        cmocka_unit_test(blanks_at_the_ends_are_kept_by_quotes),
        cmocka_unit_test(formulas_are_left_exact),
        cmocka_unit_test(commas_and_ends_stand_between),
        cmocka_unit_test(without_room_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
