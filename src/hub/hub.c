/* A topic belongs to the shard that its key hashes to. A shard has a lock, its topics in the order
 * of their last frames, and its share of the memory. Locks are taken in the order shard, listeners.
 * A watch in the list of a topic is valid under the lock of the shard, because hub_unwatch takes
 * it. */
#include "hub/hub.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/map.h"
#include "hub/frame.h"
#include "projector/summary.h"
#include "topic/stream_id.h"

#define NAME_BYTES_MAX 1024

struct hub_topic {
    struct shard *shard;
    struct slice key;
    uint64_t head_seq;
    uint64_t oldest_seq;    /* frames below it were pruned; 0: not known */
    uint64_t edition;       /* changes when frames are pruned or the journal is rebuilt */
    uint64_t journal_epoch; /* as announced last; UINT64_MAX: not known */
    bool is_published;      /* frames were added by commits, not only by reads */
    struct window window;
    struct replay *replay;     /* frames read again; NULL: none */
    struct folded_list folded; /* frames that stand for several events, and those between them */
    struct hlist watches;      /* a list of struct hub_watch */
    struct list_node age;      /* in shard.by_age */
    uint64_t unwatched_frames; /* since the last watch was removed */
    char text[];
};

/* The replayed frames of a topic have the memory of at most so many windows. Clients that replay
 * together are megabytes apart, because their sockets hold that much. */
#define REPLAY_WINDOWS 2

struct shard {
    pthread_mutex_t lock;
    struct map topics;
    struct list by_age; /* a list of struct hub_topic, least recent frame first */
    size_t bytes;
};

struct hub {
    struct hub_options options;
    size_t replay_bytes_max; /* for one topic */
    size_t shard_bytes_max;
    struct slice projection_version;
    struct siphash_key secret;
    atomic_size_t topic_count; /* 0: publishing costs nothing */
    pthread_mutex_t listeners_lock;
    struct list listeners;
    struct arena names; /* the writer's */
    struct owner_map *owner_map;
    struct shard shards[HUB_SHARDS];
};

/* ---- open and close ---- */

enum status hub_open(struct hub **hub, const struct hub_options *options) {
    enum status status = STATUS_OUT_OF_MEMORY;
    struct hub *made = calloc(1, sizeof(*made));
    if (!made)
        return status;
    arena_init(&made->names, HUB_NAMES_BYTES_MAX);
    if (!arena_alloc(&made->names, NAME_BYTES_MAX) || owner_map_open(&made->owner_map) != STATUS_OK)
        goto out;
    made->options = *options;
    made->projection_version = SLICE(PROJECTION_VERSION_DEFAULT);
    made->shard_bytes_max = options->bytes_max / HUB_SHARDS;
    /* A topic gets at most half of its shard, or each frame would evict the one before. */
    if (made->options.window.bytes_max > made->shard_bytes_max / 2)
        made->options.window.bytes_max = made->shard_bytes_max / 2;
    /* Both windows of a topic together leave a quarter of the shard to others. */
    size_t left = made->shard_bytes_max / 4 * 3 - made->options.window.bytes_max;
    made->replay_bytes_max = REPLAY_WINDOWS * made->options.window.bytes_max;
    if (made->replay_bytes_max > left)
        made->replay_bytes_max = left;
    made->secret = siphash_process_key();
    pthread_mutex_init(&made->listeners_lock, NULL);
    list_init(&made->listeners);
    for (size_t i = 0; i < HUB_SHARDS; i++) {
        pthread_mutex_init(&made->shards[i].lock, NULL);
        map_init(&made->shards[i].topics, MAP_COUNT_MAX);
        list_init(&made->shards[i].by_age);
    }
    *hub = made;
    made = NULL;
    status = STATUS_OK;
out:
    if (made)
        arena_release(&made->names);
    free(made);
    return status;
}

void hub_set_projection_version(struct hub *hub, struct slice version) {
    assert(hub_is_empty(hub));
    hub->projection_version = version;
}

struct slice hub_projection_version(const struct hub *hub) {
    return hub->projection_version;
}

struct owner_map *hub_owner_map(const struct hub *hub) {
    return hub->owner_map;
}

/* ---- topics; under the lock of the shard ---- */

