/* Spools over a real file thread. The test's own thread runs the loop. */
#include "api/spool.h"

#include <stdlib.h>

#include "api/slow_disk.h"
#include "base/limits.h"
#include "net/hand_turned_loop.h"
#include "test.h"

#define APPEND_BYTES_MAX (1 << 20)

static struct io_loop loop;
static struct file_thread thread;
static struct spool_files files; /* with room for every test that does not limit it */
static size_t begun_count;
static size_t returned_count;

static void note_begun(struct spool *spool) {
    (void)spool;
    begun_count++;
}

static void note_returned(struct spool *spool) {
    (void)spool;
    returned_count++;
}

static const struct spool_events events = {.begun = note_begun, .returned = note_returned};

static int open_world(void **state) {
    (void)state;
    begun_count = returned_count = 0;
    disk_set(false, 0);
    files = (struct spool_files){
        .thread = &thread, .folder = "/tmp", .bytes_max = 64 << 20, .files_max = 4};
    hand_turned_loop_open(&loop);
    assert_ok(file_thread_start(&thread));
    return 0;
}

static int close_world(void **state) {
    (void)state;
    disk_set(false, 0);
    hand_turned_loop_end(&loop);
    file_thread_stop(&thread);
    assert_int_equal(loop.hold_count, 0);
    io_loop_close(&loop);
    assert_int_equal(files.bytes, 0);
    assert_int_equal(files.file_count, 0);
    return 0;
}

static void fill(char *bytes, size_t size, uint64_t from) {
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)((from + i) * 2654435761u >> 13);
}

static void open_spool(struct spool *spool, struct slice principal) {
    spool_init(spool, &files, principal, APPEND_BYTES_MAX, &loop, &events);
}

/* Until the file thread has returned all operations. */
static void settle(const struct spool *spool) {
    while (spool->state != SPOOL_IDLE)
        io_loop_turn(&loop, true);
}

/* The bytes from that offset on. */
static uint64_t append(struct spool *spool, size_t size, uint64_t from) {
    static char bytes[APPEND_BYTES_MAX];
    fill(bytes, size, from);
    assert_ok(spool_append(spool, (struct slice){bytes, size}));
    return size;
}

/* Takes at most so many bytes, which must be those from the offset on; 0: it must wait. */
static uint64_t try_take(struct spool *spool, size_t bytes_max, uint64_t from) {
    static char expected[APPEND_BYTES_MAX];
    struct buffer out;
    buffer_init(&out, APPEND_BYTES_MAX);
    assert_ok(spool_take(spool, bytes_max, &out));
    assert_true(out.size <= bytes_max);
    fill(expected, out.size, from);
    if (out.size > 0)
        assert_memory_equal(out.data, expected, out.size);
    uint64_t size = out.size;
    buffer_release(&out);
    return size;
}

static uint64_t take(struct spool *spool, size_t bytes_max, uint64_t from) {
    uint64_t size;
    while ((size = try_take(spool, bytes_max, from)) == 0) {
        assert_int_not_equal(spool->state, SPOOL_IDLE);
        io_loop_turn(&loop, true);
    }
    return size;
}

struct signal {
    struct file_task task;
    uv_sem_t done;
};

static void post_signal(struct file_task *task) {
    uv_sem_post(&container_of(task, struct signal, task)->done);
}

/* Releases the spool, and waits until its file is closed. */
static void close_spool(struct spool *spool) {
    struct signal closed = {.task.run = post_signal};
    settle(spool);
    spool_release(spool);
    uv_sem_init(&closed.done, 0);
    file_thread_post(&thread, &closed.task);
    uv_sem_wait(&closed.done);
    uv_sem_destroy(&closed.done);
}

static void bytes_come_out_in_order_whatever_their_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 1000, 300000, 7, 262144, 1 << 20, 50, 600000};
    struct spool spool;
    uint64_t in = 0, out = 0;
    open_spool(&spool, SLICE(""));
    assert_true(spool_is_empty(&spool));
    for (size_t round = 0; round < 40; round++) {
        size_t size = sizes[round % 8];
        while (!spool_has_room(&spool))
            io_loop_turn(&loop, true);
        in += append(&spool, size, in);
        if (round % 3 == 0 && !spool_is_empty(&spool))
            out += take(&spool, 100000 + round, out);
    }
    assert_true(files.bytes > 0);
    while (!spool_is_empty(&spool))
        out += take(&spool, 65536, out);
    assert_int_equal(out, in);
    assert_int_equal(files.bytes, 0);
    assert_int_equal(begun_count, returned_count);
    close_spool(&spool);
}

