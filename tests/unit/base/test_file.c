#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char folder[] = "/tmp/khala-file-XXXXXX";
static char path[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/khala-file-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/key", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void assert_content(const char *wanted) {
    char text[64] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) >= 0);
    close(fd);
    assert_string_equal(text, wanted);
}

static size_t count_files(void) {
    size_t count = 0;
    DIR *opened = opendir(folder);
    assert_non_null(opened);
    while (readdir(opened))
        count++;
    closedir(opened);
    return count - 2;
}

static void a_file_is_replaced_as_a_whole_and_only_its_owner_reads_it(void **state) {
    struct stat found;
    (void)state;
    assert_int_equal(file_replace(path, SLICE("a long first text")), STATUS_OK);
    assert_int_equal(file_replace(path, SLICE("second")), STATUS_OK);
    assert_content("second");
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    assert_int_equal(count_files(), 1);
}

static void a_file_left_by_a_crash_does_not_stop_the_next_replacement(void **state) {
    char fresh[80];
    (void)state;
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    int fd = open(fresh, O_WRONLY | O_CREAT, 0400);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(file_replace(path, SLICE("text")), STATUS_OK);
    assert_content("text");
    assert_int_equal(count_files(), 1);
}

static void a_replacement_that_fails_leaves_the_old_file_and_says_why(void **state) {
    char absent[96];
    (void)state;
    snprintf(absent, sizeof(absent), "%s/absent/key", folder);
    assert_int_equal(file_replace(absent, SLICE("text")), STATUS_SYSTEM_ERROR);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(file_replace(path, SLICE("text")), STATUS_SYSTEM_ERROR);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(count_files(), 0);
}

static void a_file_without_a_name_leaves_nothing_behind(void **state) {
    char text[8] = "";
    (void)state;
    int fd = file_open_unnamed(folder, "part");
    assert_true(fd >= 0);
    assert_int_equal(count_files(), 0);
    assert_int_equal(write(fd, "bytes", 5), 5);
    assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 5);
    assert_string_equal(text, "bytes");
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_replaced_as_a_whole_and_only_its_owner_reads_it,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_left_by_a_crash_does_not_stop_the_next_replacement,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_replacement_that_fails_leaves_the_old_file_and_says_why,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_without_a_name_leaves_nothing_behind, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