static void touch(struct hub_topic *topic) {
    list_remove(&topic->age);
    list_push_back(&topic->shard->by_age, &topic->age);
}

static size_t fixed_bytes(const struct hub_topic *topic) {
    return sizeof(*topic) + topic->key.size;
}

static void forget_replay(struct hub_topic *topic) {
    topic->shard->bytes -= replay_bytes(topic->replay);
    replay_forget(topic->replay);
    topic->shard->bytes += replay_bytes(topic->replay);
}

static void forget_folded(struct hub_topic *topic) {
    topic->shard->bytes -= topic->folded.bytes;
    folded_release(&topic->folded);
}

static void forget_windows(struct hub_topic *topic) {
    topic->shard->bytes -= topic->window.bytes;
    window_clear(&topic->window);
    forget_replay(topic);
    forget_folded(topic);
}

static void topic_free(struct hub *hub, struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    assert(!topic->watches.first && !topic->replay);
    (void)map_remove(&shard->topics, topic->key);
    list_remove(&topic->age);
    forget_windows(topic);
    shard->bytes -= fixed_bytes(topic);
    free(topic);
    atomic_fetch_sub(&hub->topic_count, 1);
}

/* Evicts the least recent topics first. An unwatched topic is freed, a watched one loses its
 * frames. */
static void make_room(struct hub *hub, struct shard *shard, const struct hub_topic *kept) {
    struct list_node *node = list_first(&shard->by_age);
    while (node && shard->bytes > hub->shard_bytes_max) {
        struct hub_topic *topic = container_of(node, struct hub_topic, age);
        node = list_next(&shard->by_age, node);
        if (topic != kept && topic->watches.first)
            forget_windows(topic);
        else if (topic != kept)
            topic_free(hub, topic);
    }
}

/* Several names of application topics have one stream id, and at most one of them exists. The
 * stream id is the key for all of them, so that a subscriber of the stream, or of another of its
 * names, notices when the topic appears. */
static struct slice key_of(struct slice name, char text[STREAM_ID_BYTES_MAX]) {
    struct buffer stream = buffer_over(text, STREAM_ID_BYTES_MAX);
    if (topic_kind_of(name, NULL) != TOPIC_APPLICATION ||
        topic_to_stream(name, &stream) != STATUS_OK)
        return name;
    return buffer_slice(&stream);
}

static struct shard *shard_of(struct hub *hub, struct slice key) {
    return &hub->shards[siphash(hub->secret, key) % HUB_SHARDS];
}

