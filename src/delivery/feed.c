/* A commit posts one task to the loop, and the hub lists the topics that advanced. For each of them
 * the feed wakes the members that read everything. On a shared topic it then takes each new frame
 * from the hub once and wakes the members that are listed under its owner. Each of those has an
 * entry for every key of its principal, in buckets by key. If frames have left the hub's memory
 * before the feed saw them, it wakes all members. A member that has reached the head is settled: it
 * is woken for every later frame that it may see, so its position may move without a look at the
 * others. */
#include "delivery/feed.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "delivery/selection.h"
#include "topic/policy.h"
#include "topic/topic_name.h"

#define BUCKETS_FIRST 8
/* Frames that are examined together. */
#define FRAMES_MAX 64
/* hidden_seq of a member that was not woken since it settled: no frame is for it, up to the last
 * one that the feed has handled. */
#define FEED_SEEN UINT64_MAX

struct feed {
    struct hub_watch watch;
    struct feed_topic topic;
    struct feeds *feeds;
    struct feed_members members;
    size_t member_count;
    bool is_shared;          /* each frame has its own owner */
    bool has_settled;        /* a member that is listed by owner has reached the head */
    bool is_waking;          /* its members are being woken: it must not be freed */
    uint64_t seen_seq;       /* listed members were woken for their frames up to here */
    struct uuid seen_cursor; /* the cursor of that frame; 0: not known */
    struct hlist pages;      /* the most recently used first */
    size_t page_count;
    char name[]; /* of an application topic, for which the hub keeps its stream id */
};

/* ---- topics ---- */

void shared_epoch_unref(struct shared_epoch *epoch) {
    if (epoch && --epoch->references == 0)
        free(epoch);
}

static void shared_epoch_set(struct shared_epoch **place, struct shared_epoch *epoch) {
    epoch->references++;
    shared_epoch_unref(*place);
    *place = epoch;
}

enum status feed_topic_set_epoch(struct feed_topic *topic, const struct topic_epoch *epoch,
                                 struct shared_epoch **place) {
    if (!topic->epoch || strcmp(topic->epoch->epoch.text, epoch->text) != 0) {
        struct shared_epoch *made = malloc(sizeof(*made));
        if (!made)
            return STATUS_OUT_OF_MEMORY;
        *made = (struct shared_epoch){.epoch = *epoch};
        shared_epoch_set(&topic->epoch, made);
    }
    shared_epoch_set(place, topic->epoch);
    return STATUS_OK;
}

const struct policy *feed_topic_policy(struct feed_topic *topic) {
    unsigned generation = topic->policies ? policy_generation(topic->policies) : 0;
    if (topic->policies && (!topic->policy || generation != topic->policy_generation)) {
        topic->policy = policy_of(topic->policies, topic->name);
        topic->policy_generation = generation;
    }
    return topic->policy;
}

void feed_topic_release(struct feed_topic *topic) {
    shared_epoch_unref(topic->epoch);
    topic->epoch = NULL;
}

/* ---- members by owner ---- */

static struct feed_entry *entry_of(struct hlist_node *node) {
    return container_of(node, struct feed_entry, node);
}

static struct feed_member *member_of(struct feed_entry *entry) {
    return container_of(entry - entry->slot, struct feed_listing, entries[0])->member;
}

static struct hlist *bucket_of(const struct feed_members *members, uint32_t key) {
    return &members->buckets[key & (members->bucket_count - 1)];
}

void feed_members_release(struct feed_members *members) {
    assert(feed_members_is_empty(members));
    free(members->buckets);
}

bool feed_members_is_empty(const struct feed_members *members) {
    return !members->all.first && members->entry_count == 0;
}

/* Without memory for more buckets, the old ones only get fuller. */
static enum status make_room(struct feed_members *members) {
    size_t count = members->bucket_count > 0 ? 2 * members->bucket_count : BUCKETS_FIRST;
    struct hlist *old = members->buckets;
    size_t old_count = members->bucket_count;
    if (members->entry_count + PRINCIPAL_KEYS_MAX <= old_count || (old && members->walks > 0))
        return STATUS_OK;
    struct hlist *made = calloc(count, sizeof(*made));
    if (!made)
        return old ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    members->buckets = made;
    members->bucket_count = count;
    for (size_t i = 0; old && i < old_count; i++)
        for (struct hlist_node *node = old[i].first, *next; node; node = next) {
            next = node->next;
            hlist_remove(node);
            hlist_push_front(bucket_of(members, entry_of(node)->key), node);
        }
    free(old);
    return STATUS_OK;
}

enum status feed_members_add(struct feed_members *members, struct feed_member *member,
                             const struct principal *principal, enum grant_view view) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    if (view != GRANT_VIEW_OWN || principal->read_all) {
        hlist_push_front(&members->all, &member->node);
        return STATUS_OK;
    }
    enum status status = make_room(members);
    if (status != STATUS_OK)
        return status;
    member->listing = calloc(1, sizeof(*member->listing));
    if (!member->listing)
        return STATUS_OUT_OF_MEMORY;
    member->listing->member = member;
    size_t count = principal_keys(principal, keys);
    for (size_t i = 0; i < count; i++) {
        struct feed_entry *entry = &member->listing->entries[i];
        entry->key = keys[i];
        entry->slot = (uint32_t)i;
        hlist_push_front(bucket_of(members, keys[i]), &entry->node);
    }
    members->entry_count += count;
    return STATUS_OK;
}

