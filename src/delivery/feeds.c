#include "delivery/feeds.h"

#include <assert.h>
#include <stdlib.h>

#include "base/list.h"

struct feed {
    struct hub_watch watch;
    struct feeds *feeds;
    struct hlist members;
    struct page *page;
    struct hlist_node paged_node; /* among the feeds that have a page */
    size_t name_size;
    char name[];
};

static void wake(void *user) {
    struct feeds *feeds = user;
    /* A loop that ended has no members left to tell. */
    enum status status = io_loop_post(feeds->loop, &feeds->advanced);
    assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
    (void)status;
}

static void run_advanced(struct loop_task *task);

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub) {
    feeds->loop = loop;
    feeds->advanced.run = run_advanced;
    map_init(&feeds->by_name, MAP_COUNT_MAX);
    hub_listen(hub, &feeds->listener, wake, feeds);
}

void feeds_close(struct feeds *feeds) {
    assert(feeds->by_name.count == 0);
    hub_unlisten(&feeds->listener);
    map_release(&feeds->by_name);
}

static void page_drop(struct feed *feed) {
    page_free(feed->page);
    feed->page = NULL;
    hlist_remove(&feed->paged_node);
}

static void feed_advanced(struct feed *feed) {
    /* The page has an older head. A subscriber that waits for its turn would be sent this page as
     * the last one, and not learn of the new frames. */
    if (feed->page)
        page_drop(feed);
    for (struct hlist_node *node = feed->members.first, *next; node; node = next) {
        struct feed_member *member = container_of(node, struct feed_member, node);
        /* The feed may be freed with its last member. */
        next = node->next;
        member->advanced(member);
    }
}

static void run_advanced(struct loop_task *task) {
    struct feeds *feeds = container_of(task, struct feeds, advanced);
    for (size_t count = hub_listener_begin(&feeds->listener); count > 0; count--) {
        struct hub_watch *watch = hub_listener_next(&feeds->listener);
        if (!watch)
            return;
        feed_advanced(container_of(watch, struct feed, watch));
    }
}

static struct feed *feed_make(struct feeds *feeds, struct slice topic) {
    struct feed *feed = calloc(1, sizeof(*feed) + topic.size);
    if (!feed)
        return NULL;
    feed->feeds = feeds;
    feed->name_size = topic.size;
    memcpy(feed->name, topic.data, topic.size);
    struct slice name = {feed->name, topic.size};
    if (map_insert(&feeds->by_name, name, feed) != STATUS_OK) {
        free(feed);
        return NULL;
    }
    if (hub_watch(&feeds->listener, name, &feed->watch) != STATUS_OK) {
        (void)map_remove(&feeds->by_name, name);
        free(feed);
        return NULL;
    }
    return feed;
}

enum status feed_join(struct feeds *feeds, struct slice topic, struct feed_member *member) {
    struct feed *feed = map_find(&feeds->by_name, topic);
    if (!feed)
        feed = feed_make(feeds, topic);
    if (!feed)
        return STATUS_OUT_OF_MEMORY;
    member->feed = feed;
    hlist_push_front(&feed->members, &member->node);
    return STATUS_OK;
}

void feed_leave(struct feed_member *member) {
    struct feed *feed = member->feed;
    hlist_remove(&member->node);
    member->feed = NULL;
    if (feed->members.first)
        return;
    if (feed->page)
        page_drop(feed);
    (void)map_remove(&feed->feeds->by_name, (struct slice){feed->name, feed->name_size});
    hub_unwatch(&feed->watch);
    free(feed);
}

struct slice feed_name(const struct feed *feed) {
    return (struct slice){feed->name, feed->name_size};
}

struct page *feed_page(const struct feed *feed) {
    return feed->page;
}

void feed_page_set(struct feed *feed, struct page *page) {
    struct feeds *feeds = feed->feeds;
    if (feed->page)
        page_drop(feed);
    feed->page = page;
    hlist_push_front(&feeds->paged, &feed->paged_node);
}

void feeds_forget_pages(struct feeds *feeds) {
    while (feeds->paged.first)
        page_drop(container_of(feeds->paged.first, struct feed, paged_node));
}

struct hub_watch *feed_watch(struct feed *feed) {
    return &feed->watch;
}