/* Operations return at any moment between appends and takes. */
static void bytes_come_out_in_order_whenever_the_file_thread_returns(void **state) {
    (void)state;
    files.bytes_max = 16 << 20;
    unsigned seed = 26;
    for (size_t round = 0; round < 20; round++) {
        struct spool spool;
        uint64_t in = 0, out = 0;
        open_spool(&spool, SLICE(""));
        while (in < 20 << 20 || out < in) {
            unsigned choice = (unsigned)rand_r(&seed);
            if (choice % 3 == 0 && in < 20 << 20 && spool_has_room(&spool))
                in += append(&spool, 1 + choice / 3 % 400000, in);
            if (choice % 5 < 2 || in >= 20 << 20)
                out += try_take(&spool, 1 + choice / 5 % 300000, out);
            assert_true(spool_memory_bytes(&spool) <=
                        2 * (SPOOL_MEMORY_BYTES + APPEND_BYTES_MAX) + 300000);
            io_loop_turn(&loop, spool.state != SPOOL_IDLE && choice % 7 == 0);
        }
        assert_int_equal(out, in);
        close_spool(&spool);
        assert_int_equal(files.bytes, 0);
    }
    assert_true(begun_count > 100);
    assert_int_equal(begun_count, returned_count);
}

static void a_slow_disk_pauses_the_file_thread_and_not_the_loop(void **state) {
    (void)state;
    struct spool spool;
    uint64_t in = 0, out = 0;
    open_spool(&spool, SLICE(""));
    size_t arrived_before = disk_count();
    disk_set(true, 0);
    in += append(&spool, 300000, in);
    assert_false(pthread_equal(disk_wait(arrived_before + 1), pthread_self()));
    /* Turns of the loop end, and one more chunk is taken. */
    io_loop_turn(&loop, false);
    assert_int_equal(spool.state, SPOOL_WRITING);
    assert_int_equal(try_take(&spool, 65536, 0), 0);
    assert_true(spool_has_room(&spool));
    in += append(&spool, 300000, in);
    assert_false(spool_has_room(&spool));
    io_loop_turn(&loop, false);
    assert_int_equal(returned_count, 0);
    disk_set(false, 0);
    settle(&spool);
    assert_true(spool_has_room(&spool));
    /* The take that waited came before the second write. */
    out += try_take(&spool, 65536, 0);
    assert_int_equal(out, 65536);
    arrived_before = disk_count();
    disk_set(true, 0);
    assert_int_equal(try_take(&spool, 65536, out), 0);
    assert_int_equal(spool.state, SPOOL_READING);
    assert_false(pthread_equal(disk_wait(arrived_before + 1), pthread_self()));
    io_loop_turn(&loop, false);
    assert_int_equal(try_take(&spool, 65536, out), 0);
    disk_set(false, 0);
    while (!spool_is_empty(&spool))
        out += take(&spool, 65536, out);
    assert_int_equal(out, in);
    close_spool(&spool);
}

static void a_closed_spool_begins_nothing_and_frees_its_file(void **state) {
    (void)state;
    struct spool spool;
    open_spool(&spool, SLICE(""));
    disk_set(true, 0);
    append(&spool, 300000, 0);
    append(&spool, 300000, 300000);
    spool_close(&spool);
    disk_set(false, 0);
    settle(&spool);
    assert_int_equal(begun_count, 1);
    assert_int_equal(returned_count, 1);
    assert_int_equal(files.bytes, 300000);
    close_spool(&spool);
    assert_int_equal(files.bytes, 0);
    assert_int_equal(files.file_count, 0);
}

static void a_file_that_cannot_be_written_ends_the_room_and_loses_nothing(void **state) {
    (void)state;
    struct spool spool;
    uint64_t in = 0, out = 0;
    open_spool(&spool, SLICE(""));
    in += append(&spool, 300000, in);
    settle(&spool);
    disk_set(true, ENOSPC);
    in += append(&spool, 300000, in);
    in += append(&spool, 200000, in);
    disk_set(false, ENOSPC);
    settle(&spool);
    disk_set(false, 0);
    assert_false(spool_has_room(&spool));
    assert_int_equal(files.bytes, 300000);
    while (!spool_is_empty(&spool))
        out += take(&spool, 65536, out);
    assert_int_equal(out, in);
    assert_true(spool_has_room(&spool));
    assert_false(spool_has_file(&spool));
    close_spool(&spool);
    assert_int_equal(files.bytes, 0);
}

static void a_file_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    struct spool spool;
    struct buffer out;
    buffer_init(&out, APPEND_BYTES_MAX);
    open_spool(&spool, SLICE(""));
    append(&spool, 300000, 0);
    settle(&spool);
    disk_set(false, EIO);
    assert_int_equal(try_take(&spool, 65536, 0), 0);
    settle(&spool);
    disk_set(false, 0);
    assert_int_equal(spool_take(&spool, 65536, &out), STATUS_STORE_UNAVAILABLE);
    assert_false(spool_has_room(&spool));
    close_spool(&spool);
    assert_int_equal(files.bytes, 0);
    assert_int_equal(files.file_count, 0);
}

