#include "test.h"
#include "wire/json.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct json_limits roomy = {1 << 20, JSON_DEPTH_MAX};

/* An exact copy on the heap, so that AddressSanitizer sees a read past the end. */
static char *copy_exact(struct slice text) {
    char *copy = malloc(text.size ? text.size : 1);
    assert_non_null(copy);
    memcpy(copy, text.data, text.size);
    return copy;
}

static enum status parse(struct slice text) {
    char *copy = copy_exact(text);
    struct json_value value;
    enum status status = json_parse((struct slice){copy, text.size}, &roomy, &value);
    free(copy);
    return status;
}

static struct json_value valid(const char *text) {
    struct json_value value;
    assert_ok(json_parse(slice_of(text), &roomy, &value));
    return value;
}

static void accepts_every_form_of_value(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
        const char *raw;
    } cases[] = {
        {"null", JSON_KIND_NULL, "null"},
        {"true", JSON_KIND_TRUE, "true"},
        {" \t\r\nfalse \t\r\n", JSON_KIND_FALSE, "false"},
        {"0", JSON_KIND_NUMBER, "0"},
        {"-0", JSON_KIND_NUMBER, "-0"},
        {"-12.50e+07", JSON_KIND_NUMBER, "-12.50e+07"},
        {"1E9", JSON_KIND_NUMBER, "1E9"},
        {"0.1e-9", JSON_KIND_NUMBER, "0.1e-9"},
        {"123456789012345678901234567890", JSON_KIND_NUMBER, "123456789012345678901234567890"},
        {"1e999", JSON_KIND_NUMBER, "1e999"},
        {"\"\"", JSON_KIND_STRING, "\"\""},
        {"\"a\x7f b\"", JSON_KIND_STRING, "\"a\x7f b\""},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uD83d\\uDe80\"", JSON_KIND_STRING, NULL},
        {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80\"", JSON_KIND_STRING, NULL},
        {"[]", JSON_KIND_ARRAY, "[]"},
        {" [ ] ", JSON_KIND_ARRAY, "[ ]"},
        {"[1,[2],{\"a\":[]}]", JSON_KIND_ARRAY, NULL},
        {"{}", JSON_KIND_OBJECT, "{}"},
        {"{ \"a\" : 1 , \"a\" : 2 }", JSON_KIND_OBJECT, NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_ok(parse(slice_of(cases[i].text)));
        struct json_value value = valid(cases[i].text);
        assert_int_equal(value.kind, cases[i].kind);
        assert_slice(value.raw, cases[i].raw ? cases[i].raw : cases[i].text);
    }
}

static const struct slice not_json[] = {
    SLICE(""),
    SLICE(" "),
    SLICE("nul"),
    SLICE("nulll"),
    SLICE("True"),
    SLICE("NaN"),
    SLICE("Infinity"),
    SLICE("-Infinity"),
    SLICE("01"),
    SLICE("-01"),
    SLICE("+1"),
    SLICE("-"),
    SLICE("1."),
    SLICE(".5"),
    SLICE("1.e3"),
    SLICE("1e"),
    SLICE("1e+"),
    SLICE("0x10"),
    SLICE("1 2"),
    SLICE("1,"),
    SLICE("\""),
    SLICE("\"a"),
    SLICE("\"\\\""),
    SLICE("\"\\"),
    SLICE("\"\\x\""),
    SLICE("\"\\u12\""),
    SLICE("\"\\u12g4\""),
    SLICE("'a'"),
    SLICE("\"\n\""),
    SLICE("\"\x01\""),
    SLICE("\"\0\""),
    SLICE("\"\x1f\""),
    SLICE("["),
    SLICE("[1"),
    SLICE("[1,"),
    SLICE("[1,]"),
    SLICE("[,1]"),
    SLICE("[1 2]"),
    SLICE("[1}"),
    SLICE("]"),
    SLICE("[]]"),
    SLICE("{"),
    SLICE("{\"a\""),
    SLICE("{\"a\":"),
    SLICE("{\"a\":1"),
    SLICE("{\"a\":1,"),
    SLICE("{\"a\":1,}"),
    SLICE("{,}"),
    SLICE("{a:1}"),
    SLICE("{1:1}"),
    SLICE("{\"a\" 1}"),
    SLICE("{\"a\":}"),
    SLICE("{\"a\":1]"),
    SLICE("{}}"),
    SLICE("// c\n1"),
    SLICE("/**/1"),
    SLICE("1\0"),
    SLICE("\xef\xbb\xbf"
          "1"),
    SLICE("\xa0"
          "1"),
    SLICE("\v1"),
    SLICE("1\f"),
    SLICE("\xff"),
};

