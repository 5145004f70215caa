#include "base/mailbox.h"
#include "test.h"

#include <time.h>
#include <unistd.h>

#define SENDER_COUNT 4
#define ITEM_COUNT   100000

struct letter {
    struct mailbox_item item; /* first, so that an item is its letter */
    int sender;
    int index;
};

static void count_wake(void *user) {
    ++*(int *)user;
}

static void items_leave_in_the_order_they_came(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[5] = {0};
    mailbox_init(&mailbox, 100, NULL, NULL);
    assert_null(mailbox_take_all(&mailbox));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++)
            assert_ok(mailbox_post(&mailbox, &letters[i].item));
        struct mailbox_item *item = mailbox_take_all(&mailbox);
        for (int i = 0; i < 5; i++, item = item->next)
            assert_ptr_equal(item, &letters[i].item);
        assert_null(item);
        assert_null(mailbox_take_all(&mailbox));
    }
    mailbox_release(&mailbox);
}

static void only_the_first_item_wakes(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[3] = {0};
    int wake_count = 0;
    mailbox_init(&mailbox, 2, &wake_count, count_wake);
    assert_int_equal(wake_count, 0);
    assert_ok(mailbox_post(&mailbox, &letters[0].item));
    assert_int_equal(wake_count, 1);
    assert_ok(mailbox_post(&mailbox, &letters[1].item));
    assert_int_equal(mailbox_post(&mailbox, &letters[2].item), STATUS_LIMIT_REACHED);
    assert_int_equal(wake_count, 1);
    mailbox_take_all(&mailbox);
    assert_int_equal(wake_count, 1);
    assert_ok(mailbox_post(&mailbox, &letters[2].item));
    assert_int_equal(wake_count, 2);
    mailbox_take_all(&mailbox);
    mailbox_close(&mailbox);
    assert_int_equal(mailbox_post(&mailbox, &letters[0].item), STATUS_SHUTTING_DOWN);
    assert_int_equal(wake_count, 2);
    mailbox_release(&mailbox);
}

static void silent_items_wake_only_when_asked(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[4] = {0};
    int wake_count = 0;
    mailbox_init(&mailbox, 3, &wake_count, count_wake);
    mailbox_wake_for_items(&mailbox);
    assert_int_equal(wake_count, 0);
    assert_ok(mailbox_post_silently(&mailbox, &letters[0].item));
    assert_ok(mailbox_post_silently(&mailbox, &letters[1].item));
    assert_int_equal(wake_count, 0);
    mailbox_wake_for_items(&mailbox);
    mailbox_wake_for_items(&mailbox);
    assert_int_equal(wake_count, 1);
    assert_ok(mailbox_post(&mailbox, &letters[2].item));
    assert_int_equal(wake_count, 1);
    assert_int_equal(mailbox_post_silently(&mailbox, &letters[3].item), STATUS_LIMIT_REACHED);
    mailbox_take_all(&mailbox);
    /* Items that the owner has taken already need no wake-up. */
    mailbox_wake_for_items(&mailbox);
    assert_int_equal(wake_count, 1);
    /* A post of another sender does not wait for the wake-up of a silent one. */
    assert_ok(mailbox_post_silently(&mailbox, &letters[0].item));
    assert_ok(mailbox_post(&mailbox, &letters[1].item));
    assert_int_equal(wake_count, 2);
    struct mailbox_item *item = mailbox_take_all(&mailbox);
    assert_ptr_equal(item, &letters[0].item);
    assert_ptr_equal(item->next, &letters[1].item);
    mailbox_release(&mailbox);
}

static void an_uncounted_item_takes_no_place(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[4] = {0};
    int wake_count = 0;
    mailbox_init(&mailbox, 1, &wake_count, count_wake);
    assert_ok(mailbox_post_uncounted(&mailbox, &letters[0].item));
    assert_ok(mailbox_post(&mailbox, &letters[1].item));
    assert_ok(mailbox_post_uncounted(&mailbox, &letters[2].item));
    assert_int_equal(mailbox_post(&mailbox, &letters[3].item), STATUS_LIMIT_REACHED);
    assert_int_equal(wake_count, 1);
    int count = 0;
    for (struct mailbox_item *item = mailbox_take_all(&mailbox); item; item = item->next)
        assert_ptr_equal(item, &letters[count++].item);
    assert_int_equal(count, 3);
    mailbox_close(&mailbox);
    assert_int_equal(mailbox_post_uncounted(&mailbox, &letters[0].item), STATUS_SHUTTING_DOWN);
    mailbox_release(&mailbox);
}

