#include "api/batch/spool.h"

#include <stdio.h>

#include "base/limits.h"
#include "test.h"

#define APPEND_BYTES_MAX (1 << 20)

static struct spool_files files = {.folder = "/tmp", .bytes_max = 64 << 20, .files_max = 4};

static void fill(char *bytes, size_t size, uint64_t from) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)((from + i) * 2654435761u >> 13);
}

/* Takes at most so many bytes, which must be those from the offset on. */
static uint64_t take(struct spool *spool, size_t bytes_max, uint64_t from) {
    static char expected[APPEND_BYTES_MAX];
    struct buffer out;
    buffer_init(&out, APPEND_BYTES_MAX);
    assert_ok(spool_take(spool, bytes_max, &out));
    assert_true(out.size > 0 && out.size <= bytes_max);
    fill(expected, out.size, from);
    assert_memory_equal(out.data, expected, out.size);
    uint64_t size = out.size;
    buffer_release(&out);
    return size;
}

static void bytes_come_out_in_order_whatever_their_sizes(void **state) {
    (void)state;
    static char bytes[APPEND_BYTES_MAX];
    static const size_t sizes[] = {1, 1000, 300000, 7, 262144, 1 << 20, 50, 600000};
    struct spool spool;
    uint64_t in = 0, out = 0;
    spool_init(&spool, &files, SLICE(""), APPEND_BYTES_MAX);
    assert_true(spool_is_empty(&spool));
    for (size_t round = 0; round < 40; round++) {
        size_t size = sizes[round % 8];
        fill(bytes, size, in);
        assert_true(spool_has_room(&spool));
        assert_ok(spool_append(&spool, (struct slice){bytes, size}));
        in += size;
        if (round % 3 == 0 && !spool_is_empty(&spool))
            out += take(&spool, 100000 + round, out);
    }
    assert_true(files.bytes > 0);
    while (!spool_is_empty(&spool))
        out += take(&spool, 65536, out);
    assert_int_equal(out, in);
    assert_int_equal(files.bytes, 0);
    spool_release(&spool);
}

static void a_file_gets_a_quarter_of_the_bytes_of_all_and_loses_nothing(void **state) {
    (void)state;
    static char bytes[APPEND_BYTES_MAX];
    struct spool_files few = {.folder = "/tmp", .bytes_max = 12 << 20, .files_max = 4};
    struct spool one, two;
    uint64_t in = 0, out = 0;
    spool_init(&one, &few, SLICE(""), APPEND_BYTES_MAX);
    spool_init(&two, &few, SLICE(""), APPEND_BYTES_MAX);
    for (; spool_has_room(&one); in += sizeof(bytes)) {
        fill(bytes, sizeof(bytes), in);
        assert_ok(spool_append(&one, (struct slice){bytes, sizeof(bytes)}));
    }
    assert_int_equal(in, 4 << 20);
    assert_int_equal(few.bytes, 3 << 20);
    assert_ok(spool_append(&two, (struct slice){bytes, sizeof(bytes)}));
    assert_true(spool_has_room(&two));
    while (!spool_is_empty(&one))
        out += take(&one, 1 << 20, out);
    assert_int_equal(out, in);
    assert_true(spool_has_room(&one));
    spool_release(&one);
    spool_release(&two);
    assert_int_equal(few.bytes, 0);
}

/* A spool that is full in the memory of one append. */
static void assert_no_file(struct spool_files *few) {
    static char bytes[APPEND_BYTES_MAX];
    struct spool spool;
    size_t file_count = few->file_count;
    spool_init(&spool, few, SLICE(""), APPEND_BYTES_MAX);
    fill(bytes, sizeof(bytes), 0);
    assert_ok(spool_append(&spool, (struct slice){bytes, sizeof(bytes)}));
    assert_false(spool_has_room(&spool));
    assert_false(spool_has_file(&spool));
    assert_int_equal(few->file_count, file_count);
    assert_int_equal(take(&spool, sizeof(bytes), 0), sizeof(bytes));
    spool_release(&spool);
}