void feed_members_remove(struct feed_members *members, struct feed_member *member) {
    struct feed_listing *listing = member->listing;
    if (!listing) {
        hlist_remove(&member->node);
        return;
    }
    for (size_t i = 0; i < PRINCIPAL_KEYS_MAX; i++) {
        struct feed_entry *entry = &listing->entries[i];
        if (!hlist_node_is_linked(&entry->node))
            continue;
        hlist_remove(&entry->node);
        members->entry_count--;
    }
    free(listing);
    member->listing = NULL;
}

/* Visits the member of this entry. Returns the next entry that is of another member, because the
 * visit may end this one, which may have two entries in a bucket. */
static struct hlist_node *visit_entry(struct hlist_node *node, feed_visit *visit, void *user) {
    struct feed_member *member = member_of(entry_of(node));
    do
        node = node->next;
    while (node && member_of(entry_of(node)) == member);
    visit(member, user);
    return node;
}

void feed_members_visit_owner(struct feed_members *members, const struct owner *owner,
                              feed_visit *visit, void *user) {
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    size_t count = members->buckets ? owner_keys(owner, keys) : 0;
    members->walks++;
    for (size_t i = 0; i < count; i++)
        for (struct hlist_node *node = bucket_of(members, keys[i])->first; node;)
            node = entry_of(node)->key == keys[i] ? visit_entry(node, visit, user) : node->next;
    members->walks--;
}

void feed_members_visit_all(struct feed_members *members, feed_visit *visit, void *user) {
    members->walks++;
    for (struct hlist_node *node = members->all.first, *next; node; node = next) {
        next = node->next;
        visit(container_of(node, struct feed_member, node), user);
    }
    members->walks--;
}

void feed_members_visit_listed(struct feed_members *members, feed_visit *visit, void *user) {
    members->walks++;
    for (size_t i = 0; i < members->bucket_count; i++)
        for (struct hlist_node *node = members->buckets[i].first; node;)
            node = entry_of(node)->slot == 0 ? visit_entry(node, visit, user) : node->next;
    members->walks--;
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

struct page *feed_page(struct feed *feed, uint64_t after_seq, const struct page_key *key) {
    for (struct page *page = page_of(feed->pages.first); page;
         page = page_of(page->feed_node.next)) {
        if (page->batch.after_seq != after_seq || !(page->readers & key->reader) ||
            !selection_equal(page->batch.selection, key->selection))
            continue;
        hlist_remove(&page->feed_node);
        list_remove(&page->age_node);
        page_link(feed, page);
        return page;
    }
    return NULL;
}

void feed_page_add(struct feed *feed, struct page *page) {
    static const enum page_reader readers[] = {PAGE_READER_PLAIN, PAGE_READER_FOLDING};
    struct feeds *feeds = feed->feeds;
    struct page *dropped = NULL;
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        const struct page_key key = {readers[i], page->batch.selection};
        struct page *old =
            page->readers & readers[i] ? feed_page(feed, page->batch.after_seq, &key) : NULL;
        if (old)
            page_drop(old);
    }
    if (feed->page_count == FEED_PAGES_MAX)
        for (struct page *each = page_of(feed->pages.first); each;
             each = page_of(each->feed_node.next))
            dropped = each; /* at last the one that was used least recently */
    if (dropped)
        page_drop(dropped);
    page->feed = feed;
    page->round = feeds->round;
    /* The frames and one form of them. The first and the last frame may each keep a block. */
    bool is_replay = page->batch.count > 0 && page->batch.frames[0]->block;
    page->kept_bytes = sizeof(*page) + (is_replay ? 2 * FRAME_BLOCK_BYTES : 0);
    for (size_t i = 0; i < page->batch.count; i++)
        page->kept_bytes += 2 * page->batch.frames[i]->bytes;
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
    feed_members_release(&feed->members);
    free(feed);
}

/* ---- waking ---- */

struct wake {
    uint64_t hidden_seq; /* no frame up to here is for a member that was not woken yet */
    bool is_gap;         /* the frames that follow were not seen */
};

static void wake_member(struct feed_member *member, void *user) {
    struct feed_listing *listing = member->listing;
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

/* Wakes the members that are listed by owner for the frames that are new. */
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
            const struct frame_content *content = &frames[i]->content;
            struct wake wake = {content->seq - 1, false};
            feed_members_visit_owner(&feed->members, &content->owner, wake_member, &wake);
            feed->seen_seq = content->seq;
            feed->seen_cursor = content->cursor;
            frame_unref(frames[i]);
        }
        /* The next frame is not in memory. A store read that knows the head of a commit before the
         * hub does is no reason to wake anyone: the hub will announce that frame. */
        if (result == HUB_BELOW && hub_first_seq(&feed->watch) > feed->seen_seq) {
            struct wake wake = {feed->seen_seq, true};
            feed_members_visit_listed(&feed->members, wake_member, &wake);
            see_up_to(feed, take.head_seq);
        }
    } while (result == HUB_FRAMES);
}

