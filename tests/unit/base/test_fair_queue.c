/* Turns, shares, and random runs against a slow model. */
#include "base/fair_queue.h"
#include "test.h"

#include <stdio.h>

#define QUANTUM   100
#define ITEMS_MAX 4096

struct work {
    struct fair_item item; /* first, so that an item is its work */
    int lane;
    int number; /* in its lane */
};

static struct work works[ITEMS_MAX];
static size_t work_count;

static struct slice key_of(int lane, char text[16]) {
    return (struct slice){text, (size_t)snprintf(text, 16, "lane %d", lane)};
}

static enum status add(struct fair_queue *queue, int lane, uint64_t cost) {
    char text[16];
    assert_true(work_count < ITEMS_MAX);
    struct work *work = &works[work_count];
    *work = (struct work){.item = {.cost = cost, .bytes = 1}, .lane = lane};
    for (size_t i = 0; i < work_count; i++)
        work->number += works[i].lane == lane;
    enum status status = fair_queue_add(queue, key_of(lane, text), &work->item);
    work_count += status == STATUS_OK;
    return status;
}

static void begin(struct fair_queue *queue) {
    work_count = 0;
    fair_queue_init(queue, QUANTUM, ITEMS_MAX, UINT64_MAX);
}

static struct work *take(struct fair_queue *queue) {
    struct fair_item *item = fair_queue_peek(queue);
    if (item)
        fair_queue_take(queue, item);
    return (struct work *)item;
}

/* The lanes of the items of one round, as digits. */
static const char *round_of(struct fair_queue *queue) {
    static char text[ITEMS_MAX + 1];
    size_t size = 0;
    struct work *work;
    fair_queue_begin_round(queue);
    while ((work = take(queue)))
        text[size++] = (char)('0' + work->lane);
    text[size] = '\0';
    return text;
}

static void lanes_take_turns_by_cost(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    for (int i = 0; i < 5; i++)
        assert_ok(add(&queue, 1, QUANTUM));
    for (int i = 0; i < 5; i++)
        assert_ok(add(&queue, 2, QUANTUM / 2));
    assert_ok(add(&queue, 3, 1));
    assert_string_equal(round_of(&queue), "1223");
    assert_string_equal(round_of(&queue), "122");
    assert_int_equal(fair_queue_lanes(&queue), 2);
    assert_string_equal(round_of(&queue), "12");
    assert_string_equal(round_of(&queue), "1");
    assert_string_equal(round_of(&queue), "1");
    assert_string_equal(round_of(&queue), "");
    assert_int_equal(fair_queue_lanes(&queue), 0);
    fair_queue_release(&queue);
}

static void a_newcomer_waits_for_one_turn_of_each_other_lane(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    for (int i = 0; i < 300; i++)
        assert_ok(add(&queue, 1 + i % 3, QUANTUM));
    assert_string_equal(round_of(&queue), "123");
    assert_ok(add(&queue, 4, 1));
    assert_string_equal(round_of(&queue), "1234");
    while (queue.count > 0)
        (void)round_of(&queue);
    fair_queue_release(&queue);
}

static void what_a_turn_leaves_is_carried_over_while_the_lane_has_items(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    for (int i = 0; i < 4; i++)
        assert_ok(add(&queue, 1, QUANTUM * 3 / 4));
    for (int i = 0; i < 4; i++)
        assert_ok(add(&queue, 2, QUANTUM));
    assert_string_equal(round_of(&queue), "12");  /* lane 1 keeps a quarter, */
    assert_string_equal(round_of(&queue), "12");  /* then a half, */
    assert_string_equal(round_of(&queue), "112"); /* and has enough for two. It is empty now. */
    assert_ok(add(&queue, 1, QUANTUM));
    assert_ok(add(&queue, 1, 1));
    assert_string_equal(round_of(&queue), "21"); /* Its deficit was forgotten. */
    assert_string_equal(round_of(&queue), "1");
    fair_queue_release(&queue);
}

static void a_dear_item_waits_for_several_rounds(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    assert_ok(add(&queue, 1, QUANTUM * 3));
    for (int i = 0; i < 4; i++)
        assert_ok(add(&queue, 2, QUANTUM));
    assert_string_equal(round_of(&queue), "2");
    assert_string_equal(round_of(&queue), "2");
    assert_string_equal(round_of(&queue), "12");
    assert_string_equal(round_of(&queue), "2");
    fair_queue_release(&queue);
}

