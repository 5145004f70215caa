#include <jansson.h>
#include <locale.h>

#include "test.h"
#include "wire/canonical.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define BYTES_MAX    (1 << 20)

static const struct json_limits roomy = {BYTES_MAX, JSON_DEPTH_MAX};

struct fixture {
    struct canonical_scratch scratch;
    struct buffer out;
};

static int setup(void **state) {
    struct fixture *fixture = malloc(sizeof(*fixture));
    assert_non_null(fixture);
    canonical_scratch_init(&fixture->scratch, BYTES_MAX);
    buffer_init(&fixture->out, BYTES_MAX);
    *state = fixture;
    return 0;
}

static int teardown(void **state) {
    struct fixture *fixture = *state;
    canonical_scratch_release(&fixture->scratch);
    buffer_release(&fixture->out);
    free(fixture);
    return 0;
}

static struct json_value valid(struct slice text) {
    struct json_value value;
    assert_ok(json_parse(text, &roomy, &value));
    return value;
}

/* The canonical text, replacing what the fixture held. */
static enum status canonical(struct fixture *fixture, struct slice text) {
    buffer_clear(&fixture->out);
    return canonical_write(valid(text), &fixture->scratch, &fixture->out);
}

static void assert_canonical(struct fixture *fixture, const char *text, const char *expected) {
    assert_ok(canonical(fixture, slice_of(text)));
    assert_slice(buffer_slice(&fixture->out), expected);
    assert_ok(canonical(fixture, slice_of(expected)));
    assert_slice(buffer_slice(&fixture->out), expected);
}

static void gives_the_published_vectors(void **state) {
    struct fixture *fixture = *state;
    json_t *file = json_load_file(SPEC_DIR "/vectors/payload_hash.json", 0, NULL);
    json_t *vectors = json_object_get(file, "vectors");
    assert_true(json_array_size(vectors) > 0);
    size_t index;
    json_t *vector;
    json_array_foreach(vectors, index, vector) {
        char *text = json_dumps(json_object_get(vector, "payload"), JSON_ENCODE_ANY);
        const char *expected = json_string_value(json_object_get(vector, "canonical_json"));
        assert_canonical(fixture, text, expected);
        struct payload_hash hash;
        assert_ok(payload_hash(valid(slice_of(text)), &fixture->scratch, &hash));
        assert_string_equal(hash.text, json_string_value(json_object_get(vector, "sha256")));
        assert_slice(buffer_slice(&fixture->scratch.text), expected);
        uint8_t digest[SHA256_BYTES];
        sha256(expected, strlen(expected), digest);
        assert_memory_equal(hash.digest, digest, SHA256_BYTES);
        free(text);
    }
    json_decref(file);
}