static void run_advanced(struct loop_task *task) {
    struct feeds *feeds = container_of(task, struct feeds, advanced);
    for (size_t count = hub_listener_begin(&feeds->listener); count > 0; count--) {
        struct hub_watch *watch = hub_listener_next(&feeds->listener);
        if (!watch)
            return;
        struct feed *feed = container_of(watch, struct feed, watch);
        struct wake wake = {0, true};
        drop_last_pages(feed);
        feed->is_waking = true;
        feed_members_visit_all(&feed->members, wake_member, &wake);
        if (feed->members.entry_count > 0)
            wake_listed(feed);
        feed->is_waking = false;
        if (feed->member_count == 0)
            feed_free(feed);
    }
}

static void post_advanced(void *user) {
    struct feeds *feeds = user;
    /* A loop that ended has no members left to wake. */
    enum status status = io_loop_post(feeds->loop, &feeds->advanced);
    assert(status == STATUS_OK || status == STATUS_SHUTTING_DOWN);
    (void)status;
}

void feeds_open(struct feeds *feeds, struct io_loop *loop, struct hub *hub) {
    feeds->loop = loop;
    feeds->advanced.run = run_advanced;
    map_init(&feeds->by_name, MAP_COUNT_MAX);
    list_init(&feeds->pages);
    hub_listen(hub, &feeds->listener, post_advanced, feeds);
}

void feeds_close(struct feeds *feeds) {
    assert(feeds->by_name.count == 0);
    hub_unlisten(&feeds->listener);
    map_release(&feeds->by_name);
}

/* ---- joining ---- */

/* The names of topics that clients wait for are many, so only the hub keeps the text of others. */
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

enum status feed_join(struct feeds *feeds, struct slice topic, struct feed_member *member,
                      const struct principal *principal, enum grant_view view) {
    struct feed *feed = map_find(&feeds->by_name, topic);
    if (!feed)
        feed = feed_make(feeds, topic);
    if (!feed)
        return STATUS_OUT_OF_MEMORY;
    bool is_first = feed->members.entry_count == 0;
    member->node = (struct hlist_node){0};
    member->listing = NULL;
    /* All frames of another topic have one owner. */
    enum status status = feed_members_add(&feed->members, member, principal,
                                          feed->is_shared ? view : GRANT_VIEW_ALL);
    if (status != STATUS_OK) {
        if (feed->member_count == 0 && !feed->is_waking)
            feed_free(feed);
        return status;
    }
    if (member->listing)
        member->listing->own_count = FEED_UNKNOWN;
    /* No member was listed, so none missed the frames before. */
    if (member->listing && is_first) {
        see_up_to(feed, hub_head_seq(&feed->watch));
        feed->has_settled = false;
    }
    member->feed = feed;
    feed->member_count++;
    return STATUS_OK;
}

void feed_leave(struct feed_member *member) {
    struct feed *feed = member->feed;
    feed_members_remove(&feed->members, member);
    member->feed = NULL;
    if (--feed->member_count == 0 && !feed->is_waking)
        feed_free(feed);
}

void feed_settled(struct feed_member *member, uint64_t head_seq) {
    struct feed *feed = member->feed;
    if (!member->listing)
        return;
    /* The hub may not have known the head of the topic before. Members that have not settled
     * examine every frame, so the first one that does sets where waking begins. */
    if (!feed->has_settled && head_seq > feed->seen_seq)
        see_up_to(feed, head_seq);
    feed->has_settled = true;
    member->listing->hidden_seq = FEED_SEEN;
    member->listing->own_count = 0;
}

void feed_taken(struct feed_member *member, size_t count) {
    struct feed_listing *listing = member->listing;
    if (listing && listing->own_count != FEED_UNKNOWN)
        listing->own_count = count < listing->own_count ? listing->own_count - (uint32_t)count : 0;
}

uint32_t feed_own_count(const struct feed_member *member) {
    return member->listing ? member->listing->own_count : FEED_UNKNOWN;
}

uint64_t feed_hidden_seq(const struct feed_member *member, const struct uuid **cursor) {
    static const struct uuid none;
    const struct feed *feed = member->feed;
    const struct feed_listing *listing = member->listing;
    bool is_seen = listing && listing->hidden_seq == FEED_SEEN;
    *cursor = is_seen && uuid_compare(&feed->seen_cursor, &none) != 0 ? &feed->seen_cursor : NULL;
    if (is_seen)
        return feed->seen_seq;
    return listing ? listing->hidden_seq : 0;
}

struct feed_topic *feed_topic(struct feed *feed) {
    return &feed->topic;
}