static void a_full_mailbox_queues_nothing(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[4] = {0};
    mailbox_init(&mailbox, 3, NULL, NULL);
    for (int i = 0; i < 3; i++)
        assert_ok(mailbox_post(&mailbox, &letters[i].item));
    letters[3].item.next = &letters[0].item;
    assert_int_equal(mailbox_post(&mailbox, &letters[3].item), STATUS_LIMIT_REACHED);
    assert_ptr_equal(letters[3].item.next, &letters[0].item);
    int count = 0;
    for (struct mailbox_item *item = mailbox_take_all(&mailbox); item; item = item->next)
        assert_ptr_equal(item, &letters[count++].item);
    assert_int_equal(count, 3);
    assert_ok(mailbox_post(&mailbox, &letters[3].item));
    assert_ptr_equal(mailbox_take_all(&mailbox), &letters[3].item);
    mailbox_release(&mailbox);
}

static void a_closed_mailbox_can_be_emptied(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letters[2] = {0};
    struct mailbox_item *items = NULL;
    mailbox_init(&mailbox, 3, NULL, NULL);
    assert_ok(mailbox_post(&mailbox, &letters[0].item));
    mailbox_close(&mailbox);
    mailbox_close(&mailbox);
    assert_int_equal(mailbox_post(&mailbox, &letters[1].item), STATUS_SHUTTING_DOWN);
    assert_ok(mailbox_wait(&mailbox, MAILBOX_FOREVER, &items));
    assert_ptr_equal(items, &letters[0].item);
    assert_null(items->next);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mailbox_wait(&mailbox, MAILBOX_FOREVER, &items), STATUS_SHUTTING_DOWN);
        assert_null(items);
    }
    mailbox_release(&mailbox);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void a_wait_ends_after_its_time(void **state) {
    (void)state;
    struct mailbox mailbox;
    struct letter letter = {0};
    struct mailbox_item *items = &letter.item;
    mailbox_init(&mailbox, 3, NULL, NULL);
    assert_ok(mailbox_wait(&mailbox, 0, &items));
    assert_null(items);
    int64_t begun_ms = now_ms();
    assert_ok(mailbox_wait(&mailbox, 30, &items));
    assert_null(items);
    assert_true(now_ms() - begun_ms >= 29);
    assert_ok(mailbox_post(&mailbox, &letter.item));
    assert_ok(mailbox_wait(&mailbox, 0, &items));
    assert_ptr_equal(items, &letter.item);
    assert_ok(mailbox_post(&mailbox, &letter.item));
    assert_ok(mailbox_wait(&mailbox, INT64_MAX, &items));
    assert_ptr_equal(items, &letter.item);
    mailbox_release(&mailbox);
}

static void *close_mailbox(void *user) {
    mailbox_close(user);
    return NULL;
}

/* Whichever comes first, the close or the wait: a lost signal would hang here. */
static void closing_ends_a_wait(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct mailbox mailbox;
        struct mailbox_item *items = NULL;
        pthread_t closer;
        mailbox_init(&mailbox, 3, NULL, NULL);
        assert_int_equal(pthread_create(&closer, NULL, close_mailbox, &mailbox), 0);
        assert_int_equal(mailbox_wait(&mailbox, MAILBOX_FOREVER, &items), STATUS_SHUTTING_DOWN);
        pthread_join(closer, NULL);
        mailbox_release(&mailbox);
    }
}

static void *wake_mailbox(void *user) {
    mailbox_wake(user);
    return NULL;
}

/* Also where the mailbox is full, or the wait begins later. */
static void waking_ends_a_wait_without_an_item(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct mailbox mailbox;
        struct letter letter = {0};
        struct mailbox_item *items = &letter.item;
        pthread_t waker;
        mailbox_init(&mailbox, 1, NULL, NULL);
        assert_int_equal(pthread_create(&waker, NULL, wake_mailbox, &mailbox), 0);
        assert_ok(mailbox_wait(&mailbox, MAILBOX_FOREVER, &items));
        assert_null(items);
        pthread_join(waker, NULL);
        mailbox_wake(&mailbox);
        assert_ok(mailbox_post(&mailbox, &letter.item));
        assert_ok(mailbox_wait(&mailbox, MAILBOX_FOREVER, &items));
        assert_ptr_equal(items, &letter.item);
        mailbox_release(&mailbox);
    }
}

/* Tells senders that found the mailbox full when it was emptied. */
struct room {
    pthread_mutex_t lock;
    pthread_cond_t made;
};

struct sender {
    struct mailbox *mailbox;
    struct room *room;
    struct letter *letters;
    int number;
};

/* The mailbox is emptied and then announced, so a sender with the lock cannot miss it. */
static enum status post_when_there_is_room(struct sender *sender, struct mailbox_item *item) {
    enum status status;
    pthread_mutex_lock(&sender->room->lock);
    while ((status = mailbox_post(sender->mailbox, item)) == STATUS_LIMIT_REACHED)
        pthread_cond_wait(&sender->room->made, &sender->room->lock);
    pthread_mutex_unlock(&sender->room->lock);
    return status;
}

