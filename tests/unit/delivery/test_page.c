#include "delivery/page.h"

#include "test.h"

static const struct principal operator_all = {.read_all = true};
static const struct principal user = {.identity.user_id = SLICE("u")};
static const struct principal guest = {.identity.guest_scope = SLICE("g")};

/* Frames 11 to 10 + count; the even ones belong to the user. */
static void fill(struct delivery_batch *batch, size_t count) {
    *batch = (struct delivery_batch){
        .count_max = 16, .bytes_max = 4096, .after_seq = 10, .through_seq = 10};
    for (size_t i = 0; i < count; i++) {
        struct frame_content content = {
            .seq = ++batch->through_seq, .kind = SLICE("k"), .payload = SLICE("{}")};
        if (content.seq % 2 == 0)
            content.owner.user_id = SLICE("u");
        else
            content.owner.guest_scope = SLICE("g");
        assert_ok(
            frame_make(NULL, &content, &(struct frame_text){0}, &batch->frames[batch->count++]));
    }
}

static struct page *make_page(size_t count) {
    struct delivery_batch batch;
    struct page *page;
    fill(&batch, count);
    assert_ok(page_make(&page, SLICE("t"), 99, &batch));
    assert_int_equal(batch.count, 0);
    return page;
}

static enum status encode_range(const struct page *page, const struct page_form *form, void *tools,
                                struct buffer *out) {
    (void)form;
    ++*(size_t *)tools;
    return buffer_printf(out, "%zu frames, %llu to %llu of %llu", page->batch.count,
                         (unsigned long long)page->batch.after_seq,
                         (unsigned long long)page->batch.through_seq,
                         (unsigned long long)page->head_seq);
}

static enum status encode_nothing(const struct page *page, const struct page_form *form,
                                  void *tools, struct buffer *out) {
    (void)page;
    (void)out;
    (void)form;
    ++*(size_t *)tools;
    return STATUS_OK;
}

static void a_form_is_encoded_once_for_all_connections(void **state) {
    (void)state;
    struct page *page = make_page(3);
    const struct page_form form = {.bytes_max = 100, .encode = encode_range};
    const struct page_form other = {.bytes_max = 100, .encode = encode_nothing};
    struct push *pushes[3];
    size_t encoded = 0;
    for (size_t i = 0; i < 3; i++)
        assert_ok(page_push(page, &form, &encoded, &pushes[i]));
    assert_int_equal(encoded, 1);
    assert_ptr_equal(pushes[0], pushes[2]);
    assert_int_equal(pushes[0]->references, 4);
    assert_slice(((struct slice){pushes[0]->data, pushes[0]->size}), "3 frames, 10 to 13 of 99");
    struct push *empty;
    assert_ok(page_push(page, &other, &encoded, &empty));
    assert_int_equal(encoded, 2);
    assert_int_equal(empty->size, 0);
    push_unref(empty);
    page_free(page);
    /* A push that the socket has not taken outlives the page. */
    assert_int_equal(pushes[0]->references, 3);
    for (size_t i = 0; i < 3; i++)
        push_unref(pushes[i]);
}

static void a_form_without_room_is_encoded_for_each_connection(void **state) {
    (void)state;
    struct page *page = make_page(1);
    struct page_form forms[PAGE_FORMS_MAX + 1];
    struct push *pushes[2];
    size_t encoded = 0;
    for (size_t i = 0; i <= PAGE_FORMS_MAX; i++)
        forms[i] = (struct page_form){.bytes_max = 100, .encode = encode_range};
    for (size_t i = 0; i <= PAGE_FORMS_MAX; i++)
        for (size_t twice = 0; twice < 2; twice++) {
            assert_ok(page_push(page, &forms[i], &encoded, &pushes[0]));
            push_unref(pushes[0]);
        }
    assert_int_equal(encoded, PAGE_FORMS_MAX + 2);
    for (size_t i = 0; i < 2; i++)
        assert_ok(page_push(page, &forms[PAGE_FORMS_MAX], &encoded, &pushes[i]));
    page_free(page);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pushes[i]->references, 1);
        push_unref(pushes[i]);
    }
}

static enum status encode_large(const struct page *page, const struct page_form *form, void *tools,
                                struct buffer *out) {
    (void)page;
    (void)form;
    size_t size = *(size_t *)tools;
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < size; i++)
        status = buffer_append_byte(out, 'x');
    return status;
}

/* The memory of a push is enlarged for a dialect that adds more than expected. */
static void a_push_may_be_larger_than_expected(void **state) {
    (void)state;
    size_t size = 4u << 20;
    const struct page_form form = {.bytes_max = 4u << 20, .encode = encode_large};
    struct page *page = make_page(1);
    struct push *push;
    assert_ok(page_push(page, &form, &size, &push));
    assert_int_equal(push->size, size);
    assert_int_equal(push->data[size - 1], 'x');
    push_unref(push);
    page_free(page);
}

