#include "wire/json_items.h"

#include "test.h"

#define TRANSCRIPT_MAX 65536

static const struct json_limits limits = {64, 8};

/* Every item of a text that arrives in pieces of one size, written down: "v:1" a value, "bad:…",
 * "broken:…" and "end". */
static void transcript(enum json_items_format format, struct slice text, size_t piece_size,
                       char out[TRANSCRIPT_MAX]) {
    struct json_items items;
    struct json_item item;
    size_t size = 0;
    bool over = false;
    json_items_init(&items, format, &limits);
    for (size_t at = 0; at < text.size; at += piece_size) {
        size_t rest = text.size - at;
        /* An exact allocation, so that a read past the piece is seen. */
        size_t piece_bytes = rest < piece_size ? rest : piece_size;
        char *piece = malloc(piece_bytes);
        memcpy(piece, text.data + at, piece_bytes);
        struct slice input = {piece, piece_bytes};
        while (!over && (item = json_items_next(&items, &input)).kind != JSON_ITEM_MORE) {
            over = item.kind == JSON_ITEM_BROKEN;
            if (item.kind == JSON_ITEM_VALUE)
                size += (size_t)snprintf(out + size, TRANSCRIPT_MAX - size, "v:%.*s ",
                                         (int)item.value.raw.size, item.value.raw.data);
            else
                size += (size_t)snprintf(out + size, TRANSCRIPT_MAX - size, "%s:%s ",
                                         over ? "broken" : "bad", status_code(item.status));
        }
        if (!over)
            assert_int_equal(input.size, 0);
        free(piece);
    }
    while (!over && (item = json_items_finish(&items)).kind != JSON_ITEM_END) {
        over = item.kind == JSON_ITEM_BROKEN;
        if (item.kind == JSON_ITEM_VALUE)
            size += (size_t)snprintf(out + size, TRANSCRIPT_MAX - size, "v:%.*s ",
                                     (int)item.value.raw.size, item.value.raw.data);
        else
            size += (size_t)snprintf(out + size, TRANSCRIPT_MAX - size, "%s:%s ",
                                     over ? "broken" : "bad", status_code(item.status));
    }
    snprintf(out + size, TRANSCRIPT_MAX - size, over ? "" : "end");
    json_items_release(&items);
}

/* The same in one piece and in pieces of every small size. */
static void check(enum json_items_format format, const char *text, const char *expected) {
    char out[TRANSCRIPT_MAX];
    size_t size = strlen(text);
    for (size_t piece_size = 1; piece_size <= size + 1; piece_size++) {
        out[0] = '\0';
        transcript(format, slice_of(text), piece_size, out);
        if (strcmp(out, expected) != 0)
            fail_msg("'%s' in pieces of %zu: '%s', not '%s'", text, piece_size, out, expected);
    }
    if (size == 0) {
        transcript(format, slice_of(text), 1, out);
        assert_string_equal(out, expected);
    }
}

static void a_line_is_an_item(void **state) {
    (void)state;
    check(JSON_ITEMS_LINES, "", "end");
    check(JSON_ITEMS_LINES, "1\n2\n", "v:1 v:2 end");
    check(JSON_ITEMS_LINES, "1\n2", "v:1 v:2 end");
    check(JSON_ITEMS_LINES, "{\"a\":[1,2]}\r\n \"x\" \r\n", "v:{\"a\":[1,2]} v:\"x\" end");
}

static void blank_lines_are_no_items(void **state) {
    (void)state;
    check(JSON_ITEMS_LINES, "\n\n  \n\t\r\n1\n\n", "v:1 end");
    check(JSON_ITEMS_LINES, " ", "end");
}

static void a_bad_line_is_one_bad_item(void **state) {
    (void)state;
    check(JSON_ITEMS_LINES, "{\n1\n1 2\n[\"\xff\"]\n3",
          "bad:invalid_json v:1 bad:invalid_json bad:invalid_utf8 v:3 end");
    check(JSON_ITEMS_LINES, "[[[[[[[[[]]]]]]]]]\n1\n", "bad:json_too_deep v:1 end");
    check(JSON_ITEMS_LINES, "1\n{", "v:1 bad:invalid_json end");
}

