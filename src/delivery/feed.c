/* Entries are in buckets by key. A reader may have two entries, also in the same bucket. */
#include "delivery/feed.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/list.h"
#include "topic/topic_name.h"

/* ---- readers ---- */

#define BUCKETS_FIRST 8

static struct reader_entry *entry_of(struct hlist_node *node) {
    return container_of(node, struct reader_entry, node);
}

static struct reader *reader_of(struct reader_entry *entry) {
    return container_of(entry - entry->slot, struct reader_listing, entries[0])->reader;
}

static struct hlist *bucket_of(const struct readers *readers, uint32_t key) {
    return &readers->buckets[key & (readers->bucket_count - 1)];
}

void readers_release(struct readers *readers) {
    assert(readers_is_empty(readers));
    free(readers->buckets);
}

bool readers_is_empty(const struct readers *readers) {
    return !readers->all.first && readers->entry_count == 0;
}

/* ---- adding and removing ---- */

static void move_entries(struct readers *readers, struct hlist *old, size_t old_count) {
    for (size_t i = 0; i < old_count; i++)
        for (struct hlist_node *node = old[i].first, *next; node; node = next) {
            next = node->next;
            hlist_remove(node);
            hlist_push_front(bucket_of(readers, entry_of(node)->key), node);
        }
}

/* Without memory for more, the old buckets only get fuller. */
static enum status make_room(struct readers *readers) {
    size_t count = readers->bucket_count > 0 ? 2 * readers->bucket_count : BUCKETS_FIRST;
    struct hlist *old = readers->buckets;
    size_t old_count = readers->bucket_count;
    if (readers->entry_count + PRINCIPAL_KEYS_MAX <= old_count || (old && readers->walks > 0))
        return STATUS_OK;
    struct hlist *made = calloc(count, sizeof(*made));
    if (!made)
        return old ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    readers->buckets = made;
    readers->bucket_count = count;
    if (old)
        move_entries(readers, old, old_count);
    free(old);
    return STATUS_OK;
}

void readers_add_to_all(struct readers *readers, struct reader *reader) {
    hlist_push_front(&readers->all, &reader->node);
}

enum status readers_add(struct readers *readers, struct reader *reader,
                        const struct principal *principal, enum grant_view view) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    if (view != GRANT_VIEW_OWN || principal->read_all) {
        readers_add_to_all(readers, reader);
        return STATUS_OK;
    }
    enum status status = make_room(readers);
    if (status != STATUS_OK)
        return status;
    reader->listing = calloc(1, sizeof(*reader->listing));
    if (!reader->listing)
        return STATUS_OUT_OF_MEMORY;
    reader->listing->reader = reader;
    size_t count = principal_keys(principal, keys);
    for (size_t i = 0; i < count; i++) {
        struct reader_entry *entry = &reader->listing->entries[i];
        entry->key = keys[i];
        entry->slot = (uint32_t)i;
        hlist_push_front(bucket_of(readers, keys[i]), &entry->node);
    }
    readers->entry_count += count;
    return STATUS_OK;
}

void readers_remove(struct readers *readers, struct reader *reader) {
    struct reader_listing *listing = reader->listing;
    if (!listing) {
        hlist_remove(&reader->node);
        return;
    }
    for (size_t i = 0; i < PRINCIPAL_KEYS_MAX; i++) {
        struct reader_entry *entry = &listing->entries[i];
        if (!hlist_node_is_linked(&entry->node))
            continue;
        hlist_remove(&entry->node);
        readers->entry_count--;
    }
    free(listing);
    reader->listing = NULL;
}

/* ---- visits ---- */

/* Visits the reader of this entry. Returns the next entry that is of another reader, because the
 * visit may end this one. */
static struct hlist_node *visit_entry(struct hlist_node *node, reader_visit *visit, void *user) {
    struct reader *reader = reader_of(entry_of(node));
    do
        node = node->next;
    while (node && reader_of(entry_of(node)) == reader);
    visit(reader, user);
    return node;
}

static void visit_key(struct readers *readers, uint32_t key, reader_visit *visit, void *user) {
    if (!readers->buckets)
        return;
    for (struct hlist_node *node = bucket_of(readers, key)->first; node;)
        node = entry_of(node)->key == key ? visit_entry(node, visit, user) : node->next;
}