static void refuses_invalid_json(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(not_json); i++)
        assert_int_equal(parse(not_json[i]), STATUS_INVALID_JSON);
}

static void refuses_lone_surrogates(void **state) {
    (void)state;
    static const char *const cases[] = {
        "\"\\ud800\"",        "\"\\udc00\"",        "\"\\ud800x\"",       "\"\\ud800\\n\"",
        "\"\\udbff\\ud800\"", "\"\\udc00\\ud800\"", "\"\\ud800\\u0041\"", "\"\\ud83d\\ude8\"",
        "\"\\ud83d\\xde80\"", "{\"\\udfff\":1}",
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(parse(slice_of(cases[i])), STATUS_INVALID_JSON);
}

static void refuses_strings_that_are_not_utf8(void **state) {
    (void)state;
    static const char *const cases[] = {
        "\"\x80\"",         "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",     "\"\xc3",
        "\"\xc3\\u00a9\"",  "\"12345678\xff\"",
        "{\"\xff\":1}",     "[\"\xc3\xa9\xc3\"]",
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(parse(slice_of(cases[i])), STATUS_INVALID_UTF8);
}

/* Any byte of a string is found, wherever it stands in the eight looked at together. */
static void sees_a_special_byte_at_every_place(void **state) {
    (void)state;
    for (size_t size = 1; size <= 40; size++) {
        for (size_t place = 0; place < size; place++) {
            for (int byte = 0; byte < 256; byte++) {
                char text[42];
                memset(text, 'a', sizeof(text));
                text[0] = '"';
                text[size + 1] = '"';
                text[place + 1] = (char)byte;
                enum status expected = byte < 0x20 || byte == '"' || byte == '\\'
                                           ? STATUS_INVALID_JSON
                                       : byte >= 0x80 ? STATUS_INVALID_UTF8
                                                      : STATUS_OK;
                assert_int_equal(parse((struct slice){text, size + 2}), expected);
            }
        }
    }
}

static void every_cut_of_a_text_is_refused(void **state) {
    (void)state;
    struct slice text = SLICE("{\"a\\n\":[1.5e-3,true,\"\\ud83d\\ude80\xc3\xa9\",{\"b\":null}]}");
    assert_ok(parse(text));
    for (size_t size = 0; size < text.size; size++)
        assert_int_not_equal(parse((struct slice){text.data, size}), STATUS_OK);
}

static void depth_is_bounded(void **state) {
    (void)state;
    char text[2 * JSON_DEPTH_MAX + 2];
    for (unsigned depth = 0; depth <= JSON_DEPTH_MAX; depth++) {
        for (unsigned i = 0; i < depth; i++) {
            text[i] = '[';
            text[2 * depth - i] = ']';
        }
        text[depth] = '1';
        struct slice whole = {text, 2 * depth + 1};
        struct json_value value;
        struct json_limits limits = {sizeof(text), depth};
        assert_ok(json_parse(whole, &limits, &value));
        if (depth == 0)
            continue;
        limits.depth_max = depth - 1;
        assert_int_equal(json_parse(whole, &limits, &value), STATUS_JSON_TOO_DEEP);
    }
    struct json_limits flat = {100, 1};
    struct json_value value;
    assert_ok(json_parse(SLICE("{}"), &flat, &value));
    assert_int_equal(json_parse(SLICE("{\"a\":{}}"), &flat, &value), STATUS_JSON_TOO_DEEP);
    assert_ok(json_parse(SLICE("{\"a\":1}"), &flat, &value));
    /* Depth is how deep it goes, not how many there are. */
    struct json_limits two = {100, 2};
    assert_ok(json_parse(SLICE("[[],[],{},[],{}]"), &two, &value));
}

static void size_is_bounded(void **state) {
    (void)state;
    struct json_value value;
    struct json_limits limits = {4, 1};
    assert_ok(json_parse(SLICE("1234"), &limits, &value));
    assert_int_equal(json_parse(SLICE("12345"), &limits, &value), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(json_parse(SLICE("1    "), &limits, &value), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(json_read_object(SLICE("{   }"), &limits, NULL, 0), STATUS_PAYLOAD_TOO_LARGE);
    assert_ok(json_read_object(SLICE("{  }"), &limits, NULL, 0));
}

static void fills_the_wanted_fields(void **state) {
    (void)state;
    struct json_field fields[] = {{.name = SLICE("type")},
                                  {.name = SLICE("payload")},
                                  {.name = SLICE("missing"), .present = true}};
    struct slice text = SLICE(" {\"other\":{\"type\":9}, \"payload\" : [1, 2] ,\"type\":\"x\"} ");
    assert_ok(json_read_object(text, &roomy, fields, 3));
    assert_true(fields[0].present && fields[1].present);
    assert_false(fields[2].present);
    assert_slice(fields[0].value.raw, "\"x\"");
    assert_int_equal(fields[0].value.kind, JSON_KIND_STRING);
    assert_slice(fields[1].value.raw, "[1, 2]");
    assert_int_equal(fields[1].value.kind, JSON_KIND_ARRAY);

    struct json_value value;
    assert_ok(json_parse(text, &roomy, &value));
    struct json_field again[] = {{.name = SLICE("payload")}, {.name = SLICE("type")}};
    assert_ok(json_read_members(value, again, 2));
    assert_slice(again[0].value.raw, "[1, 2]");
    assert_slice(again[1].value.raw, "\"x\"");
}

static void matches_escaped_keys_decoded(void **state) {
    (void)state;
    struct json_field fields[] = {
        {.name = SLICE("t\xc3\xa9")}, {.name = SLICE("a\\n")}, {.name = SLICE("")}};
    struct slice text = SLICE("{\"\\u0074\\u00e9\":1,\"a\\n\":2,\"\":3,\"a\\\\n\":4}");
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0)
            assert_ok(json_read_object(text, &roomy, fields, 3));
        else
            assert_ok(json_read_members(valid(text.data), fields, 3));
        assert_slice(fields[0].value.raw, "1");
        assert_slice(fields[1].value.raw, "4");
        assert_slice(fields[2].value.raw, "3");
    }
}

static void a_wanted_key_given_twice_is_refused(void **state) {
    (void)state;
    static const char *const cases[] = {"{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"\\u0061\":3}"};
    struct json_field field = {.name = SLICE("a")};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice text = slice_of(cases[i]);
        assert_int_equal(json_read_object(text, &roomy, &field, 1), STATUS_JSON_DUPLICATE_KEY);
        assert_false(field.present);
        assert_int_equal(json_read_members(valid(cases[i]), &field, 1), STATUS_JSON_DUPLICATE_KEY);
        assert_false(field.present);
    }
    assert_ok(json_read_object(SLICE("{\"b\":1,\"b\":1,\"a\":1}"), &roomy, &field, 1));
}

static void reading_an_object_validates_all_of_it(void **state) {
    (void)state;
    struct json_field field = {.name = SLICE("a")};
    static const struct {
        struct slice text;
        enum status status;
    } cases[] = {
        {SLICE("{\"a\":1,\"b\":01}"), STATUS_INVALID_JSON},
        {SLICE("{\"a\":1} x"), STATUS_INVALID_JSON},
        {SLICE("{\"a\":1,\"b\":\"\xff\"}"), STATUS_INVALID_UTF8},
        {SLICE(""), STATUS_INVALID_JSON},
        {SLICE("[1,"), STATUS_INVALID_JSON},
        {SLICE("[1]"), STATUS_INVALID_REQUEST},
        {SLICE("null"), STATUS_INVALID_REQUEST},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(json_read_object(cases[i].text, &roomy, &field, 1), cases[i].status);
        assert_false(field.present);
    }
    assert_int_equal(json_read_members(valid("[1]"), &field, 1), STATUS_INVALID_REQUEST);
}

static void walks_arrays_and_objects(void **state) {
    (void)state;
    static const char *const elements[] = {
        "1", "\"a,]\\\"\"", "[2,[\"]\"],{}]", "{\"k\":\"}\"}", "null", "-1.5E+3", "true"};
    struct json_iterator iterator = json_iterate(
        valid("[ 1 ,\"a,]\\\"\",[2,[\"]\"],{}] , {\"k\":\"}\"},null,-1.5E+3\n,true ]"));
    struct json_value name, value;
    for (size_t i = 0; i < COUNT(elements); i++) {
        assert_true(json_next_element(&iterator, &value));
        assert_slice(value.raw, elements[i]);
    }
    assert_false(json_next_element(&iterator, &value));
    assert_false(json_next_element(&iterator, &value));

    iterator = json_iterate(valid("{ \"a\" : 1 ,\"\\\\\":{\"c\":[{}]}}"));
    assert_true(json_next_member(&iterator, &name, &value));
    assert_slice(name.raw, "\"a\"");
    assert_slice(value.raw, "1");
    assert_true(json_next_member(&iterator, &name, &value));
    assert_slice(name.raw, "\"\\\\\"");
    assert_slice(value.raw, "{\"c\":[{}]}");
    assert_int_equal(value.kind, JSON_KIND_OBJECT);
    assert_false(json_next_member(&iterator, &name, &value));

    iterator = json_iterate(valid("[ ]"));
    assert_false(json_next_element(&iterator, &value));
    iterator = json_iterate(valid("{}"));
    assert_false(json_next_member(&iterator, &name, &value));
}

static void decodes_strings(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 100);
    assert_ok(json_string_decode(
        valid("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20AC\\ud83d\\ude80z\""), &out));
    assert_slice(buffer_slice(&out), "a\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x80z");
    buffer_clear(&out);
    assert_ok(json_string_decode(valid("\"\\u0000\\uffff\\udbff\\udfff\""), &out));
    assert_int_equal(out.size, 8);
    assert_memory_equal(out.data, "\0\xef\xbf\xbf\xf4\x8f\xbf\xbf", 8);
    assert_ok(json_string_decode(valid("\"\""), &out));
    assert_int_equal(out.size, 8);
    assert_int_equal(json_string_decode(valid("1"), &out), STATUS_INVALID_REQUEST);
    buffer_release(&out);

    buffer_init(&out, 3);
    assert_ok(buffer_append_byte(&out, 'x'));
    assert_int_equal(json_string_decode(valid("\"a\\nb\""), &out), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&out), "x");
    assert_ok(json_string_decode(valid("\"\\u0061\\n\""), &out));
    assert_slice(buffer_slice(&out), "xa\n");
    buffer_release(&out);
}