static void a_turn_that_was_interrupted_continues_and_gets_no_second_quantum(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    for (int i = 0; i < 6; i++)
        assert_ok(add(&queue, 1, QUANTUM / 2));
    assert_ok(add(&queue, 2, 1));
    fair_queue_begin_round(&queue);
    assert_int_equal(take(&queue)->lane, 1);
    assert_string_equal(round_of(&queue), "12");
    assert_string_equal(round_of(&queue), "11");
    assert_string_equal(round_of(&queue), "11");
    fair_queue_release(&queue);
}

static void an_item_can_follow_an_earlier_one_of_another_key(void **state) {
    (void)state;
    struct fair_queue queue;
    struct work behind = {.item = {.cost = 1, .bytes = 1}, .lane = 9};
    begin(&queue);
    assert_ok(add(&queue, 1, QUANTUM));
    assert_ok(add(&queue, 2, QUANTUM));
    fair_queue_add_behind(&queue, &works[0].item, &behind.item);
    assert_string_equal(round_of(&queue), "12");
    assert_string_equal(round_of(&queue), "9");
    fair_queue_release(&queue);
}

static void a_full_lane_refuses_its_own_items_only(void **state) {
    (void)state;
    struct fair_queue queue;
    work_count = 0;
    fair_queue_init(&queue, QUANTUM, 12, UINT64_MAX);
    for (int i = 0; i < 6; i++)
        assert_ok(add(&queue, 1, 1));
    assert_int_equal(add(&queue, 1, 1), STATUS_LIMIT_REACHED);
    for (int i = 0; i < 4; i++)
        assert_ok(add(&queue, 2, 1));
    assert_int_equal(add(&queue, 2, 1), STATUS_LIMIT_REACHED);
    assert_int_equal(add(&queue, 1, 1), STATUS_LIMIT_REACHED);
    /* Newcomers add one item each beyond the sum, up to twice as many. */
    for (int lane = 3; lane < 17; lane++)
        assert_ok(add(&queue, lane, 1));
    assert_int_equal(add(&queue, 17, 1), STATUS_LIMIT_REACHED);
    while (queue.count > 0)
        (void)round_of(&queue);
    fair_queue_release(&queue);
}

static void the_bytes_of_a_lane_have_a_share_too(void **state) {
    (void)state;
    struct fair_queue queue;
    char text[16];
    struct fair_item items[4] = {{.cost = 1, .bytes = 200},
                                 {.cost = 1, .bytes = 1},
                                 {.cost = 1, .bytes = 30},
                                 {.cost = 1, .bytes = 30}};
    fair_queue_init(&queue, QUANTUM, 100, 100);
    /* One of any size is taken from a principal without items. */
    assert_ok(fair_queue_add(&queue, key_of(1, text), &items[0]));
    assert_int_equal(fair_queue_add(&queue, key_of(1, text), &items[1]), STATUS_LIMIT_REACHED);
    fair_queue_begin_round(&queue);
    fair_queue_take(&queue, fair_queue_peek(&queue));
    assert_ok(fair_queue_add(&queue, key_of(1, text), &items[2]));
    assert_int_equal(fair_queue_add(&queue, key_of(1, text), &items[3]), STATUS_LIMIT_REACHED);
    fair_queue_begin_round(&queue);
    fair_queue_take(&queue, fair_queue_peek(&queue));
    fair_queue_release(&queue);
}

/* ---- random runs ---- */

#define LANES 8

/* The model keeps the text book's description: an array for each lane, and the lanes in turn. */
struct model {
    int order[LANES]; /* lanes with items, the next turn first */
    int lane_count;
    uint64_t costs[LANES][ITEMS_MAX];
    int first[LANES];
    int end[LANES];
    uint64_t deficit[LANES];
};

static void model_add(struct model *model, int lane, uint64_t cost) {
    if (model->first[lane] == model->end[lane]) {
        model->order[model->lane_count++] = lane;
        model->deficit[lane] = 0;
    }
    model->costs[lane][model->end[lane]++] = cost;
}