void readers_visit_owner(struct readers *readers, const struct owner *owner, reader_visit *visit,
                         void *user) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    size_t count = owner_keys(owner, keys);
    readers->walks++;
    for (size_t i = 0; i < count; i++)
        visit_key(readers, keys[i], visit, user);
    readers->walks--;
}

void readers_visit_all(struct readers *readers, reader_visit *visit, void *user) {
    readers->walks++;
    for (struct hlist_node *node = readers->all.first, *next; node; node = next) {
        next = node->next;
        visit(container_of(node, struct reader, node), user);
    }
    readers->walks--;
}

void readers_visit_listed(struct readers *readers, reader_visit *visit, void *user) {
    readers->walks++;
    for (size_t i = 0; i < readers->bucket_count; i++)
        for (struct hlist_node *node = readers->buckets[i].first; node;)
            node = entry_of(node)->slot == 0 ? visit_entry(node, visit, user) : node->next;
    readers->walks--;
}

/* ---- feeds ---- */

void feed_topic_release(struct feed_topic *topic) {
    shared_epoch_unref(topic->epoch);
    topic->epoch = NULL;
}

/* Frames that are looked at together. */
#define FRAMES_MAX 64

/* For a settled member that is listed by owner: no frame behind its position and up to hidden_seq
 * is for it. FEED_SEEN: up to the last frame that the feed has handled. */
#define FEED_SEEN UINT64_MAX

struct feed {
    struct hub_watch watch;
    struct feed_topic topic;
    struct feeds *feeds;
    struct readers readers;
    size_t member_count;
    bool is_shared;          /* each frame has its own owner */
    bool has_settled;        /* a reader that is listed by owner has reached the head */
    bool is_waking;          /* its members are being woken: it must not be freed */
    uint64_t seen_seq;       /* readers listed by owner were woken for their frames up to here */
    struct uuid seen_cursor; /* of that frame; 0: not known */
    struct hlist pages;      /* the most recently used first */
    size_t page_count;
    char name[]; /* of an application topic, for which the hub keeps its stream id */
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
    list_init(&feeds->pages);
    hub_listen(hub, &feeds->listener, wake, feeds);
}

void feeds_close(struct feeds *feeds) {
    assert(feeds->by_name.count == 0);
    hub_unlisten(&feeds->listener);
    map_release(&feeds->by_name);
}

/* ---- pages ---- */

static struct page *page_of(struct hlist_node *node) {
    return node ? container_of(node, struct page, feed_node) : NULL;
}

static void page_drop(struct page *page) {
    struct feed *feed = page->feed;
    feed->page_count--;
    feed->feeds->page_bytes -= page->kept_bytes;
    hlist_remove(&page->feed_node);
    list_remove(&page->age_node);
    page_free(page);
}

static void page_link(struct feed *feed, struct page *page) {
    hlist_push_front(&feed->pages, &page->feed_node);
    list_push_back(&feed->feeds->pages, &page->age_node);
}

struct page *feed_page(struct feed *feed, uint64_t after_seq) {
    for (struct page *page = page_of(feed->pages.first); page;
         page = page_of(page->feed_node.next)) {
        if (page->batch.after_seq != after_seq)
            continue;
        hlist_remove(&page->feed_node);
        list_remove(&page->age_node);
        page_link(feed, page);
        return page;
    }
    return NULL;
}

static struct page *least_recent(const struct feed *feed) {
    struct page *page = page_of(feed->pages.first);
    while (page && page->feed_node.next)
        page = page_of(page->feed_node.next);
    return page;
}

/* Its frames and one form of it. The first and the last frame may each keep a block. */
static size_t bytes_of(const struct page *page) {
    bool is_replay = page->batch.count > 0 && page->batch.frames[0]->block;
    size_t bytes = sizeof(*page) + (is_replay ? 2 * FRAME_BLOCK_BYTES : 0);
    for (size_t i = 0; i < page->batch.count; i++)
        bytes += 2 * page->batch.frames[i]->bytes;
    return bytes;
}