static void the_bytes_and_the_number_of_all_files_have_a_limit(void **state) {
    (void)state;
    static char bytes[APPEND_BYTES_MAX];
    struct spool_files few = {.folder = "/tmp", .bytes_max = 64 << 20, .files_max = 1};
    struct spool one;
    spool_init(&one, &few, SLICE(""), APPEND_BYTES_MAX);
    fill(bytes, sizeof(bytes), 0);
    assert_ok(spool_append(&one, (struct slice){bytes, sizeof(bytes)}));
    assert_true(spool_has_file(&one));
    assert_no_file(&few);
    few.files_max = 2;
    few.bytes = few.bytes_max;
    assert_no_file(&few);
    few.bytes = sizeof(bytes);
    assert_int_equal(take(&one, sizeof(bytes), 0), sizeof(bytes));
    assert_false(spool_has_file(&one));
    assert_int_equal(few.file_count, 0);
    assert_int_equal(few.bytes, 0);
    spool_release(&one);
}

static void the_files_of_one_principal_share_a_quarter_of_the_bytes(void **state) {
    (void)state;
    static char bytes[APPEND_BYTES_MAX];
    struct spool_files few = {.folder = "/tmp", .bytes_max = 12 << 20, .files_max = 4};
    struct spool spools[3];
    spool_files_init(&few);
    spool_init(&spools[0], &few, SLICE("one"), APPEND_BYTES_MAX);
    spool_init(&spools[1], &few, SLICE("one"), APPEND_BYTES_MAX);
    spool_init(&spools[2], &few, SLICE("two"), APPEND_BYTES_MAX);
    for (size_t i = 0; i < 2; i++)
        assert_ok(spool_append(&spools[0], (struct slice){bytes, sizeof(bytes)}));
    assert_ok(spool_append(&spools[1], (struct slice){bytes, sizeof(bytes)}));
    assert_true(spool_has_room(&spools[1]));
    assert_ok(spool_append(&spools[1], (struct slice){bytes, sizeof(bytes)}));
    assert_false(spool_has_room(&spools[1]));
    assert_ok(spool_append(&spools[2], (struct slice){bytes, sizeof(bytes)}));
    assert_true(spool_has_room(&spools[2]));
    assert_int_equal(few.bytes, 4 << 20);
    for (size_t i = 0; i < 3; i++)
        spool_release(&spools[i]);
    assert_int_equal(few.bytes, 0);
    spool_files_release(&few);
}

static void a_disk_that_is_nearly_full_ends_the_room(void **state) {
    (void)state;
    struct spool_files few = {.folder = "/tmp",
                              .bytes_max = 64 << 20,
                              .files_max = 4,
                              .disk_free_bytes_min = UINT64_MAX / 2};
    assert_no_file(&few);
}

static void a_folder_that_takes_no_file_ends_the_room(void **state) {
    (void)state;
    struct spool_files missing = {.folder = "/nonexistent", .bytes_max = 64 << 20, .files_max = 4};
    struct spool spool;
    assert_no_file(&missing);
    struct spool_files none = {.folder = "/tmp", .bytes_max = 0};
    spool_init(&spool, &none, SLICE(""), APPEND_BYTES_MAX);
    assert_false(spool_has_room(&spool));
    spool_release(&spool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_in_order_whatever_their_sizes),
        cmocka_unit_test(a_file_gets_a_quarter_of_the_bytes_of_all_and_loses_nothing),
        cmocka_unit_test(the_bytes_and_the_number_of_all_files_have_a_limit),
        cmocka_unit_test(the_files_of_one_principal_share_a_quarter_of_the_bytes),
        cmocka_unit_test(a_disk_that_is_nearly_full_ends_the_room),
        cmocka_unit_test(a_folder_that_takes_no_file_ends_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