/* Compares one round of the queue with the model's. */
static void check_round(struct fair_queue *queue, struct model *model) {
    int lanes = model->lane_count;
    fair_queue_begin_round(queue);
    for (int turn = 0; turn < lanes; turn++) {
        int lane = model->order[0];
        memmove(model->order, model->order + 1, sizeof(int) * (size_t)(--model->lane_count));
        model->deficit[lane] += QUANTUM;
        int *first = &model->first[lane];
        while (*first < model->end[lane] && model->costs[lane][*first] <= model->deficit[lane]) {
            struct work *work = take(queue);
            assert_non_null(work);
            assert_int_equal(work->lane, lane);
            assert_int_equal(work->number, *first);
            model->deficit[lane] -= model->costs[lane][(*first)++];
        }
        if (*first < model->end[lane])
            model->order[model->lane_count++] = lane;
    }
    assert_null(take(queue));
    assert_int_equal(fair_queue_lanes(queue), model->lane_count);
}

static void random_runs_follow_the_model_and_are_fair(void **state) {
    (void)state;
    static struct model model;
    uint64_t random = 88172645463325252ULL;
    for (int run = 0; run < 20; run++) {
        struct fair_queue queue;
        uint64_t given[2] = {0, 0}; /* to lanes 0 and 1, which always have items */
        begin(&queue);
        memset(&model, 0, sizeof(model));
        while (work_count < ITEMS_MAX - 2 * LANES) {
            for (int lane = 0; lane < LANES; lane++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                bool is_backlogged = lane < 2 && model.end[lane] - model.first[lane] < 2;
                if (!is_backlogged && random % 4 != 0)
                    continue;
                uint64_t cost = 1 + (random >> 8) % (random % 16 == 0 ? 3 * QUANTUM : QUANTUM);
                assert_ok(add(&queue, lane, cost));
                model_add(&model, lane, cost);
            }
            int before[2] = {model.first[0], model.first[1]};
            check_round(&queue, &model);
            for (int lane = 0; lane < 2; lane++)
                for (int i = before[lane]; i < model.first[lane]; i++)
                    given[lane] += model.costs[lane][i];
        }
        while (queue.count > 0)
            check_round(&queue, &model);
        uint64_t apart = given[0] > given[1] ? given[0] - given[1] : given[1] - given[0];
        assert_true(given[0] > 0 && apart <= given[0] / 4 + 4 * QUANTUM);
        fair_queue_release(&queue);
    }
}

/* Items leave from any place, also while their lane has its turn, and the others keep their order.
 */
static void items_leave_out_of_turn(void **state) {
    (void)state;
    struct fair_queue queue;
    begin(&queue);
    for (int i = 0; i < 12; i++)
        assert_int_equal(add(&queue, i % 3, QUANTUM), STATUS_OK);
    fair_queue_begin_round(&queue);
    assert_ptr_equal(fair_queue_peek(&queue), &works[0].item);
    fair_queue_take(&queue, &works[3].item);  /* in the middle of lane 0 */
    fair_queue_take(&queue, &works[10].item); /* the last of lane 1 */
    fair_queue_take(&queue, &works[1].item);  /* the first of lane 1 */
    for (int i = 2; i < 12; i += 3)
        fair_queue_take(&queue, &works[i].item); /* all of lane 2 */
    assert_int_equal(fair_queue_lanes(&queue), 2);
    assert_int_equal(add(&queue, 1, QUANTUM), STATUS_OK);
    assert_int_equal(take(&queue)->number, 0);
    assert_int_equal(take(&queue)->number, 1);
    assert_null(fair_queue_peek(&queue));
    assert_string_equal(round_of(&queue), "01");
    assert_string_equal(round_of(&queue), "01");
    assert_int_equal(queue.count, 0);
    fair_queue_release(&queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_take_turns_by_cost),
        cmocka_unit_test(a_newcomer_waits_for_one_turn_of_each_other_lane),
        cmocka_unit_test(what_a_turn_leaves_is_carried_over_while_the_lane_has_items),
        cmocka_unit_test(a_dear_item_waits_for_several_rounds),
        cmocka_unit_test(a_turn_that_was_interrupted_continues_and_gets_no_second_quantum),
        cmocka_unit_test(an_item_can_follow_an_earlier_one_of_another_key),
        cmocka_unit_test(a_full_lane_refuses_its_own_items_only),
        cmocka_unit_test(the_bytes_of_a_lane_have_a_share_too),
        cmocka_unit_test(random_runs_follow_the_model_and_are_fair),
        cmocka_unit_test(items_leave_out_of_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