static enum status topic_make(struct hub *hub, struct shard *shard, struct slice key,
                              struct hub_topic **topic) {
    struct hub_topic *made = calloc(1, sizeof(*made) + key.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->shard = shard;
    made->journal_epoch = UINT64_MAX;
    memcpy(made->text, key.data, key.size);
    made->key = (struct slice){made->text, key.size};
    enum status status = map_insert(&shard->topics, made->key, made);
    if (status != STATUS_OK) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    list_push_back(&shard->by_age, &made->age);
    shard->bytes += fixed_bytes(made);
    atomic_fetch_add(&hub->topic_count, 1);
    *topic = made;
    return STATUS_OK;
}

void hub_close(struct hub *hub) {
    assert(list_is_empty(&hub->listeners));
    for (size_t i = 0; i < HUB_SHARDS; i++) {
        struct shard *shard = &hub->shards[i];
        for (struct list_node *node; (node = list_first(&shard->by_age));)
            topic_free(hub, container_of(node, struct hub_topic, age));
        map_release(&shard->topics);
        pthread_mutex_destroy(&shard->lock);
    }
    pthread_mutex_destroy(&hub->listeners_lock);
    owner_map_close(hub->owner_map);
    arena_release(&hub->names);
    free(hub);
}

/* ---- listeners ---- */

void hub_listen(struct hub *hub, struct hub_listener *listener, void (*wake)(void *user),
                void *user) {
    *listener = (struct hub_listener){.hub = hub, .wake = wake, .user = user};
    list_init(&listener->advanced);
    pthread_mutex_lock(&hub->listeners_lock);
    list_push_back(&hub->listeners, &listener->node);
    pthread_mutex_unlock(&hub->listeners_lock);
}

void hub_unlisten(struct hub_listener *listener) {
    struct hub *hub = listener->hub;
    pthread_mutex_lock(&hub->listeners_lock);
    assert(listener->count == 0);
    list_remove(&listener->node);
    pthread_mutex_unlock(&hub->listeners_lock);
}

/* Under the lock of the listeners. */
static void advanced_remove(struct hub_watch *watch) {
    list_remove(&watch->advanced);
    watch->listener->count--;
}

size_t hub_listener_begin(struct hub_listener *listener) {
    pthread_mutex_lock(&listener->hub->listeners_lock);
    listener->is_woken = false;
    size_t count = listener->count;
    pthread_mutex_unlock(&listener->hub->listeners_lock);
    return count;
}

struct hub_watch *hub_listener_next(struct hub_listener *listener) {
    pthread_mutex_lock(&listener->hub->listeners_lock);
    struct list_node *node = list_first(&listener->advanced);
    struct hub_watch *watch = node ? container_of(node, struct hub_watch, advanced) : NULL;
    if (watch)
        advanced_remove(watch);
    pthread_mutex_unlock(&listener->hub->listeners_lock);
    return watch;
}

/* Wakes the listeners that have advanced topics and were not woken yet. */
static void wake_listeners(struct hub *hub) {
    pthread_mutex_lock(&hub->listeners_lock);
    for (struct list_node *node = list_first(&hub->listeners); node;
         node = list_next(&hub->listeners, node)) {
        struct hub_listener *listener = container_of(node, struct hub_listener, node);
        if (listener->count == 0 || listener->is_woken)
            continue;
        listener->is_woken = true;
        listener->wake(listener->user);
    }
    pthread_mutex_unlock(&hub->listeners_lock);
}

/* ---- watching ---- */

enum status hub_watch(struct hub_listener *listener, struct slice name, struct hub_watch *watch) {
    char text[STREAM_ID_BYTES_MAX];
    struct slice key = key_of(name, text);
    struct hub *hub = listener->hub;
    struct shard *shard = shard_of(hub, key);
    enum status status = STATUS_OK;
    pthread_mutex_lock(&shard->lock);
    struct hub_topic *topic = map_find(&shard->topics, key);
    if (!topic)
        status = topic_make(hub, shard, key, &topic);
    if (status == STATUS_OK) {
        *watch = (struct hub_watch){.topic = topic, .listener = listener};
        hlist_push_front(&topic->watches, &watch->node);
        topic->unwatched_frames = 0;
        make_room(hub, shard, topic);
    }
    pthread_mutex_unlock(&shard->lock);
    return status;
}

void hub_unwatch(struct hub_watch *watch) {
    struct hub *hub = watch->listener->hub;
    struct hub_topic *topic = watch->topic;
    struct shard *shard = topic->shard;
    pthread_mutex_lock(&shard->lock);
    hlist_remove(&watch->node);
    pthread_mutex_lock(&hub->listeners_lock);
    if (list_node_is_linked(&watch->advanced))
        advanced_remove(watch);
    pthread_mutex_unlock(&hub->listeners_lock);
    /* A topic with new frames stays for clients that come back, until it is evicted. One whose
     * frames were only read would cost the writer a frame for each event that no client waits for.
     * One with folded frames stays for the next reader, without a window, until it changes.
     */
    bool is_idle = !topic->watches.first && (topic->window.count == 0 || !topic->is_published);
    if (is_idle && topic->folded.count > 0) {
        shard->bytes -= topic->window.bytes;
        window_clear(&topic->window);
    } else if (is_idle) {
        topic_free(hub, topic);
    }
    pthread_mutex_unlock(&shard->lock);
}

struct slice hub_watch_key(const struct hub_watch *watch) {
    return watch->topic->key;
}

void hub_learn_head(struct hub_watch *watch, uint64_t head_seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    if (head_seq > topic->head_seq)
        topic->head_seq = head_seq;
    pthread_mutex_unlock(&topic->shard->lock);
}

uint64_t hub_head_seq(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    uint64_t head_seq = topic->head_seq;
    pthread_mutex_unlock(&topic->shard->lock);
    return head_seq;
}

uint64_t hub_first_seq(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    uint64_t first_seq = topic->window.count > 0 ? topic->window.first_seq : UINT64_MAX;
    pthread_mutex_unlock(&topic->shard->lock);
    return first_seq;
}

enum hub_take_result hub_take(struct hub_watch *watch, struct hub_take *take) {
    struct hub_topic *topic = watch->topic;
    enum hub_take_result result = HUB_FRAMES;
    size_t bytes = 0;
    take->count = 0;
    pthread_mutex_lock(&topic->shard->lock);
    take->head_seq = topic->head_seq;
    take->edition = topic->edition;
    const struct window *window = NULL;
    replay_place place;
    take->is_replay = false;
    if (window_at(&topic->window, take->next_seq)) {
        window = &topic->window;
    } else if ((place = replay_find(topic->replay, take->next_seq)) > 0) {
        window = replay_window(topic->replay, place);
        take->is_replay = true;
        /* The subscriber joins the place that it takes frames from. */
        topic->shard->bytes -= replay_bytes(topic->replay);
        if (take->place)
            replay_join(&topic->replay, take->place, place);
        topic->shard->bytes += replay_bytes(topic->replay);
    }
    if (take->next_seq > topic->head_seq)
        result = HUB_AT_HEAD;
    else if (!window)
        result = HUB_BELOW;
    while (result == HUB_FRAMES && take->count < take->count_max) {
        struct frame *frame = window_at(window, take->next_seq + take->count);
        if (!frame || (take->count > 0 && bytes + frame->content.payload.size > take->bytes_max))
            break;
        bytes += frame->content.payload.size;
        take->frames[take->count++] = frame_ref(frame);
    }
    pthread_mutex_unlock(&topic->shard->lock);
    return result;
}

bool hub_take_folded(struct hub_watch *watch, struct hub_take *take) {
    struct hub_topic *topic = watch->topic;
    struct folded_list *list = &topic->folded;
    size_t bytes = 0;
    take->count = 0;
    pthread_mutex_lock(&topic->shard->lock);
    take->head_seq = topic->head_seq;
    take->edition = topic->edition;
    take->is_replay = true;
    size_t begin = folded_find(list, take->next_seq);
    for (size_t i = begin; i < list->count && take->count < take->count_max; i++) {
        bytes += list->frames[i]->content.payload.size;
        if (take->count > 0 && bytes > take->bytes_max)
            break;
        take->frames[take->count++] = frame_ref(list->frames[i]);
    }
    if (take->count > 0)
        list->is_used = true;
    pthread_mutex_unlock(&topic->shard->lock);
    return take->count > 0;
}

void hub_keep_folded(struct hub_watch *watch, const struct replay_page *page, uint64_t edition,
                     size_t payload_bytes_max) {
    struct hub *hub = watch->listener->hub;
    struct hub_topic *topic = watch->topic;
    struct shard *shard = topic->shard;
    assert(page->count > 0);
    pthread_mutex_lock(&shard->lock);
    if (edition == topic->edition) {
        shard->bytes -= topic->folded.bytes;
        folded_add(&topic->folded, page->frames, page->count, hub->options.window.bytes_max,
                   payload_bytes_max);
        shard->bytes += topic->folded.bytes;
        make_room(hub, shard, topic);
        if (shard->bytes > hub->shard_bytes_max)
            forget_folded(topic);
    }
    pthread_mutex_unlock(&shard->lock);
}

bool hub_holds_folded(struct hub_watch *watch, uint64_t first_seq) {
    struct hub_topic *topic = watch->topic;
    const struct folded_list *list = &topic->folded;
    pthread_mutex_lock(&topic->shard->lock);
    bool holds = list->count > 0 && (first_seq == 0 || folded_find(list, first_seq) < list->count);
    pthread_mutex_unlock(&topic->shard->lock);
    return holds;
}

/* ---- replaying ---- */

void hub_replay_end(struct hub_watch *watch, replay_place *place) {
    struct hub_topic *topic = watch->topic;
    if (*place == 0)
        return;
    pthread_mutex_lock(&topic->shard->lock);
    topic->shard->bytes -= replay_bytes(topic->replay);
    replay_leave(&topic->replay, place);
    topic->shard->bytes += replay_bytes(topic->replay);
    pthread_mutex_unlock(&topic->shard->lock);
}

uint64_t hub_edition(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    uint64_t edition = topic->edition;
    pthread_mutex_unlock(&topic->shard->lock);
    return edition;
}

/* A frame that was read shares a block of memory, which it would hold as long as it stays. So the
 * window gets a copy. */
static bool add_front(struct hub *hub, struct hub_topic *topic, const struct frame *frame) {
    struct frame *copy = frame_copy(frame);
    if (copy && window_push_front(&topic->window, copy, &hub->options.window))
        return true;
    if (copy)
        frame_unref(copy);
    return false;
}

/* Adds the page and what was replayed before it, the newest frames first. True if the window has
 * the whole page afterwards. */
static bool extend_window(struct hub *hub, struct hub_topic *topic,
                          const struct replay_page *page) {
    struct window *window = &topic->window;
    struct shard *shard = topic->shard;
    replay_place place;
    uint64_t end_seq = page->frames[page->count - 1]->content.seq + 1;
    uint64_t begin_seq = window->count > 0 ? window->first_seq : topic->head_seq + 1;
    if (end_seq != begin_seq)
        return false;
    size_t left = page->count;
    shard->bytes -= window->bytes;
    while (left > 0 && add_front(hub, topic, page->frames[left - 1]))
        left--;
    while (left == 0 && (place = replay_find(topic->replay, window->first_seq - 1)) > 0 &&
           add_front(hub, topic,
                     window_at(replay_window(topic->replay, place), window->first_seq - 1)))
        continue;
    shard->bytes += window->bytes;
    touch(topic);
    make_room(hub, shard, topic);
    if (shard->bytes > hub->shard_bytes_max)
        forget_windows(topic);
    return window_at(window, page->frames[0]->content.seq);
}

static bool extend_replay(struct hub *hub, struct hub_topic *topic, const struct replay_page *page,
                          replay_place *place) {
    struct shard *shard = topic->shard;
    replay_place none = 0;
    shard->bytes -= replay_bytes(topic->replay);
    bool is_kept =
        replay_add(&topic->replay, page, place ? place : &none, place, hub->replay_bytes_max);
    shard->bytes += replay_bytes(topic->replay);
    if (!is_kept)
        return false;
    touch(topic);
    make_room(hub, shard, topic);
    if (shard->bytes <= hub->shard_bytes_max)
        return true;
    forget_replay(topic);
    return false;
}

bool hub_refill(struct hub_watch *watch, const struct replay_page *page, uint64_t edition,
                replay_place *place) {
    struct hub *hub = watch->listener->hub;
    struct hub_topic *topic = watch->topic;
    assert(page->count > 0);
    pthread_mutex_lock(&topic->shard->lock);
    bool is_kept = edition == topic->edition &&
                   (extend_window(hub, topic, page) || extend_replay(hub, topic, page, place));
    pthread_mutex_unlock(&topic->shard->lock);
    return is_kept;
}

bool hub_holds(struct hub_watch *watch, uint64_t seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    bool holds = window_at(&topic->window, seq) || replay_find(topic->replay, seq) > 0;
    pthread_mutex_unlock(&topic->shard->lock);
    return holds;
}

/* Frames that the window has are not read ahead. */
bool hub_read_ahead_begin(struct hub_watch *watch, uint64_t next_seq, size_t near_count,
                          uint64_t *after_seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    bool begins = replay_read_ahead(topic->replay, next_seq, near_count, after_seq);
    if (begins && (*after_seq >= topic->head_seq || window_at(&topic->window, *after_seq + 1))) {
        replay_read_ahead_end(topic->replay, *after_seq);
        begins = false;
    }
    pthread_mutex_unlock(&topic->shard->lock);
    return begins;
}

void hub_read_ahead_end(struct hub_watch *watch, uint64_t after_seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    replay_read_ahead_end(topic->replay, after_seq);
    pthread_mutex_unlock(&topic->shard->lock);
}

/* ---- publishing ---- */

bool hub_is_empty(struct hub *hub) {
    return atomic_load(&hub->topic_count) == 0;
}

/* NULL, with nothing locked, for a topic that is not in the hub. One that is there for its folded
 * frames alone leaves with the first change. */
static struct hub_topic *topic_lock(struct hub *hub, struct slice name) {
    char text[STREAM_ID_BYTES_MAX];
    struct slice key = key_of(name, text);
    struct shard *shard = shard_of(hub, key);
    pthread_mutex_lock(&shard->lock);
    struct hub_topic *topic = map_find(&shard->topics, key);
    if (topic && !topic->watches.first && topic->window.count == 0 && topic->folded.count > 0) {
        topic_free(hub, topic);
        topic = NULL;
    }
    if (!topic)
        pthread_mutex_unlock(&shard->lock);
    return topic;
}

/* Takes over the frame. NULL, if the frame could not be made, empties the window. */
static void topic_add(struct hub *hub, struct hub_topic *topic, uint64_t seq, struct frame *frame) {
    struct shard *shard = topic->shard;
    shard->bytes -= topic->window.bytes;
    if (!frame) {
        window_clear(&topic->window);
    } else if (window_at(&topic->window, seq)) {
        /* A subscriber read it before it was announced. */
        frame_unref(frame);
    } else {
        window_push(&topic->window, frame, &hub->options.window);
        topic->is_published = true;
    }
    shard->bytes += topic->window.bytes;
    if (seq > topic->head_seq)
        topic->head_seq = seq;
    if (!topic->watches.first)
        topic->unwatched_frames++;
}

/* Announces the topic to its listeners. */
static void topic_unlock(struct hub *hub, struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    pthread_mutex_lock(&hub->listeners_lock);
    for (struct hlist_node *node = topic->watches.first; node; node = node->next) {
        struct hub_watch *watch = container_of(node, struct hub_watch, node);
        if (list_node_is_linked(&watch->advanced))
            continue;
        list_push_back(&watch->listener->advanced, &watch->advanced);
        watch->listener->count++;
    }
    pthread_mutex_unlock(&hub->listeners_lock);
    touch(topic);
    if (topic->unwatched_frames > hub->options.window.frames_max) {
        topic_free(hub, topic);
        topic = NULL;
    }
    make_room(hub, shard, topic);
    /* A single topic may be larger than the share of its shard. */
    if (topic && shard->bytes > hub->shard_bytes_max)
        forget_windows(topic);
    pthread_mutex_unlock(&shard->lock);
}

void hub_prune(struct hub *hub, struct slice name, uint64_t oldest_seq) {
    if (hub_is_empty(hub))
        return;
    struct hub_topic *topic = topic_lock(hub, name);
    if (!topic)
        return;
    struct shard *shard = topic->shard;
    if (oldest_seq > topic->oldest_seq) {
        topic->oldest_seq = oldest_seq;
        topic->edition++;
    }
    forget_folded(topic);
    shard->bytes -= topic->window.bytes + replay_bytes(topic->replay);
    window_drop_below(&topic->window, oldest_seq);
    replay_drop_below(topic->replay, oldest_seq);
    shard->bytes += topic->window.bytes + replay_bytes(topic->replay);
    if (!topic->watches.first && topic->window.count == 0)
        topic_free(hub, topic);
    pthread_mutex_unlock(&shard->lock);
}

struct hub_stats hub_stats(struct hub *hub) {
    struct hub_stats stats = {.topics = atomic_load(&hub->topic_count)};
    for (size_t i = 0; i < HUB_SHARDS; i++) {
        pthread_mutex_lock(&hub->shards[i].lock);
        stats.bytes += hub->shards[i].bytes;
        pthread_mutex_unlock(&hub->shards[i].lock);
    }
    return stats;
}

/* ---- publishing a commit ---- */

/* states[i] is the entity of events[i]. */
struct commit {
    const struct store_batch *batch;
    const struct store_entity *states;
    uint64_t now_ns; /* when the commit was durable */
};

/* The frame that was made with that status, or NULL: it is read from the store later. */
static struct frame *published(const struct commit *commit, enum status status,
                               struct frame *frame) {
    if (status != STATUS_OK)
        return NULL;
    frame->committed_ns = commit->now_ns;
    return frame;
}

/* Consecutive events of one entity are added under one lock. */
static size_t publish_entity(struct hub *hub, const struct commit *commit, size_t begin) {
    const struct store_batch *batch = commit->batch;
    const struct store_event *first = &batch->events[begin];
    size_t end = begin;
    struct slice name;
    while (end < batch->event_count && batch->events[end].entity_ref == first->entity_ref)
        end++;
    struct arena *arena = &hub->names;
    arena_reset(arena);
    enum status status = topic_name_of_entity(arena, first->entity_kind, first->entity_id, &name);
    /* hub_open reserved the memory, so that no event is lost for lack of it. */
    assert(status == STATUS_OK);
    (void)status;
    struct hub_topic *topic = topic_lock(hub, name);
    if (!topic)
        return end;
    const struct frame_topic of = {name, hub_projection_version(hub)};
    for (size_t i = begin; i < end; i++) {
        struct frame *frame = NULL;
        enum status made =
            frame_of_event(&of, &batch->events[i], &commit->states[i].owner, NULL, &frame);
        topic_add(hub, topic, batch->events[i].seq, published(commit, made, frame));
    }
    topic_unlock(hub, topic);
    return end;
}

/* Rows of a topic are in order and end with its new head. Each topic takes one walk over the rows,
 * which needs no memory. */
static void publish_rows(struct hub *hub, const struct commit *commit,
                         const struct store_topic *advanced) {
    const struct store_batch *batch = commit->batch;
    struct hub_topic *topic = topic_lock(hub, advanced->name);
    const struct frame_topic of = {advanced->name, hub_projection_version(hub)};
    uint64_t first_log_id = batch->event_count > 0 ? batch->events[0].log_id : UINT64_MAX;
    bool is_last = false;
    if (!topic)
        return;
    for (size_t i = 0; !is_last && i < batch->journal_count; i++) {
        const struct store_journal_row *row = &batch->journal[i];
        if (row->topic_ref != advanced->ref)
            continue;
        struct frame *frame = NULL;
        /* Otherwise the event is of an earlier commit: the frame is read from the store. */
        if (row->log_id >= first_log_id && row->log_id - first_log_id < batch->event_count) {
            size_t index = (size_t)(row->log_id - first_log_id);
            enum status made = frame_of_row(&of, row, &batch->events[index],
                                            &commit->states[index].owner, NULL, &frame);
            frame = published(commit, made, frame);
        }
        topic_add(hub, topic, row->seq, frame);
        is_last = row->seq == advanced->head_seq;
    }
    /* A journal that was rebuilt, or that another node wrote: its frames are in the store. */
    if (!is_last) {
        if (topic->journal_epoch != advanced->journal_epoch) {
            topic->edition++;
            forget_folded(topic);
        }
        topic->journal_epoch = advanced->journal_epoch;
        topic_add(hub, topic, advanced->head_seq, NULL);
    }
    topic_unlock(hub, topic);
}

static void publish_log(struct hub *hub, const struct commit *commit) {
    const struct store_batch *batch = commit->batch;
    struct hub_topic *topic = batch->event_count > 0 ? topic_lock(hub, SLICE(LOG_TOPIC)) : NULL;
    if (!topic)
        return;
    for (size_t i = 0; i < batch->event_count; i++) {
        struct frame *frame = NULL;
        enum status made = frame_of_log(&batch->events[i], &commit->states[i].owner, NULL, &frame);
        topic_add(hub, topic, batch->events[i].log_id, published(commit, made, frame));
    }
    topic_unlock(hub, topic);
}

void hub_publish(struct hub *hub, const struct store_batch *batch,
                 const struct store_entity *states) {
    if (hub_is_empty(hub))
        return;
    const struct commit commit = {batch, states, clock_now().mono_ns};
    for (size_t i = 0; i < batch->event_count;)
        i = publish_entity(hub, &commit, i);
    for (size_t i = 0; i < batch->topic_count; i++)
        if (batch->topics[i].entity_ref == 0)
            publish_rows(hub, &commit, &batch->topics[i]);
    publish_log(hub, &commit);
    wake_listeners(hub);
}

void hub_advance(struct hub *hub, struct slice name, uint64_t head_seq) {
    if (hub_is_empty(hub))
        return;
    struct hub_topic *topic = topic_lock(hub, name.data ? name : SLICE(LOG_TOPIC));
    if (!topic)
        return;
    topic_add(hub, topic, head_seq, NULL);
    topic_unlock(hub, topic);
    wake_listeners(hub);
}