static void sorts_keys_by_code_point_at_every_depth(void **state) {
    static const char *const cases[][2] = {
        {"{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}"},
        {"{ \"a\" : 1 , \"b\" : [ ] }", "{\"a\":1,\"b\":[]}"},
        {"[{\"b\":{\"d\":1,\"c\":{\"z\":0,\"y\":0}},\"a\":2}]",
         "[{\"a\":2,\"b\":{\"c\":{\"y\":0,\"z\":0},\"d\":1}}]"},
        {"{\"abc\":1,\"ab\":2,\"\":3,\"b\":4}", "{\"\":3,\"ab\":2,\"abc\":1,\"b\":4}"},
        /* U+FFFF comes before U+10000, though not in UTF-16. */
        {"{\"\xf0\x90\x80\x80\":1,\"\xef\xbf\xbf\":2,\"\xc3\xa9\":3,\"z\":4}",
         "{\"z\":4,\"\xc3\xa9\":3,\"\xef\xbf\xbf\":2,\"\xf0\x90\x80\x80\":1}"},
        /* Escaped keys sort by what they stand for, not by their backslash. */
        {"{\"a\":1,\"\\n\":2,\"\\\"\":3,\"!\":4,\"\\\\\":5,\"\\u0062\":6,\"#\":7,\"\\u0000\":8}",
         "{\"\\u0000\":8,\"\\n\":2,\"!\":4,\"\\\"\":3,\"#\":7,\"\\\\\":5,\"a\":1,\"b\":6}"},
        {"{\"x\\u001f\":1,\"x\\u000b\":2,\"x\\t\":3,\"x\":4,\"x\\u000f\":5,\"x \":6,\"x\\r\":7,"
         "\"x\\f\":8,\"x\\b\":9}",
         "{\"x\":4,\"x\\b\":9,\"x\\t\":3,\"x\\u000b\":2,\"x\\f\":8,\"x\\r\":7,\"x\\u000f\":5,"
         "\"x\\u001f\":1,\"x \":6}"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_canonical(*state, cases[i][0], cases[i][1]);
}

static void escapes_as_little_as_possible(void **state) {
    assert_canonical(*state,
                     "\"\\/\\u0041\\u00e9\\ud83d\\ude80\\u0008\\u001F\\u0022\\u005c\\u007f\"",
                     "\"/A\xc3\xa9\xf0\x9f\x9a\x80\\b\\u001f\\\"\\\\\x7f\"");
    assert_canonical(*state, " \"plain\" ", "\"plain\"");
}

static void writes_numbers(void **state) {
    static const char *const cases[][2] = {
        {"0", "0"},
        {"-0", "0"},
        {"-1", "-1"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"1.0", "1"},
        {"-1.50", "-1.5"},
        {"1e2", "100"},
        {"1E+2", "100"},
        {"-0.0", "0"},
        {"0e5", "0"},
        {"-0e-5", "0"},
        {"0.000e999999999999999999999", "0"},
        {"1e20", "100000000000000000000"},
        {"1e21", "1e+21"},
        {"123456789012345680000.0", "123456789012345680000"},
        {"1234567890123456800000.0", "1.2345678901234568e+21"},
        {"1e-6", "0.000001"},
        {"1e-7", "1e-7"},
        {"1.5e-7", "1.5e-7"},
        {"0.00000123", "0.00000123"},
        {"0.1", "0.1"},
        {"100.10", "100.1"},
        {"0.1000000000000000055511151231257827021181583404541015625", "0.1"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"0.299999999999999988897769753748434595763683319091796875", "0.3"},
        /* 2^-44 and 2^-1074: the shortest digits are not the nearest of their length. */
        {"5.6843418860808015e-14", "5.684341886080802e-14"},
        {"4.9406564584124654e-324", "5e-324"},
        {"5e-324", "5e-324"},
        {"3e-324", "5e-324"},
        {"2e-324", "0"},
        {"-1e-400", "0"},
        {"1e-999999999999999999999999", "0"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"2.225073858507201e-308", "2.225073858507201e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"1.7976931348623158e308", "1.7976931348623157e+308"},
        {"9007199254740993.0", "9007199254740992"},
        {"9007199254740993.00000000000000000000000000000000000000000001", "9007199254740994"},
        {"9.5367431640625e-7", "9.5367431640625e-7"},
        {"9.999999999999999999e22", "1e+23"},
        {"1e23", "1e+23"},
        {"1e308", "1e+308"},
        {"0.000000000000000000000000000000001e33", "1"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_canonical(*state, cases[i][0], cases[i][1]);
}

static void refuses_numbers_beyond_a_double(void **state) {
    static const char *const cases[] = {"1E400", "-1e309", "1.7976931348623159e308",
                                        "[{\"a\":1e999999999999999999999}]",
                                        "123.4e99999999999999999999"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture *fixture = *state;
        assert_int_equal(canonical(fixture, slice_of(cases[i])), STATUS_JSON_NUMBER_OUT_OF_RANGE);
        assert_int_equal(fixture->out.size, 0);
    }
}

/* Digits past those kept still decide a tie, and a far-off point still counts. */
static void reads_very_long_literals(void **state) {
    struct fixture *fixture = *state;
    char *text = malloc(5000);
    assert_non_null(text);
    int size = sprintf(text, "9007199254740993.%04000d1", 0);
    assert_ok(canonical(fixture, (struct slice){text, (size_t)size}));
    assert_slice(buffer_slice(&fixture->out), "9007199254740994");
    size = sprintf(text, "9007199254740993.%04000d", 0);
    assert_ok(canonical(fixture, (struct slice){text, (size_t)size}));
    assert_slice(buffer_slice(&fixture->out), "9007199254740992");
    size = sprintf(text, "0.%04000d25e4000", 0);
    assert_ok(canonical(fixture, (struct slice){text, (size_t)size}));
    assert_slice(buffer_slice(&fixture->out), "0.25");
    size = sprintf(text, "1%04000d.5e-4000", 0);
    assert_ok(canonical(fixture, (struct slice){text, (size_t)size}));
    assert_slice(buffer_slice(&fixture->out), "1");
    free(text);
}

/* The digits read back as the double, and no fewer do. */
static void assert_shortest(struct fixture *fixture, double number) {
    char text[40], shorter[40];
    snprintf(text, sizeof(text), "%.17e", number);
    assert_ok(canonical(fixture, slice_of(text)));
    assert_ok(buffer_append_byte(&fixture->out, '\0'));
    assert_true(strtod(fixture->out.data, NULL) == number);
    int digits = 0, zeros = 0;
    for (const char *at = fixture->out.data; *at && *at != 'e'; at++) {
        if (*at == '.' || *at == '-' || (digits == 0 && *at == '0'))
            continue;
        digits++;
        zeros = *at == '0' ? zeros + 1 : 0;
    }
    digits -= zeros;
    assert_in_range(digits, 1, 17);
    if (digits == 1)
        return;
    snprintf(shorter, sizeof(shorter), "%.*e", digits - 2, number);
    assert_true(strtod(shorter, NULL) != number);
}

static void doubles_get_their_shortest_digits(void **state) {
    double power = 5e-324;
    for (int exponent = -1074; exponent <= 1023; exponent++, power *= 2)
        assert_shortest(*state, power);
    uint64_t seed = 3;
    for (int round = 0; round < 20000; round++) {
        uint64_t bits = test_random(&seed);
        double number;
        memcpy(&number, &bits, sizeof(number));
        if (number - number == 0 && number != 0)
            assert_shortest(*state, number);
    }
}

static void refuses_duplicate_keys_at_any_depth(void **state) {
    static const char *const cases[] = {
        "{\"a\":1,\"a\":1}",
        "{\"b\":1,\"a\":1,\"b\":1}",
        "{\"c\":1,\"b\":1,\"a\":1,\"c\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"z\":1,\"\\n\":1,\"\\u000a\":2}",
        "[1,{\"x\":{\"y\":[{\"q\":1,\"q\":2}]}}]",
        "{\"\":1,\"\":2}",
    };
    struct fixture *fixture = *state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        buffer_clear(&fixture->out);
        assert_ok(buffer_append(&fixture->out, "kept", 4));
        assert_int_equal(
            canonical_write(valid(slice_of(cases[i])), &fixture->scratch, &fixture->out),
            STATUS_JSON_DUPLICATE_KEY);
        assert_slice(buffer_slice(&fixture->out), "kept");
    }
    assert_canonical(fixture, "{\"a\":{\"a\":{\"a\":1}}}", "{\"a\":{\"a\":{\"a\":1}}}");
}

static void appends_behind_what_is_there(void **state) {
    struct fixture *fixture = *state;
    assert_ok(buffer_append(&fixture->out, "x", 1));
    struct json_value value = valid(SLICE("{\"b\":{\"d\":1,\"c\":2},\"a\":3}"));
    assert_ok(canonical_write(value, &fixture->scratch, &fixture->out));
    assert_slice(buffer_slice(&fixture->out), "x{\"a\":3,\"b\":{\"c\":2,\"d\":1}}");
}

static void too_little_room_is_refused_and_changes_nothing(void **state) {
    struct fixture *fixture = *state;
    struct json_value value = valid(SLICE("{\"b\":[1e20,\"\\n\"],\"a\":3}"));
    assert_ok(canonical_write(value, &fixture->scratch, &fixture->out));
    for (size_t room = 1; room <= fixture->out.size; room++) {
        struct buffer small;
        buffer_init(&small, room);
        assert_int_equal(canonical_write(value, &fixture->scratch, &small),
                         room < fixture->out.size ? STATUS_PAYLOAD_TOO_LARGE : STATUS_OK);
        assert_int_equal(small.size, room < fixture->out.size ? 0 : room);
        buffer_release(&small);
    }
    for (size_t room = 1; room <= 60; room++) {
        struct canonical_scratch scratch;
        canonical_scratch_init(&scratch, 100);
        scratch.members.size_max = room & BUFFER_SIZE_MAX;
        struct buffer out;
        buffer_init(&out, 1000);
        enum status status = canonical_write(value, &scratch, &out);
        assert_true(status == STATUS_OK || status == STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(out.size, status == STATUS_OK ? fixture->out.size : 0);
        assert_true(room > 16 || status != STATUS_OK);
        buffer_release(&out);
        canonical_scratch_release(&scratch);
    }
}

/* The shapes that need the most room for their size fit into a scratch made for that size. */
static void a_scratch_has_room_for_any_value_of_its_size(void **state) {
    (void)state;
    static const char *const items[] = {"1e20", "\"\":1e20", "\"b\":[1e20,1e20]", "\"b\":0"};
    for (size_t item = 0; item < COUNT(items); item++) {
        struct buffer text;
        buffer_init(&text, 100000);
        bool member = items[item][0] == '"';
        assert_ok(buffer_append_byte(&text, member ? '{' : '['));
        for (unsigned i = 0; i < (member ? 600u : 1u); i++) {
            /* Three-letter keys in falling order, so that the object has to be sorted. */
            if (member)
                assert_ok(buffer_printf(&text, "%s\"%c%c\"%s", i ? "," : "", 'z' - (int)(i / 26),
                                        'z' - (int)(i % 26), strchr(items[item], ':')));
            else
                assert_ok(buffer_printf(&text, "%s", items[item]));
        }
        assert_ok(buffer_append_byte(&text, member ? '}' : ']'));
        struct canonical_scratch scratch;
        canonical_scratch_init(&scratch, text.size);
        struct payload_hash hash;
        assert_ok(payload_hash(valid(buffer_slice(&text)), &scratch, &hash));
        canonical_scratch_release(&scratch);
        buffer_release(&text);
    }
}

/* Half a million bytes of keys in falling order, with a shared prefix, are sorted at once;
 * a quadratic sort would need minutes. */
static void hostile_orders_are_sorted_quickly(void **state) {
    struct fixture *fixture = *state;
    struct buffer text;
    buffer_init(&text, BYTES_MAX);
    assert_ok(buffer_append_byte(&text, '{'));
    for (int i = 49999; i >= 0; i--)
        assert_ok(buffer_printf(&text, "\"k%05d\":0%s", i, i ? "," : "}"));
    assert_ok(canonical(fixture, buffer_slice(&text)));
    assert_int_equal(fixture->out.size, text.size);
    for (int i = 0; i < 50000; i++) {
        char member[16];
        snprintf(member, sizeof(member), "\"k%05d\":0", i);
        assert_memory_equal(fixture->out.data + 1 + i * 11, member, 10);
    }
    buffer_release(&text);
}

static void nests_as_deep_as_json_may(void **state) {
    struct fixture *fixture = *state;
    struct buffer text;
    buffer_init(&text, 10000);
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        assert_ok(buffer_append_slice(&text, SLICE("{\"b\":")));
    assert_ok(buffer_append_byte(&text, '1'));
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        assert_ok(buffer_append_slice(&text, SLICE(",\"a\":2}")));
    assert_ok(canonical(fixture, buffer_slice(&text)));
    assert_int_equal(fixture->out.size, text.size);
    assert_true(slice_starts(buffer_slice(&fixture->out), SLICE("{\"a\":2,\"b\":{\"a\":2,")));
    buffer_release(&text);
}

static void a_locale_with_a_decimal_comma_changes_nothing(void **state) {
    /* Where no such locale is installed this only repeats the plain case. */
    const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C"};
    for (size_t i = 0; i < COUNT(names); i++) {
        setlocale(LC_NUMERIC, names[i]);
        assert_canonical(*state, "[0.30000000000000004,1.5]", "[0.30000000000000004,1.5]");
    }
}

/* The second implementation, for comparison: a tree, and keys sorted by strcmp. */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void tree_string(struct buffer *out, const char *text, size_t size) {
    assert_ok(buffer_append_byte(out, '"'));
    for (size_t i = 0; i < size; i++) {
        const char *place = text[i] ? strchr("\"\"\\\\\bb\ff\nn\rr\tt", text[i]) : NULL;
        if (place && ((unsigned char)text[i] < 0x20 || text[i] == '"' || text[i] == '\\'))
            assert_ok(buffer_printf(out, "\\%c", place[1]));
        else if ((unsigned char)text[i] < 0x20)
            assert_ok(buffer_printf(out, "\\u%04x", (unsigned)text[i]));
        else
            assert_ok(buffer_append_byte(out, text[i]));
    }
    assert_ok(buffer_append_byte(out, '"'));
}

static void tree_write(struct buffer *out, const json_t *tree);

static void tree_object(struct buffer *out, const json_t *tree) {
    const char *keys[64];
    size_t count = 0;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)tree, key, member) {
        assert_true(count < COUNT(keys));
        keys[count++] = key;
    }
    qsort(keys, count, sizeof(keys[0]), by_text);
    assert_ok(buffer_append_byte(out, '{'));
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            assert_ok(buffer_append_byte(out, ','));
        tree_string(out, keys[i], strlen(keys[i]));
        assert_ok(buffer_append_byte(out, ':'));
        tree_write(out, json_object_get(tree, keys[i]));
    }
    assert_ok(buffer_append_byte(out, '}'));
}

static void tree_write(struct buffer *out, const json_t *tree) {
    if (json_is_object(tree)) {
        tree_object(out, tree);
    } else if (json_is_array(tree)) {
        assert_ok(buffer_append_byte(out, '['));
        for (size_t i = 0; i < json_array_size(tree); i++) {
            if (i > 0)
                assert_ok(buffer_append_byte(out, ','));
            tree_write(out, json_array_get(tree, i));
        }
        assert_ok(buffer_append_byte(out, ']'));
    } else if (json_is_string(tree)) {
        tree_string(out, json_string_value(tree), json_string_length(tree));
    } else if (json_is_integer(tree)) {
        assert_ok(buffer_printf(out, "%lld", (long long)json_integer_value(tree)));
    } else {
        assert_ok(buffer_printf(out, "%s",
                                json_is_null(tree)   ? "null"
                                : json_is_true(tree) ? "true"
                                                     : "false"));
    }
}

static void random_space(struct buffer *out, uint64_t *seed) {
    while (test_random(seed) % 8 == 0)
        assert_ok(buffer_append_byte(out, " \n\r\t"[test_random(seed) % 4]));
}

/* Few letters, so that keys repeat, share prefixes, and come escaped in many ways. */
static void random_string(struct buffer *out, uint64_t *seed, bool nul) {
    static const char *const parts[] = {"a",
                                        "b",
                                        "b",
                                        "Z",
                                        "9",
                                        "!",
                                        "#",
                                        "/",
                                        "\\/",
                                        "\\\"",
                                        "\\\\",
                                        "\\n",
                                        "\\t",
                                        "\\b",
                                        "\\r",
                                        "\\f",
                                        "\\u0001",
                                        "\\u001F",
                                        "\\u0061",
                                        "\\u00e9",
                                        "\xc3\xa9",
                                        "\xef\xbf\xbf",
                                        "\xf0\x9f\x9a\x80",
                                        "\\ud83d\\ude80",
                                        "plain text",
                                        "\x7f",
                                        "\\u0000"};
    assert_ok(buffer_append_byte(out, '"'));
    for (uint64_t count = test_random(seed) % 4; count > 0; count--)
        assert_ok(buffer_append_slice(
            out, slice_of(parts[test_random(seed) % (COUNT(parts) - (nul ? 0 : 1))])));
    assert_ok(buffer_append_byte(out, '"'));
}

static void random_value(struct buffer *out, uint64_t *seed, unsigned depth) {
    random_space(out, seed);
    uint64_t kind = test_random(seed) % (depth > 0 ? 10 : 6);
    if (kind < 2) {
        int64_t number = (int64_t)(test_random(seed) >> test_random(seed) % 64);
        assert_ok(buffer_printf(out, "%lld", (long long)number));
    } else if (kind < 4) {
        random_string(out, seed, true);
    } else if (kind < 6) {
        static const char *const literals[] = {"null", "true", "false", "-0"};
        assert_ok(buffer_append_slice(out, slice_of(literals[test_random(seed) % 4])));
    } else {
        bool object = kind < 9;
        assert_ok(buffer_append_byte(out, object ? '{' : '['));
        for (uint64_t count = test_random(seed) % 6; count > 0; count--) {
            if (object) {
                random_space(out, seed);
                random_string(out, seed, false);
                random_space(out, seed);
                assert_ok(buffer_append_byte(out, ':'));
            }
            random_value(out, seed, depth - 1);
            if (count > 1)
                assert_ok(buffer_append_byte(out, ','));
        }
        random_space(out, seed);
        assert_ok(buffer_append_byte(out, object ? '}' : ']'));
    }
    random_space(out, seed);
}

static void agrees_with_a_second_implementation(void **state) {
    struct fixture *fixture = *state;
    struct buffer text, expected;
    buffer_init(&text, BYTES_MAX);
    buffer_init(&expected, BYTES_MAX);
    uint64_t seed = 20;
    unsigned compared = 0, duplicates = 0;
    for (int round = 0; round < 200000; round++) {
        buffer_clear(&text);
        buffer_clear(&expected);
        random_value(&text, &seed, 3);
        json_error_t error;
        json_t *tree =
            json_loadb(text.data, text.size,
                       JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
        enum status status = canonical(fixture, buffer_slice(&text));
        if (!tree) {
            assert_int_equal(json_error_code(&error), json_error_duplicate_key);
            assert_int_equal(status, STATUS_JSON_DUPLICATE_KEY);
            duplicates++;
            continue;
        }
        assert_ok(status);
        tree_write(&expected, tree);
        assert_true(slice_equal(buffer_slice(&fixture->out), buffer_slice(&expected)));
        assert_ok(canonical(fixture, buffer_slice(&expected)));
        assert_true(slice_equal(buffer_slice(&fixture->out), buffer_slice(&expected)));
        json_decref(tree);
        compared++;
    }
    assert_true(compared > 100000 && duplicates > 1000);
    buffer_release(&text);
    buffer_release(&expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(gives_the_published_vectors),
        TEST(sorts_keys_by_code_point_at_every_depth),
        TEST(escapes_as_little_as_possible),
        TEST(writes_numbers),
        TEST(refuses_numbers_beyond_a_double),
        TEST(reads_very_long_literals),
        TEST(doubles_get_their_shortest_digits),
        TEST(refuses_duplicate_keys_at_any_depth),
        TEST(appends_behind_what_is_there),
        TEST(too_little_room_is_refused_and_changes_nothing),
        TEST(a_scratch_has_room_for_any_value_of_its_size),
        TEST(hostile_orders_are_sorted_quickly),
        TEST(nests_as_deep_as_json_may),
        TEST(a_locale_with_a_decimal_comma_changes_nothing),
        TEST(agrees_with_a_second_implementation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