static void hands_out_plain_strings_as_they_stand(void **state) {
    (void)state;
    struct slice text;
    assert_true(json_string_slice(valid("\"plain \xc3\xa9\""), &text));
    assert_slice(text, "plain \xc3\xa9");
    assert_true(json_string_slice(valid("\"\""), &text));
    assert_int_equal(text.size, 0);
    assert_false(json_string_slice(valid("\"a\\n\""), &text));
    assert_false(json_string_slice(valid("12"), &text));
    assert_true(json_string_is(valid("\"a\\u0062c\""), SLICE("abc")));
    assert_false(json_string_is(valid("\"a\\u0062c\""), SLICE("ab")));
    assert_false(json_string_is(valid("\"a\\u0062\""), SLICE("abc")));
    assert_false(json_string_is(valid("\"\\ud83d\\ude80\""), SLICE("\xf0\x9f\x9a")));
    assert_false(json_string_is(valid("true"), SLICE("true")));
}

static void reads_plain_integers_up_to_a_maximum(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t max;
        bool plain;
        uint64_t number;
    } cases[] = {
        {"0", 0, true, 0},
        {"1", 0, false, 0},
        {"3", 5, true, 3},
        {"9", 5, false, 0},
        {"5", 5, true, 5},
        {"6", 5, false, 0},
        {"10", 5, false, 0},
        {"9007199254740991", JSON_INTEGER_MAX, true, JSON_INTEGER_MAX},
        {"9007199254740992", JSON_INTEGER_MAX, false, 0},
        {"18446744073709551615", UINT64_MAX, true, UINT64_MAX},
        {"18446744073709551616", UINT64_MAX, false, 0},
        {"99999999999999999999999", UINT64_MAX, false, 0},
        {"-1", 5, false, 0},
        {"-0", 5, false, 0},
        {"1.0", 5, false, 0},
        {"1e0", 5, false, 0},
        {"\"1\"", 5, false, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t number = 77;
        assert_int_equal(json_u64(valid(cases[i].text), cases[i].max, &number), cases[i].plain);
        assert_int_equal(number, cases[i].plain ? cases[i].number : 77);
    }
}