static void a_form_that_cannot_be_made_is_tried_again(void **state) {
    (void)state;
    struct page *page = make_page(1);
    const struct page_form narrow = {.bytes_max = 4, .encode = encode_range};
    const struct page_form wide = {.bytes_max = 100, .encode = encode_range};
    struct push *push = NULL;
    size_t encoded = 0;
    assert_int_equal(page_push(page, &narrow, &encoded, &push), STATUS_PAYLOAD_TOO_LARGE);
    assert_null(push);
    assert_ok(page_push(page, &wide, &encoded, &push));
    assert_int_equal(encoded, 2);
    push_unref(push);
    page_free(page);
}

static void a_page_suits_principals_that_may_read_all_of_it(void **state) {
    (void)state;
    struct page *mixed = make_page(2);
    assert_true(page_suits(mixed, &operator_all, GRANT_VIEW_ALL));
    assert_false(page_suits(mixed, &user, GRANT_VIEW_OWN));
    assert_false(page_suits(mixed, &guest, GRANT_VIEW_OWN));
    page_free(mixed);
    struct page *guests = make_page(1);
    assert_true(page_suits(guests, &guest, GRANT_VIEW_OWN));
    assert_false(page_suits(guests, &user, GRANT_VIEW_OWN));
    page_free(guests);
    struct page *empty = make_page(0);
    assert_true(page_suits(empty, &guest, GRANT_VIEW_OWN));
    page_free(empty);
}

static void a_page_with_hidden_frames_suits_no_other_principal(void **state) {
    (void)state;
    struct delivery_batch batch;
    struct page *page;
    fill(&batch, 3);
    frame_unref(batch.frames[1]);
    batch.frames[1] = batch.frames[2];
    batch.count = 2;
    assert_ok(page_make(&page, SLICE("t"), 13, &batch));
    assert_false(page_suits(page, &operator_all, GRANT_VIEW_ALL));
    assert_false(page_suits(page, &guest, GRANT_VIEW_OWN));
    page_free(page);
}

/* One that folds would get fewer frames than are in a plain page, and the other none that is
 * folded.
 */
static void a_page_is_for_readers_that_would_get_the_same(void **state) {
    (void)state;
    enum { BOTH = PAGE_READER_PLAIN | PAGE_READER_FOLDING };
    static const struct {
        size_t count;
        bool is_folding; /* the reader */
        bool has_folded; /* its last frame stands for two events */
        unsigned readers;
    } rows[] = {
        {1, false, false, BOTH},
        {3, false, false, PAGE_READER_PLAIN},
        {1, true, false, BOTH},
        {3, true, false, BOTH},
        {1, true, true, PAGE_READER_FOLDING},
        {3, true, true, PAGE_READER_FOLDING},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct delivery_batch batch;
        struct page *page;
        fill(&batch, rows[i].count);
        batch.is_folded = rows[i].is_folding;
        if (rows[i].has_folded) {
            batch.frames[batch.count - 1]->content.seq++;
            batch.through_seq++;
        }
        assert_ok(page_make(&page, SLICE("t"), 99, &batch));
        assert_int_equal(page->readers, rows[i].readers);
        assert_true(page_suits(page, &operator_all, GRANT_VIEW_ALL));
        page_free(page);
    }
}

static void the_frames_are_freed_with_their_page(void **state) {
    (void)state;
    struct delivery_batch batch;
    struct page *page;
    fill(&batch, 1);
    struct frame *frame = frame_ref(batch.frames[0]);
    assert_ok(page_make(&page, SLICE("t"), 11, &batch));
    delivery_batch_release(&batch); /* is empty: releases nothing */
    assert_int_equal(atomic_load(&frame->references), 2);
    page_free(page);
    assert_int_equal(atomic_load(&frame->references), 1);
    frame_unref(frame);
}

/* The name that a stream was bound to ends with the subscription that made the page. */
static void a_page_outlives_the_name_of_its_topic(void **state) {
    (void)state;
    char name[] = "a.b";
    struct delivery_batch batch;
    struct page *page;
    fill(&batch, 1);
    assert_ok(page_make(&page, slice_of(name), 11, &batch));
    memset(name, 'x', 3);
    assert_slice(page->topic, "a.b");
    page_free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_form_is_encoded_once_for_all_connections),
        cmocka_unit_test(a_form_without_room_is_encoded_for_each_connection),
        cmocka_unit_test(a_page_outlives_the_name_of_its_topic),
        cmocka_unit_test(a_form_that_cannot_be_made_is_tried_again),
        cmocka_unit_test(a_push_may_be_larger_than_expected),
        cmocka_unit_test(a_page_suits_principals_that_may_read_all_of_it),
        cmocka_unit_test(a_page_with_hidden_frames_suits_no_other_principal),
        cmocka_unit_test(a_page_is_for_readers_that_would_get_the_same),
        cmocka_unit_test(the_frames_are_freed_with_their_page),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
