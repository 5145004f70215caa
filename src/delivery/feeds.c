#include "delivery/feeds.h"

#include <assert.h>
#include <stdlib.h>

#include "base/list.h"

struct feed {
    struct hub_watch watch;
    struct feeds *feeds;
    struct feed_member *members;
    struct page *page;
    struct feed *paged_previous; /* among those that have a page */
    struct feed *paged_next;
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
    *(feed->paged_previous ? &feed->paged_previous->paged_next : &feed->feeds->paged) =
        feed->paged_next;
    if (feed->paged_next)
        feed->paged_next->paged_previous = feed->paged_previous;
}

static void feed_advanced(struct feed *feed) {
    /* It knows an older head: who is in line already is told of the new one by the next page only,
     * and would take itself to be done with this one. */
    if (feed->page)
        page_drop(feed);
    for (struct feed_member *member = feed->members, *next; member; member = next) {
        /* With its last member the feed goes too. */
        next = member->next;
        member->advanced(member);
    }
}

static void run_advanced(struct loop_task *task) {
    struct feeds *feeds = container_of(task, struct feeds, advanced);
    for (size_t count = hub_listener_begin(&feeds->listener); count > 0; count--) {
        struct hub_watch *watch = hub_listener_next(&feeds->listener);
        if (!watch)
            return;
        feed_advanced((struct feed *)watch);
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
    member->previous = NULL;
    member->next = feed->members;
    if (feed->members)
        feed->members->previous = member;
    feed->members = member;
    return STATUS_OK;
}

void feed_leave(struct feed_member *member) {
    struct feed *feed = member->feed;
    *(member->previous ? &member->previous->next : &feed->members) = member->next;
    if (member->next)
        member->next->previous = member->previous;
    member->feed = NULL;
    if (feed->members)
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
    feed->paged_previous = NULL;
    feed->paged_next = feeds->paged;
    if (feeds->paged)
        feeds->paged->paged_previous = feed;
    feeds->paged = feed;
}

void feeds_forget_pages(struct feeds *feeds) {
    while (feeds->paged)
        page_drop(feeds->paged);
}

struct hub_watch *feed_watch(struct feed *feed) {
    return &feed->watch;
}