static void reads_booleans(void **state) {
    (void)state;
    bool flag = false;
    assert_true(json_bool(valid("true"), &flag));
    assert_true(flag);
    assert_true(json_bool(valid("false"), &flag));
    assert_false(flag);
    assert_false(json_bool(valid("null"), &flag));
    assert_false(json_bool(valid("1"), &flag));
}

static void writes_strings_with_the_fewest_escapes(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 1000);
    assert_ok(json_write_string(
        &out, SLICE("a/b \"\\\b\f\n\r\t\0\x01\x1f\x7f\xc3\xa9 longer than a word")));
    assert_slice(
        buffer_slice(&out),
        "\"a/b \\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u0001\\u001f\x7f\xc3\xa9 longer than a word\"");
    buffer_clear(&out);
    assert_ok(json_write_string(&out, (struct slice){NULL, 0}));
    assert_slice(buffer_slice(&out), "\"\"");
    buffer_release(&out);

    for (size_t size_max = 1; size_max < 9; size_max++) {
        buffer_init(&out, size_max);
        assert_int_equal(json_write_string(&out, SLICE("ab\x02")), STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(out.size, 0);
        buffer_release(&out);
    }
}

static void a_written_string_decodes_to_itself(void **state) {
    (void)state;
    uint64_t seed = 11;
    struct buffer out, back;
    buffer_init(&out, 1000);
    buffer_init(&back, 1000);
    for (int round = 0; round < 20000; round++) {
        char text[40];
        size_t size = test_random(&seed) % sizeof(text);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)(test_random(&seed) & 0x7f);
        buffer_clear(&out);
        buffer_clear(&back);
        assert_ok(json_write_string(&out, (struct slice){text, size}));
        struct json_value value;
        assert_ok(json_parse(buffer_slice(&out), &roomy, &value));
        assert_ok(json_string_decode(value, &back));
        assert_true(slice_equal(buffer_slice(&back), (struct slice){text, size}));
    }
    buffer_release(&out);
    buffer_release(&back);
}