static void *send_letters(void *user) {
    struct sender *sender = user;
    for (int i = 0; i < ITEM_COUNT; i++) {
        struct letter *letter = &sender->letters[i];
        letter->sender = sender->number;
        letter->index = i;
        enum status status = mailbox_post(sender->mailbox, &letter->item);
        if (status == STATUS_LIMIT_REACHED)
            status = post_when_there_is_room(sender, &letter->item);
        if (status != STATUS_OK)
            return letter;
    }
    return NULL;
}

struct office {
    struct mailbox mailbox;
    struct room room;
    struct sender senders[SENDER_COUNT];
    pthread_t threads[SENDER_COUNT];
    int next[SENDER_COUNT];
    int count;
};

static void office_open(struct office *office, size_t count_max, void *user,
                        mailbox_wake_cb *wake) {
    mailbox_init(&office->mailbox, count_max, user, wake);
    pthread_mutex_init(&office->room.lock, NULL);
    pthread_cond_init(&office->room.made, NULL);
    office->count = 0;
    for (int i = 0; i < SENDER_COUNT; i++) {
        office->next[i] = 0;
        office->senders[i] = (struct sender){&office->mailbox, &office->room,
                                             calloc(ITEM_COUNT, sizeof(struct letter)), i};
        assert_int_equal(
            pthread_create(&office->threads[i], NULL, send_letters, &office->senders[i]), 0);
    }
}

static void office_read(struct office *office, struct mailbox_item *item) {
    pthread_mutex_lock(&office->room.lock);
    pthread_cond_broadcast(&office->room.made);
    pthread_mutex_unlock(&office->room.lock);
    for (; item; item = item->next, office->count++) {
        const struct letter *letter = (const struct letter *)item;
        assert_int_equal(letter->index, office->next[letter->sender]++);
    }
}

static void office_close(struct office *office) {
    for (int i = 0; i < SENDER_COUNT; i++) {
        void *refused;
        pthread_join(office->threads[i], &refused);
        assert_null(refused);
        assert_int_equal(office->next[i], ITEM_COUNT);
        free(office->senders[i].letters);
    }
    assert_null(mailbox_take_all(&office->mailbox));
    mailbox_release(&office->mailbox);
    pthread_cond_destroy(&office->room.made);
    pthread_mutex_destroy(&office->room.lock);
}

static void a_waiting_owner_gets_all_in_order(void **state) {
    (void)state;
    struct office office;
    office_open(&office, SENDER_COUNT * ITEM_COUNT, NULL, NULL);
    while (office.count < SENDER_COUNT * ITEM_COUNT) {
        struct mailbox_item *items;
        assert_ok(mailbox_wait(&office.mailbox, MAILBOX_FOREVER, &items));
        assert_non_null(items);
        office_read(&office, items);
    }
    office_close(&office);
}

static void nothing_is_lost_when_it_runs_full(void **state) {
    (void)state;
    struct office office;
    office_open(&office, 64, NULL, NULL);
    while (office.count < SENDER_COUNT * ITEM_COUNT) {
        struct mailbox_item *items;
        assert_ok(mailbox_wait(&office.mailbox, 1000, &items));
        office_read(&office, items);
    }
    office_close(&office);
}

static void write_wake(void *user) {
    /* On a sender's thread, where cmocka cannot fail. */
    if (write(*(int *)user, "w", 1) != 1)
        abort();
}

/* As an event loop does it: asleep until woken, one take a wake. */
static void a_woken_owner_gets_all_in_order(void **state) {
    (void)state;
    struct office office;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    office_open(&office, SENDER_COUNT * ITEM_COUNT, &ends[1], write_wake);
    while (office.count < SENDER_COUNT * ITEM_COUNT) {
        char byte;
        assert_int_equal(read(ends[0], &byte, 1), 1);
        struct mailbox_item *items = mailbox_take_all(&office.mailbox);
        assert_non_null(items);
        office_read(&office, items);
    }
    office_close(&office);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    alarm(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_leave_in_the_order_they_came),
        cmocka_unit_test(only_the_first_item_wakes),
        cmocka_unit_test(silent_items_wake_only_when_asked),
        cmocka_unit_test(an_uncounted_item_takes_no_place),
        cmocka_unit_test(a_full_mailbox_queues_nothing),
        cmocka_unit_test(a_closed_mailbox_can_be_emptied),
        cmocka_unit_test(a_wait_ends_after_its_time),
        cmocka_unit_test(closing_ends_a_wait),
        cmocka_unit_test(waking_ends_a_wait_without_an_item),
        cmocka_unit_test(a_waiting_owner_gets_all_in_order),
        cmocka_unit_test(nothing_is_lost_when_it_runs_full),
        cmocka_unit_test(a_woken_owner_gets_all_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