void feed_page_add(struct feed *feed, struct page *page) {
    struct feeds *feeds = feed->feeds;
    struct page *same = feed_page(feed, page->batch.after_seq);
    if (same)
        page_drop(same);
    else if (feed->page_count == FEED_PAGES_MAX)
        page_drop(least_recent(feed));
    page->feed = feed;
    page->round = feeds->round;
    page->kept_bytes = bytes_of(page);
    feed->page_count++;
    feeds->page_bytes += page->kept_bytes;
    while (feeds->page_bytes > FEED_PAGES_BYTES && list_first(&feeds->pages))
        page_drop(container_of(list_first(&feeds->pages), struct page, age_node));
    page_link(feed, page);
}

void feeds_pages_idle(struct feeds *feeds) {
    feeds->round++;
}

bool feed_page_is_idle(const struct page *page) {
    return page->round != page->feed->feeds->round;
}

/* The page before the head is of an older head. A subscriber that waits for its turn would be sent
 * this page as the last one, and not learn of the new frames. */
static void drop_last_pages(struct feed *feed) {
    for (struct page *page = page_of(feed->pages.first), *next; page; page = next) {
        next = page_of(page->feed_node.next);
        if (page->batch.through_seq >= page->head_seq)
            page_drop(page);
    }
}

static void feed_free(struct feed *feed) {
    while (feed->pages.first)
        page_drop(page_of(feed->pages.first));
    (void)map_remove(&feed->feeds->by_name, feed->topic.name);
    hub_unwatch(&feed->watch);
    feed_topic_release(&feed->topic);
    readers_release(&feed->readers);
    free(feed);
}

/* ---- waking ---- */

struct wake {
    uint64_t hidden_seq; /* no frame up to here is for a member that was not woken yet */
    bool is_gap;         /* the frames that follow were not seen */
};

static void wake_reader(struct reader *reader, void *user) {
    struct feed_member *member = container_of(reader, struct feed_member, reader);
    struct reader_listing *listing = reader->listing;
    const struct wake *wake = user;
    if (listing && listing->hidden_seq == FEED_SEEN)
        listing->hidden_seq = wake->hidden_seq;
    if (listing && wake->is_gap)
        listing->own_count = FEED_UNKNOWN;
    else if (listing && listing->own_count < FEED_UNKNOWN)
        listing->own_count++;
    member->advanced(member);
}

static void see_up_to(struct feed *feed, uint64_t seq) {
    feed->seen_seq = seq;
    feed->seen_cursor = (struct uuid){0};
}

static void see_frame(struct feed *feed, const struct frame *frame) {
    struct wake wake = {frame->content.seq - 1, false};
    readers_visit_owner(&feed->readers, &frame->content.owner, wake_reader, &wake);
    feed->seen_seq = frame->content.seq;
    feed->seen_cursor = frame->content.cursor;
}

/* The next frame is not in memory. A store read that knows the head of a commit before the hub does
 * is no reason to wake anyone: the hub will announce that frame. */
static void see_gap(struct feed *feed, uint64_t head_seq) {
    if (hub_first_seq(&feed->watch) <= feed->seen_seq)
        return;
    struct wake wake = {feed->seen_seq, true};
    readers_visit_listed(&feed->readers, wake_reader, &wake);
    see_up_to(feed, head_seq);
}

/* Wakes the readers that are listed by owner for the frames that are new. */
static void wake_listed(struct feed *feed) {
    struct frame *frames[FRAMES_MAX];
    enum hub_take_result result;
    do {
        struct hub_take take = {.next_seq = feed->seen_seq + 1,
                                .count_max = FRAMES_MAX,
                                .bytes_max = SIZE_MAX,
                                .frames = frames};
        result = hub_take(&feed->watch, &take);
        for (size_t i = 0; i < take.count; i++) {
            see_frame(feed, frames[i]);
            frame_unref(frames[i]);
        }
        if (result == HUB_BELOW)
            see_gap(feed, take.head_seq);
    } while (result == HUB_FRAMES);
}