/* Every piece size gives the same values, and none of them before it is complete. */
static void scans_values_that_arrive_in_pieces(void **state) {
    (void)state;
    struct slice text = SLICE(" {\"a\":\"}\\\"\\\\\",\"b\":[1,{}]} \"s\\\"\" 12 ,");
    static const char *const raws[] = {"{\"a\":\"}\\\"\\\\\",\"b\":[1,{}]}", "\"s\\\"\"", "12"};
    for (size_t piece = 1; piece <= text.size; piece++) {
        struct json_scan scan = {0};
        size_t begin = 0, index = 0;
        for (size_t cut = 0; cut < text.size + piece && index < COUNT(raws); cut += piece) {
            struct json_value value;
            size_t used = 1;
            while (index < COUNT(raws)) {
                size_t end = cut < text.size ? cut : text.size;
                struct slice seen = {text.data + begin, end - begin};
                assert_ok(json_scan(&scan, seen, &roomy, &value, &used));
                if (used == 0)
                    break;
                assert_slice(value.raw, raws[index]);
                index++;
                begin += used;
            }
        }
        assert_int_equal(index, COUNT(raws));
        assert_int_equal(begin, strlen(" {\"a\":\"}\\\"\\\\\",\"b\":[1,{}]} \"s\\\"\" 12"));
    }
}

