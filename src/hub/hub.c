/* A topic lives in the part its name hashes to, with the part's lock, its list of topics by the
 * time of their last frame, and its share of the memory. Locks are taken in the order part, then
 * listeners. What a topic's watches point to is valid under its part's lock, since unwatching
 * takes it. */
#include "hub/hub.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "hub/publish.h"

#define NAME_BYTES_MAX 1024

struct hub_topic {
    struct shard *shard;
    struct slice name;
    uint64_t head_seq;
    struct window window;
    struct window replay; /* frames read again */
    size_t replay_count;  /* who reads them */
    bool is_replay_used;  /* since somebody else wanted its place */
    bool is_ahead;        /* somebody reads on behind it */
    struct hub_watch *watches;
    struct hub_topic *newer;
    struct hub_topic *older;
    uint64_t unwatched_frames; /* since the last watch went */
    char text[];
};

struct shard {
    pthread_mutex_t lock;
    struct map topics;
    struct hub_topic *newest;
    struct hub_topic *oldest;
    size_t bytes;
};

struct hub {
    struct hub_options options;
    struct window_limits replay_limits;
    size_t shard_bytes_max;
    struct siphash_key secret;
    atomic_size_t topic_count; /* none: publishing costs nothing */
    pthread_mutex_t listeners_lock;
    struct hub_listener *listeners;
    struct arena names; /* the writer's */
    struct shard shards[HUB_SHARDS];
};

/* ---- life ---- */

enum status hub_open(struct hub **hub, const struct hub_options *options) {
    struct hub *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    arena_init(&made->names, HUB_NAMES_BYTES_MAX);
    if (!arena_alloc(&made->names, NAME_BYTES_MAX)) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->options = *options;
    made->shard_bytes_max = options->bytes_max / HUB_SHARDS;
    /* A topic never needs all of its part's share, or each frame would push out the one before. */
    if (made->options.window.bytes_max > made->shard_bytes_max / 2)
        made->options.window.bytes_max = made->shard_bytes_max / 2;
    /* Both of its windows together neither. */
    made->replay_limits = (struct window_limits){SIZE_MAX, made->options.window.bytes_max};
    if (made->replay_limits.bytes_max > made->shard_bytes_max / 4)
        made->replay_limits.bytes_max = made->shard_bytes_max / 4;
    made->secret = siphash_process_key();
    pthread_mutex_init(&made->listeners_lock, NULL);
    for (size_t i = 0; i < HUB_SHARDS; i++) {
        pthread_mutex_init(&made->shards[i].lock, NULL);
        map_init(&made->shards[i].topics, MAP_COUNT_MAX);
    }
    *hub = made;
    return STATUS_OK;
}

/* ---- topics; under the shard's lock ---- */

static void list_remove(struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    *(topic->newer ? &topic->newer->older : &shard->newest) = topic->older;
    *(topic->older ? &topic->older->newer : &shard->oldest) = topic->newer;
}

static void list_add_newest(struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    topic->newer = NULL;
    topic->older = shard->newest;
    *(shard->newest ? &shard->newest->newer : &shard->oldest) = topic;
    shard->newest = topic;
}

static size_t fixed_bytes(const struct hub_topic *topic) {
    return sizeof(*topic) + topic->name.size;
}

static void forget_replay(struct hub_topic *topic) {
    topic->shard->bytes -= topic->replay.bytes;
    window_clear(&topic->replay);
}

static void forget_windows(struct hub_topic *topic) {
    topic->shard->bytes -= topic->window.bytes;
    window_clear(&topic->window);
    forget_replay(topic);
}

static void topic_free(struct hub *hub, struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    assert(!topic->watches && topic->replay_count == 0);
    (void)map_remove(&shard->topics, topic->name);
    list_remove(topic);
    forget_windows(topic);
    shard->bytes -= fixed_bytes(topic);
    free(topic);
    atomic_fetch_sub(&hub->topic_count, 1);
}