static void feed_advanced(struct feed *feed) {
    struct wake wake = {0, true};
    drop_last_pages(feed);
    feed->is_waking = true;
    readers_visit_all(&feed->readers, wake_reader, &wake);
    if (feed->readers.entry_count > 0)
        wake_listed(feed);
    feed->is_waking = false;
    if (feed->member_count == 0)
        feed_free(feed);
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

/* Names that wait for their topics are many, so that the text of others is kept once, by the hub.
 */
static struct feed *feed_make(struct feeds *feeds, struct slice topic) {
    enum topic_kind kind = topic_kind_of(topic, NULL);
    bool has_own_name = kind == TOPIC_APPLICATION;
    struct feed *feed = calloc(1, sizeof(*feed) + (has_own_name ? topic.size : 0));
    if (!feed)
        return NULL;
    feed->feeds = feeds;
    feed->is_shared = topic_is_log(topic) || topic_row(kind)->ownership == TOPIC_SHARED;
    if (hub_watch(&feeds->listener, topic, &feed->watch) != STATUS_OK) {
        free(feed);
        return NULL;
    }
    struct slice name = hub_watch_key(&feed->watch);
    if (has_own_name)
        name = (struct slice){memcpy(feed->name, topic.data, topic.size), topic.size};
    if (map_insert(&feeds->by_name, name, feed) != STATUS_OK) {
        hub_unwatch(&feed->watch);
        free(feed);
        return NULL;
    }
    feed->topic = (struct feed_topic){.watch = &feed->watch, .name = name};
    return feed;
}

/* ---- members ---- */

static enum status add_reader(struct feed *feed, struct feed_member *member,
                              const struct principal *principal, enum grant_view view) {
    bool is_first = feed->readers.entry_count == 0;
    if (!feed->is_shared) {
        readers_add_to_all(&feed->readers, &member->reader);
        return STATUS_OK;
    }
    enum status status = readers_add(&feed->readers, &member->reader, principal, view);
    if (member->reader.listing)
        member->reader.listing->own_count = FEED_UNKNOWN;
    /* No reader was listed, so none missed the frames before. */
    if (status == STATUS_OK && is_first && reader_is_listed(&member->reader)) {
        see_up_to(feed, hub_head_seq(&feed->watch));
        feed->has_settled = false;
    }
    return status;
}

enum status feed_join(struct feeds *feeds, struct slice topic, struct feed_member *member,
                      const struct principal *principal, enum grant_view view) {
    struct feed *feed = map_find(&feeds->by_name, topic);
    if (!feed)
        feed = feed_make(feeds, topic);
    if (!feed)
        return STATUS_OUT_OF_MEMORY;
    member->reader = (struct reader){0};
    enum status status = add_reader(feed, member, principal, view);
    if (status == STATUS_OK) {
        member->feed = feed;
        feed->member_count++;
    } else if (feed->member_count == 0 && !feed->is_waking) {
        feed_free(feed);
    }
    return status;
}

void feed_leave(struct feed_member *member) {
    struct feed *feed = member->feed;
    readers_remove(&feed->readers, &member->reader);
    member->feed = NULL;
    if (--feed->member_count == 0 && !feed->is_waking)
        feed_free(feed);
}

void feed_settled(struct feed_member *member, uint64_t head_seq) {
    struct feed *feed = member->feed;
    if (!reader_is_listed(&member->reader))
        return;
    /* The hub may not have known the head of the topic before. Readers that have not settled
     * examine every frame, so the first one that does sets where waking begins. */
    if (!feed->has_settled && head_seq > feed->seen_seq)
        see_up_to(feed, head_seq);
    feed->has_settled = true;
    member->reader.listing->hidden_seq = FEED_SEEN;
    member->reader.listing->own_count = 0;
}

void feed_taken(struct feed_member *member, size_t count) {
    struct reader_listing *listing = member->reader.listing;
    if (listing && listing->own_count != FEED_UNKNOWN)
        listing->own_count = count < listing->own_count ? listing->own_count - (uint32_t)count : 0;
}

uint32_t feed_own_count(const struct feed_member *member) {
    return member->reader.listing ? member->reader.listing->own_count : FEED_UNKNOWN;
}

uint64_t feed_hidden_seq(const struct feed_member *member, const struct uuid **cursor) {
    static const struct uuid none;
    const struct feed *feed = member->feed;
    const struct reader_listing *listing = member->reader.listing;
    bool is_seen = listing && listing->hidden_seq == FEED_SEEN;
    *cursor = is_seen && uuid_compare(&feed->seen_cursor, &none) != 0 ? &feed->seen_cursor : NULL;
    if (is_seen)
        return feed->seen_seq;
    return listing ? listing->hidden_seq : 0;
}

struct feed_topic *feed_topic(struct feed *feed) {
    return &feed->topic;
}