static void a_value_ends_where_the_next_thing_begins(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum status status;
        size_t used;
    } cases[] = {
        {"", STATUS_OK, 0},
        {"  ", STATUS_OK, 0},
        {"12", STATUS_OK, 0},
        {"12,", STATUS_OK, 2},
        {"12]", STATUS_OK, 2},
        {" 12}", STATUS_OK, 3},
        {"12\n", STATUS_OK, 2},
        {"12[", STATUS_OK, 2},
        {"12\"", STATUS_OK, 2},
        {"tru", STATUS_OK, 0},
        {"true:", STATUS_OK, 4},
        {"\"a\"", STATUS_OK, 3},
        {"\"a\\", STATUS_OK, 0},
        {"\"a\\\"", STATUS_OK, 0},
        {"[]", STATUS_OK, 2},
        {"[[]", STATUS_OK, 0},
        {"{}x", STATUS_OK, 2},
        {",", STATUS_INVALID_JSON, 0},
        {"]", STATUS_INVALID_JSON, 0},
        {" }", STATUS_INVALID_JSON, 0},
        {"[}", STATUS_INVALID_JSON, 0},
        {"01,", STATUS_INVALID_JSON, 0},
        {"\"\xff\"", STATUS_INVALID_UTF8, 0},
        {"[[[", STATUS_JSON_TOO_DEEP, 0},
        {"12345678901", STATUS_PAYLOAD_TOO_LARGE, 0},
        {"\"12345678\"", STATUS_OK, 10},
        {"\"123456789\"", STATUS_PAYLOAD_TOO_LARGE, 0},
        {"           1", STATUS_PAYLOAD_TOO_LARGE, 0},
        {"1234567890,1,1,1", STATUS_OK, 10},
    };
    struct json_limits limits = {10, 2};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct json_scan scan = {0};
        struct json_value value;
        size_t used = 99;
        struct slice text = slice_of(cases[i].text);
        assert_int_equal(json_scan(&scan, text, &limits, &value, &used), cases[i].status);
        assert_int_equal(used, cases[i].used);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_every_form_of_value),
        cmocka_unit_test(refuses_invalid_json),
        cmocka_unit_test(refuses_lone_surrogates),
        cmocka_unit_test(refuses_strings_that_are_not_utf8),
        cmocka_unit_test(sees_a_special_byte_at_every_place),
        cmocka_unit_test(every_cut_of_a_text_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(size_is_bounded),
        cmocka_unit_test(fills_the_wanted_fields),
        cmocka_unit_test(matches_escaped_keys_decoded),
        cmocka_unit_test(a_wanted_key_given_twice_is_refused),
        cmocka_unit_test(reading_an_object_validates_all_of_it),
        cmocka_unit_test(walks_arrays_and_objects),
        cmocka_unit_test(decodes_strings),
        cmocka_unit_test(hands_out_plain_strings_as_they_stand),
        cmocka_unit_test(reads_plain_integers_up_to_a_maximum),
        cmocka_unit_test(reads_booleans),
        cmocka_unit_test(writes_strings_with_the_fewest_escapes),
        cmocka_unit_test(a_written_string_decodes_to_itself),
        cmocka_unit_test(scans_values_that_arrive_in_pieces),
        cmocka_unit_test(a_value_ends_where_the_next_thing_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
