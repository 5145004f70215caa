#include "authority/import/import_check.h"
#include "base/limits.h"
#include "test.h"

static struct import_ids ids;

static struct uuid id_of(uint64_t number) {
    struct uuid uuid = uuid7_first(1700000000000);
    memcpy(uuid.bytes + 8, &number, sizeof(number));
    return uuid;
}

/* The line that is refused among count different ids and, at second, the id of first again; 0:
 * none. */
static uint64_t refused_line(uint64_t count, uint64_t first, uint64_t second) {
    enum status status = STATUS_OK;
    uint64_t line = 0;
    import_ids_init(&ids);
    assert_true(import_ids_open(&ids, "/tmp"));
    for (uint64_t i = 1; i <= count; i++) {
        struct uuid id = id_of(i == second ? first : i);
        assert_ok(import_ids_add(&ids, &id));
    }
    while (status == STATUS_OK && !import_ids_is_checked(&ids))
        status = import_ids_check(&ids, &line);
    import_ids_release(&ids);
    assert_int_equal(status, line > 0 ? STATUS_IMPORT_REFUSED : STATUS_OK);
    return line;
}

static void a_second_use_is_found_at_its_line(void **state) {
    (void)state;
    for (uint64_t count = IMPORT_IDS_BLOCK - 1; count <= IMPORT_IDS_BLOCK + 1; count++) {
        assert_int_equal(refused_line(count, 0, 0), 0);
        assert_int_equal(refused_line(count, 1, count), count);
        assert_int_equal(refused_line(count, count - 1, count), count);
    }
    assert_int_equal(refused_line(0, 0, 0), 0);
    assert_int_equal(refused_line(1, 0, 0), 0);
}

static void ids_of_several_parts_are_compared(void **state) {
    (void)state;
    const uint64_t count = IMPORT_PART_IDS_MAX / 2 + 10;
    assert_int_equal(refused_line(count, 0, 0), 0);
    for (uint64_t first = 1; first < 5; first++)
        assert_int_equal(refused_line(count, first, count - first), count - first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_use_is_found_at_its_line),
        cmocka_unit_test(ids_of_several_parts_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