static void a_file_gets_a_quarter_of_the_bytes_of_all_and_loses_nothing(void **state) {
    (void)state;
    files.bytes_max = 12 << 20;
    struct spool one, two;
    uint64_t in = 0, out = 0;
    open_spool(&one, SLICE(""));
    open_spool(&two, SLICE(""));
    while (spool_has_room(&one)) {
        in += append(&one, APPEND_BYTES_MAX, in);
        settle(&one);
    }
    assert_int_equal(in, 4 << 20);
    assert_int_equal(files.bytes, 3 << 20);
    append(&two, APPEND_BYTES_MAX, 0);
    settle(&two);
    assert_true(spool_has_room(&two));
    while (!spool_is_empty(&one))
        out += take(&one, 1 << 20, out);
    assert_int_equal(out, in);
    assert_true(spool_has_room(&one));
    close_spool(&one);
    close_spool(&two);
    assert_int_equal(files.bytes, 0);
}

/* A spool that is full in the memory of one append. */
static void assert_no_file(void) {
    struct spool spool;
    size_t file_count = files.file_count;
    open_spool(&spool, SLICE(""));
    append(&spool, APPEND_BYTES_MAX, 0);
    settle(&spool);
    assert_false(spool_has_room(&spool));
    assert_false(spool_has_file(&spool));
    assert_int_equal(files.file_count, file_count);
    assert_int_equal(take(&spool, APPEND_BYTES_MAX, 0), APPEND_BYTES_MAX);
    close_spool(&spool);
}

static void the_bytes_and_the_number_of_all_files_have_a_limit(void **state) {
    (void)state;
    files.files_max = 1;
    struct spool one;
    open_spool(&one, SLICE(""));
    append(&one, APPEND_BYTES_MAX, 0);
    settle(&one);
    assert_true(spool_has_file(&one));
    assert_no_file();
    files.files_max = 2;
    files.bytes = files.bytes_max;
    assert_no_file();
    files.bytes = APPEND_BYTES_MAX;
    assert_int_equal(take(&one, APPEND_BYTES_MAX, 0), APPEND_BYTES_MAX);
    assert_false(spool_has_file(&one));
    assert_int_equal(files.file_count, 0);
    assert_int_equal(files.bytes, 0);
    close_spool(&one);
}

static void the_files_of_one_principal_share_a_quarter_of_the_bytes(void **state) {
    (void)state;
    files.bytes_max = 12 << 20;
    struct spool spools[3];
    static const size_t order[] = {0, 0, 1};
    spool_files_init(&files);
    open_spool(&spools[0], SLICE("one"));
    open_spool(&spools[1], SLICE("one"));
    open_spool(&spools[2], SLICE("two"));
    for (size_t i = 0; i < 3; i++) {
        append(&spools[order[i]], APPEND_BYTES_MAX, 0);
        settle(&spools[order[i]]);
    }
    assert_true(spool_has_room(&spools[1]));
    append(&spools[1], APPEND_BYTES_MAX, 0);
    settle(&spools[1]);
    assert_false(spool_has_room(&spools[1]));
    append(&spools[2], APPEND_BYTES_MAX, 0);
    settle(&spools[2]);
    assert_true(spool_has_room(&spools[2]));
    assert_int_equal(files.bytes, 4 << 20);
    for (size_t i = 0; i < 3; i++)
        close_spool(&spools[i]);
    assert_int_equal(files.bytes, 0);
    spool_files_release(&files);
}

static void a_disk_that_is_nearly_full_ends_the_room(void **state) {
    (void)state;
    files.disk_free_bytes_min = UINT64_MAX / 2;
    assert_no_file();
}

static void a_folder_that_takes_no_file_ends_the_room(void **state) {
    (void)state;
    struct spool spool;
    files.folder = "/nonexistent";
    assert_no_file();
    files.bytes_max = 0;
    open_spool(&spool, SLICE(""));
    assert_false(spool_has_room(&spool));
    close_spool(&spool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_come_out_in_order_whatever_their_sizes, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(bytes_come_out_in_order_whenever_the_file_thread_returns,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(a_slow_disk_pauses_the_file_thread_and_not_the_loop,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(a_closed_spool_begins_nothing_and_frees_its_file,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(
            a_file_that_cannot_be_written_ends_the_room_and_loses_nothing, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_an_error, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_file_gets_a_quarter_of_the_bytes_of_all_and_loses_nothing,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(the_bytes_and_the_number_of_all_files_have_a_limit,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(the_files_of_one_principal_share_a_quarter_of_the_bytes,
                                        open_world, close_world),
        cmocka_unit_test_setup_teardown(a_disk_that_is_nearly_full_ends_the_room, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_folder_that_takes_no_file_ends_the_room, open_world,
                                        close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