/* The coldest first: windows nobody watches go with their topic, watched ones lose their frames. */
static void make_room(struct hub *hub, struct shard *shard, const struct hub_topic *kept) {
    struct hub_topic *topic = shard->oldest;
    while (topic && shard->bytes > hub->shard_bytes_max) {
        struct hub_topic *newer = topic->newer;
        if (topic != kept && topic->watches)
            forget_windows(topic);
        else if (topic != kept)
            topic_free(hub, topic);
        topic = newer;
    }
}

static struct shard *shard_of(struct hub *hub, struct slice name) {
    return &hub->shards[siphash(hub->secret, name) % HUB_SHARDS];
}

static enum status topic_make(struct hub *hub, struct shard *shard, struct slice name,
                              struct hub_topic **topic) {
    struct hub_topic *made = calloc(1, sizeof(*made) + name.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->shard = shard;
    memcpy(made->text, name.data, name.size);
    made->name = (struct slice){made->text, name.size};
    enum status status = map_insert(&shard->topics, made->name, made);
    if (status != STATUS_OK) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    list_add_newest(made);
    shard->bytes += fixed_bytes(made);
    atomic_fetch_add(&hub->topic_count, 1);
    *topic = made;
    return STATUS_OK;
}

void hub_close(struct hub *hub) {
    assert(!hub->listeners);
    for (size_t i = 0; i < HUB_SHARDS; i++) {
        struct shard *shard = &hub->shards[i];
        while (shard->oldest)
            topic_free(hub, shard->oldest);
        map_release(&shard->topics);
        pthread_mutex_destroy(&shard->lock);
    }
    pthread_mutex_destroy(&hub->listeners_lock);
    arena_release(&hub->names);
    free(hub);
}

/* ---- listeners ---- */

void hub_listen(struct hub *hub, struct hub_listener *listener, void (*wake)(void *user),
                void *user) {
    *listener = (struct hub_listener){.hub = hub, .wake = wake, .user = user};
    pthread_mutex_lock(&hub->listeners_lock);
    listener->next = hub->listeners;
    hub->listeners = listener;
    pthread_mutex_unlock(&hub->listeners_lock);
}

void hub_unlisten(struct hub_listener *listener) {
    struct hub *hub = listener->hub;
    pthread_mutex_lock(&hub->listeners_lock);
    assert(listener->count == 0);
    struct hub_listener **link = &hub->listeners;
    while (*link != listener)
        link = &(*link)->next;
    *link = listener->next;
    pthread_mutex_unlock(&hub->listeners_lock);
}

/* Under the listeners' lock. */
static void advanced_remove(struct hub_watch *watch) {
    struct hub_listener *listener = watch->listener;
    *(watch->advanced_previous ? &watch->advanced_previous->advanced_next : &listener->first) =
        watch->advanced_next;
    *(watch->advanced_next ? &watch->advanced_next->advanced_previous : &listener->last) =
        watch->advanced_previous;
    watch->has_advanced = false;
    listener->count--;
}

static void advanced_add(struct hub_watch *watch) {
    struct hub_listener *listener = watch->listener;
    if (watch->has_advanced)
        return;
    watch->has_advanced = true;
    watch->advanced_next = NULL;
    watch->advanced_previous = listener->last;
    *(listener->last ? &listener->last->advanced_next : &listener->first) = watch;
    listener->last = watch;
    listener->count++;
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
    struct hub_watch *watch = listener->first;
    if (watch)
        advanced_remove(watch);
    pthread_mutex_unlock(&listener->hub->listeners_lock);
    return watch;
}

void hub_wake_listeners(struct hub *hub) {
    pthread_mutex_lock(&hub->listeners_lock);
    for (struct hub_listener *listener = hub->listeners; listener; listener = listener->next) {
        if (listener->count == 0 || listener->is_woken)
            continue;
        listener->is_woken = true;
        listener->wake(listener->user);
    }
    pthread_mutex_unlock(&hub->listeners_lock);
}

/* ---- watching ---- */

enum status hub_watch(struct hub_listener *listener, struct slice name, struct hub_watch *watch) {
    struct hub *hub = listener->hub;
    struct shard *shard = shard_of(hub, name);
    enum status status = STATUS_OK;
    pthread_mutex_lock(&shard->lock);
    struct hub_topic *topic = map_find(&shard->topics, name);
    if (!topic)
        status = topic_make(hub, shard, name, &topic);
    if (status == STATUS_OK) {
        *watch = (struct hub_watch){.topic = topic, .listener = listener, .next = topic->watches};
        topic->watches = watch;
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
    struct hub_watch **link = &topic->watches;
    while (*link != watch)
        link = &(*link)->next;
    *link = watch->next;
    pthread_mutex_lock(&hub->listeners_lock);
    if (watch->has_advanced)
        advanced_remove(watch);
    pthread_mutex_unlock(&hub->listeners_lock);
    /* With frames it stays for who comes back, until it is too old or in the way. */
    if (!topic->watches && topic->window.count == 0)
        topic_free(hub, topic);
    pthread_mutex_unlock(&shard->lock);
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

enum hub_place hub_take(struct hub_watch *watch, struct hub_take *take) {
    struct hub_topic *topic = watch->topic;
    enum hub_place place = HUB_FRAMES;
    const struct window *window = &topic->window;
    size_t bytes = 0;
    take->count = 0;
    pthread_mutex_lock(&topic->shard->lock);
    take->head_seq = topic->head_seq;
    if (take->next_seq > topic->head_seq)
        place = HUB_AT_HEAD;
    else if (!window_at(window, take->next_seq))
        window = &topic->replay;
    if (place == HUB_FRAMES && !window_at(window, take->next_seq))
        place = HUB_BELOW;
    take->is_replay = place == HUB_FRAMES && window == &topic->replay;
    if (take->is_replay)
        topic->is_replay_used = true;
    while (place == HUB_FRAMES && take->count < take->count_max) {
        struct frame *frame = window_at(window, take->next_seq + take->count);
        if (!frame || (take->count > 0 && bytes + frame->content.payload.size > take->bytes_max))
            break;
        bytes += frame->content.payload.size;
        take->frames[take->count++] = frame_ref(frame);
    }
    pthread_mutex_unlock(&topic->shard->lock);
    return place;
}

/* ---- replaying ---- */

void hub_replay_begin(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    topic->replay_count++;
    pthread_mutex_unlock(&topic->shard->lock);
}

void hub_replay_end(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    assert(topic->replay_count > 0);
    if (--topic->replay_count == 0)
        forget_replay(topic);
    pthread_mutex_unlock(&topic->shard->lock);
}

static uint64_t replay_end(const struct hub_topic *topic) {
    return topic->replay.first_seq + topic->replay.count;
}

/* One replay at a time has the window; another gets it when the first has left it alone between two
 * asks. */
static bool may_refill(struct hub_topic *topic, uint64_t first_seq) {
    const struct window *replay = &topic->replay;
    if (topic->replay_count == 0)
        return false;
    bool follows =
        replay->count == 0 || (first_seq >= replay->first_seq && first_seq <= replay_end(topic));
    bool may = follows || !topic->is_replay_used;
    topic->is_replay_used = may;
    if (may && !follows)
        forget_replay(topic);
    return may;
}

bool hub_refill(struct hub_watch *watch, struct frame *const *frames, size_t count) {
    struct hub *hub = watch->listener->hub;
    struct hub_topic *topic = watch->topic;
    struct shard *shard = topic->shard;
    bool is_kept = false;
    assert(count > 0);
    pthread_mutex_lock(&shard->lock);
    if (may_refill(topic, frames[0]->content.seq)) {
        shard->bytes -= topic->replay.bytes;
        for (size_t i = 0; i < count; i++)
            if (topic->replay.count == 0 || frames[i]->content.seq >= replay_end(topic))
                window_push(&topic->replay, frame_ref(frames[i]), &hub->replay_limits);
        shard->bytes += topic->replay.bytes;
        list_remove(topic);
        list_add_newest(topic);
        make_room(hub, shard, topic);
        is_kept = shard->bytes <= hub->shard_bytes_max &&
                  window_at(&topic->replay, frames[0]->content.seq);
        if (!is_kept)
            forget_replay(topic);
    }
    pthread_mutex_unlock(&shard->lock);
    return is_kept;
}

bool hub_holds(struct hub_watch *watch, uint64_t seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    bool holds = window_at(&topic->window, seq) || window_at(&topic->replay, seq);
    pthread_mutex_unlock(&topic->shard->lock);
    return holds;
}

bool hub_ahead_begin(struct hub_watch *watch, uint64_t next_seq, size_t near_count,
                     uint64_t *after_seq) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    uint64_t end_seq = replay_end(topic);
    bool begins = !topic->is_ahead && window_at(&topic->replay, next_seq - 1) &&
                  end_seq - next_seq <= near_count && end_seq <= topic->head_seq &&
                  !window_at(&topic->window, end_seq);
    if (begins) {
        topic->is_ahead = true;
        *after_seq = end_seq - 1;
    }
    pthread_mutex_unlock(&topic->shard->lock);
    return begins;
}

void hub_ahead_end(struct hub_watch *watch) {
    struct hub_topic *topic = watch->topic;
    pthread_mutex_lock(&topic->shard->lock);
    assert(topic->is_ahead);
    topic->is_ahead = false;
    pthread_mutex_unlock(&topic->shard->lock);
}

/* ---- publishing ---- */

bool hub_is_empty(struct hub *hub) {
    return atomic_load(&hub->topic_count) == 0;
}

struct arena *hub_names(struct hub *hub) {
    return &hub->names;
}

struct hub_topic *hub_topic_lock(struct hub *hub, struct slice name) {
    struct shard *shard = shard_of(hub, name);
    pthread_mutex_lock(&shard->lock);
    struct hub_topic *topic = map_find(&shard->topics, name);
    if (!topic)
        pthread_mutex_unlock(&shard->lock);
    return topic;
}

void hub_topic_add(struct hub *hub, struct hub_topic *topic, uint64_t seq, struct frame *frame) {
    struct shard *shard = topic->shard;
    shard->bytes -= topic->window.bytes;
    if (frame)
        window_push(&topic->window, frame, &hub->options.window);
    else
        window_clear(&topic->window);
    shard->bytes += topic->window.bytes;
    if (seq > topic->head_seq)
        topic->head_seq = seq;
    if (!topic->watches)
        topic->unwatched_frames++;
}

void hub_topic_unlock(struct hub *hub, struct hub_topic *topic) {
    struct shard *shard = topic->shard;
    pthread_mutex_lock(&hub->listeners_lock);
    for (struct hub_watch *watch = topic->watches; watch; watch = watch->next)
        advanced_add(watch);
    pthread_mutex_unlock(&hub->listeners_lock);
    list_remove(topic);
    list_add_newest(topic);
    if (topic->unwatched_frames > hub->options.window.frames_max) {
        topic_free(hub, topic);
        topic = NULL;
    }
    make_room(hub, shard, topic);
    /* One topic alone may be more than the share of its part. */
    if (topic && shard->bytes > hub->shard_bytes_max)
        forget_windows(topic);
    pthread_mutex_unlock(&shard->lock);
}

void hub_prune(struct hub *hub, struct slice name, uint64_t oldest_seq) {
    if (hub_is_empty(hub))
        return;
    struct hub_topic *topic = hub_topic_lock(hub, name);
    if (!topic)
        return;
    struct shard *shard = topic->shard;
    shard->bytes -= topic->window.bytes + topic->replay.bytes;
    window_drop_below(&topic->window, oldest_seq);
    window_drop_below(&topic->replay, oldest_seq);
    shard->bytes += topic->window.bytes + topic->replay.bytes;
    if (!topic->watches && topic->window.count == 0)
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
