#include "base/list.h"
#include "death.h"
#include "test.h"

struct item {
    int before;
    struct list_node node;
    struct hlist_node chained;
    int number;
};

static int list_numbers(const struct list *list) {
    int digits = 0;
    for (struct list_node *node = list_first(list); node; node = list_next(list, node))
        digits = digits * 10 + container_of(node, struct item, node)->number;
    return digits;
}

static int hlist_numbers(const struct hlist *list) {
    int digits = 0;
    for (struct hlist_node *node = list->first; node; node = node->next)
        digits = digits * 10 + container_of(node, struct item, chained)->number;
    return digits;
}

static void container_of_finds_the_object_of_a_member(void **state) {
    (void)state;
    struct item item = {.number = 7};
    const struct hlist_node *constant = &item.chained;
    assert_ptr_equal(container_of(&item.node, struct item, node), &item);
    assert_ptr_equal(container_of(constant, struct item, chained), &item);
    assert_ptr_equal(container_of(&item.before, struct item, before), &item);
}

static void keeps_the_order_of_both_ends(void **state) {
    (void)state;
    struct list list;
    struct item items[] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    list_init(&list);
    assert_true(list_is_empty(&list));
    assert_null(list_first(&list));
    assert_null(list_last(&list));
    assert_null(list_pop_front(&list));
    list_push_back(&list, &items[1].node);
    list_push_back(&list, &items[3].node);
    list_push_front(&list, &items[0].node);
    list_insert_after(&items[1].node, &items[2].node);
    assert_int_equal(list_numbers(&list), 1234);
    assert_ptr_equal(list_first(&list), &items[0].node);
    assert_ptr_equal(list_last(&list), &items[3].node);
    assert_ptr_equal(list_pop_front(&list), &items[0].node);
    assert_false(list_node_is_linked(&items[0].node));
    assert_int_equal(list_numbers(&list), 234);
}

static void a_removed_node_may_join_again(void **state) {
    (void)state;
    struct list list;
    struct item items[] = {{.number = 1}, {.number = 2}, {.number = 3}};
    list_init(&list);
    for (int i = 0; i < 3; i++)
        list_push_back(&list, &items[i].node);
    list_remove(&items[1].node);
    assert_false(list_node_is_linked(&items[1].node));
    assert_int_equal(list_numbers(&list), 13);
    list_push_back(&list, &items[1].node);
    assert_true(list_node_is_linked(&items[1].node));
    assert_int_equal(list_numbers(&list), 132);
    for (int i = 0; i < 3; i++)
        list_remove(&items[i].node);
    assert_true(list_is_empty(&list));
}

static void a_walk_may_remove_the_node_it_stands_on(void **state) {
    (void)state;
    struct list list;
    struct item items[9] = {0};
    list_init(&list);
    for (int i = 0; i < 9; i++) {
        items[i].number = i + 1;
        list_push_back(&list, &items[i].node);
    }
    for (struct list_node *node = list_first(&list), *next; node; node = next) {
        next = list_next(&list, node);
        if (container_of(node, struct item, node)->number % 2 == 1)
            list_remove(node);
    }
    assert_int_equal(list_numbers(&list), 2468);
}

static void a_one_pointer_head_keeps_the_newest_first(void **state) {
    (void)state;
    struct hlist list = {0};
    struct item items[] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    assert_int_equal(sizeof(list), sizeof(void *));
    for (int i = 0; i < 4; i++)
        hlist_push_front(&list, &items[i].chained);
    assert_int_equal(hlist_numbers(&list), 4321);
    hlist_remove(&items[3].chained);
    assert_int_equal(hlist_numbers(&list), 321);
    hlist_remove(&items[1].chained);
    assert_false(hlist_node_is_linked(&items[1].chained));
    assert_int_equal(hlist_numbers(&list), 31);
    hlist_remove(&items[0].chained);
    assert_int_equal(hlist_numbers(&list), 3);
    hlist_push_front(&list, &items[0].chained);
    assert_int_equal(hlist_numbers(&list), 13);
    hlist_remove(&items[0].chained);
    hlist_remove(&items[2].chained);
    assert_null(list.first);
}

struct misuse {
    struct list list;
    struct hlist chain;
    struct item item;
};

static void inserts_twice(void *user) {
    struct misuse *misuse = user;
    list_init(&misuse->list);
    list_push_back(&misuse->list, &misuse->item.node);
    list_push_back(&misuse->list, &misuse->item.node);
}

static void removes_from_no_list(void *user) {
    struct misuse *misuse = user;
    list_remove(&misuse->item.node);
}

static void inserts_into_hlist_twice(void *user) {
    struct misuse *misuse = user;
    hlist_push_front(&misuse->chain, &misuse->item.chained);
    hlist_push_front(&misuse->chain, &misuse->item.chained);
}

static void removes_from_no_hlist(void *user) {
    struct misuse *misuse = user;
    hlist_remove(&misuse->item.chained);
}

static void misuse_asserts(void **state) {
    (void)state;
    struct misuse misuse = {0};
    assert_true(aborts(inserts_twice, &misuse));
    assert_true(aborts(removes_from_no_list, &misuse));
    assert_true(aborts(inserts_into_hlist_twice, &misuse));
    assert_true(aborts(removes_from_no_hlist, &misuse));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_of_finds_the_object_of_a_member),
        cmocka_unit_test(keeps_the_order_of_both_ends),
        cmocka_unit_test(a_removed_node_may_join_again),
        cmocka_unit_test(a_walk_may_remove_the_node_it_stands_on),
        cmocka_unit_test(a_one_pointer_head_keeps_the_newest_first),
        cmocka_unit_test(misuse_asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