static void a_line_may_be_as_long_as_the_limit_and_no_longer(void **state) {
    (void)state;
    char text[200], expected[200];
    for (int size = 63; size <= 66; size++) {
        snprintf(text, sizeof(text), "\"%0*d\"\n1\n", size - 2, 7);
        if (size <= 64)
            snprintf(expected, sizeof(expected), "v:\"%0*d\" v:1 end", size - 2, 7);
        else
            snprintf(expected, sizeof(expected), "bad:payload_too_large v:1 end");
        check(JSON_ITEMS_LINES, text, expected);
        text[size] = '\0';
        if (size > 64)
            check(JSON_ITEMS_LINES, text, "bad:payload_too_large end");
    }
}

static void an_element_is_an_item(void **state) {
    (void)state;
    check(JSON_ITEMS_ARRAY, "[]", "end");
    check(JSON_ITEMS_ARRAY, " \n[ \t] \r\n", "end");
    check(JSON_ITEMS_ARRAY, "[1]", "v:1 end");
    check(JSON_ITEMS_ARRAY, "[1,2 , \"a,]b\",{\"x\":[1,{}]},[],null]",
          "v:1 v:2 v:\"a,]b\" v:{\"x\":[1,{}]} v:[] v:null end");
}

static void an_array_that_is_wrong_breaks_off_behind_what_was_right(void **state) {
    (void)state;
    check(JSON_ITEMS_ARRAY, "", "broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "{\"a\":1}", "broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[", "broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1", "broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1,", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1,]", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[,1]", "broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1 2]", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1}", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1]]", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1],", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[1][2]", "v:1 broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[{\"a\":1},{\"a\"}]", "v:{\"a\":1} broken:invalid_json ");
    check(JSON_ITEMS_ARRAY, "[[[[[[[[[[]]]]]]]]]]", "broken:json_too_deep ");
}

static void an_element_may_be_as_long_as_the_limit_and_no_longer(void **state) {
    (void)state;
    char text[200], expected[200];
    for (int size = 63; size <= 67; size++) {
        snprintf(text, sizeof(text), "[1,\"%0*d\",2]", size - 2, 7);
        if (size <= 64)
            snprintf(expected, sizeof(expected), "v:1 v:\"%0*d\" v:2 end", size - 2, 7);
        else
            snprintf(expected, sizeof(expected), "v:1 broken:payload_too_large ");
        check(JSON_ITEMS_ARRAY, text, expected);
    }
}

static void why_an_element_is_refused_does_not_depend_on_the_pieces(void **state) {
    (void)state;
    char text[200];
    /* Too long before it is too deep. */
    snprintf(text, sizeof(text), "[[%070d[[[[[[[[[[[[]]]]]]]]]]]]]]", 7);
    check(JSON_ITEMS_ARRAY, text, "broken:payload_too_large ");
}

static void nothing_is_held_between_items_that_arrive_whole(void **state) {
    (void)state;
    struct json_items items;
    json_items_init(&items, JSON_ITEMS_LINES, &limits);
    struct slice input = SLICE("{\"a\":1}\n{\"b\":2}\n");
    assert_int_equal(json_items_next(&items, &input).kind, JSON_ITEM_VALUE);
    assert_int_equal(json_items_next(&items, &input).kind, JSON_ITEM_VALUE);
    assert_int_equal(json_items_next(&items, &input).kind, JSON_ITEM_MORE);
    assert_int_equal(items.pending.capacity, 0);
    json_items_release(&items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_an_item),
        cmocka_unit_test(blank_lines_are_no_items),
        cmocka_unit_test(a_bad_line_is_one_bad_item),
        cmocka_unit_test(a_line_may_be_as_long_as_the_limit_and_no_longer),
        cmocka_unit_test(an_element_is_an_item),
        cmocka_unit_test(an_array_that_is_wrong_breaks_off_behind_what_was_right),
        cmocka_unit_test(an_element_may_be_as_long_as_the_limit_and_no_longer),
        cmocka_unit_test(why_an_element_is_refused_does_not_depend_on_the_pieces),
        cmocka_unit_test(nothing_is_held_between_items_that_arrive_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
