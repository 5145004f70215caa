#include "delivery/causes.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/siphash.h"
#include "base/utf8.h"

/* The texts of a cause, cut to their room. */
struct entry {
    struct cause cause;
    char connection[CAUSE_CONNECTION_BYTES_MAX];
    char principal[CAUSE_PRINCIPAL_BYTES_MAX];
    char peer[CAUSE_PEER_BYTES_MAX];
    char topic[TOPIC_NAME_BYTES_MAX];
};

/* Apart from the entries: looking for the one that gives way reads all of these. */
struct place {
    struct place *older;
    struct place *newer;
    uint64_t who;
    uint64_t taken_at_ms;
    bool is_taken;
    bool is_named; /* by a principal */
};

struct causes {
    pthread_mutex_t lock;
    struct siphash_key secret;
    size_t capacity;
    struct place *places; /* all in one line, the free ones as the oldest */
    struct place *oldest;
    struct place *newest;
    struct entry entries[];
};

/* ---- the line ---- */

static void line_leave(struct causes *causes, struct place *place) {
    *(place->older ? &place->older->newer : &causes->oldest) = place->newer;
    *(place->newer ? &place->newer->older : &causes->newest) = place->older;
}

static void line_join(struct causes *causes, struct place *place) {
    place->older = causes->newest;
    place->newer = NULL;
    *(causes->newest ? &causes->newest->newer : &causes->oldest) = place;
    causes->newest = place;
}

enum status causes_open(struct causes **causes, size_t capacity) {
    assert(capacity > 0);
    struct causes *made = calloc(1, sizeof(*made) + capacity * sizeof(made->entries[0]));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->places = calloc(capacity, sizeof(made->places[0]));
    if (!made->places) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->capacity = capacity;
    made->secret = siphash_process_key();
    for (size_t i = 0; i < capacity; i++)
        line_join(made, &made->places[i]);
    pthread_mutex_init(&made->lock, NULL);
    *causes = made;
    return STATUS_OK;
}

void causes_close(struct causes *causes) {
    if (!causes)
        return;
    pthread_mutex_destroy(&causes->lock);
    free(causes->places);
    free(causes);
}

/* What is not text shows as such, and a cut may make it so. */
static struct slice keep(struct slice text, char *room, size_t room_size) {
    if (!text.data)
        return text;
    size_t size = text.size < room_size ? text.size : room_size;
    memcpy(room, text.data, size);
    if (!utf8_valid((struct slice){room, size}))
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)room[i] >= 0x80)
                room[i] = '?';
    return (struct slice){room, size};
}

static void entry_fill(struct entry *entry, const struct cause *cause) {
    entry->cause = *cause;
    entry->cause.connection = keep(cause->connection, entry->connection, sizeof(entry->connection));
    entry->cause.principal = keep(cause->principal, entry->principal, sizeof(entry->principal));
    entry->cause.peer = keep(cause->peer, entry->peer, sizeof(entry->peer));
    entry->cause.topic = keep(cause->topic, entry->topic, sizeof(entry->topic));
}

/* ---- places ---- */

static size_t share_of_one(const struct causes *causes) {
    return causes->capacity / 16 > 0 ? causes->capacity / 16 : 1;
}

static size_t share_of_unnamed(const struct causes *causes) {
    return causes->capacity / 2 > 0 ? causes->capacity / 2 : 1;
}

/* Of some places: how many, and the one that was taken first. */
struct tally {
    size_t count;
    struct place *oldest;
};

/* In the order of the line. */
static void tally_add(struct tally *tally, struct place *place) {
    if (tally->count++ == 0)
        tally->oldest = place;
}

static struct place *place_for(const struct causes *causes, uint64_t who, bool is_named) {
    struct tally own = {0}, unnamed = {0};
    for (struct place *place = causes->oldest; place; place = place->newer) {
        if (!place->is_taken)
            continue;
        if (place->who == who)
            tally_add(&own, place);
        if (!place->is_named)
            tally_add(&unnamed, place);
    }
    if (own.count >= share_of_one(causes))
        return own.oldest;
    if (!is_named && unnamed.count >= share_of_unnamed(causes))
        return unnamed.oldest;
    return causes->oldest;
}

bool causes_add(struct causes *causes, const struct cause *cause, uint64_t mono_ms) {
    bool is_named = cause->principal.data != NULL;
    uint64_t who = siphash(causes->secret, is_named ? cause->principal : cause->peer);
    assert(cause->status != STATUS_OK);
    pthread_mutex_lock(&causes->lock);
    struct place *place = place_for(causes, who, is_named);
    bool is_paced = !place->is_taken || mono_ms >= place->taken_at_ms + CAUSE_PACE_MS;
    line_leave(causes, place);
    *place =
        (struct place){.who = who, .taken_at_ms = mono_ms, .is_taken = true, .is_named = is_named};
    line_join(causes, place);
    entry_fill(&causes->entries[place - causes->places], cause);
    pthread_mutex_unlock(&causes->lock);
    return is_paced;
}

/* ---- looking ---- */

static bool matches(struct slice wanted, struct slice kept) {
    return !wanted.data || (kept.data && slice_equal(wanted, kept));
}

static bool is_wanted(const struct cause *wanted, const struct cause *cause) {
    return matches(wanted->connection, cause->connection) &&
           matches(wanted->principal, cause->principal) && matches(wanted->topic, cause->topic);
}

void causes_walk(struct causes *causes, const struct cause_filter *filter, void *user,
                 cause_cb *callback) {
    /* Compared as it would have been kept. */
    struct entry wanted;
    entry_fill(&wanted, &(struct cause){.connection = filter->connection,
                                        .principal = filter->principal,
                                        .topic = filter->topic});
    bool goes_on = true;
    pthread_mutex_lock(&causes->lock);
    for (const struct place *place = causes->newest; goes_on && place && place->is_taken;
         place = place->older) {
        const struct cause *cause = &causes->entries[place - causes->places].cause;
        if ((!filter->disconnected_only || cause->kind == CAUSE_DISCONNECTED) &&
            is_wanted(&wanted.cause, cause))
            goes_on = callback(user, cause);
    }
    pthread_mutex_unlock(&causes->lock);
}
