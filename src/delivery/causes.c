#include "delivery/causes.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/utf8.h"

/* The texts of a cause, cut to their room. */
struct entry {
    struct cause cause;
    char connection[CAUSE_CONNECTION_BYTES_MAX];
    char principal[CAUSE_PRINCIPAL_BYTES_MAX];
    char topic[TOPIC_NAME_BYTES_MAX];
};

struct causes {
    pthread_mutex_t lock;
    size_t capacity;
    uint64_t added;
    struct entry entries[];
};

enum status causes_open(struct causes **causes, size_t capacity) {
    assert(capacity > 0);
    struct causes *made = calloc(1, sizeof(*made) + capacity * sizeof(made->entries[0]));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->capacity = capacity;
    pthread_mutex_init(&made->lock, NULL);
    *causes = made;
    return STATUS_OK;
}

void causes_close(struct causes *causes) {
    if (!causes)
        return;
    pthread_mutex_destroy(&causes->lock);
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
    entry->cause.topic = keep(cause->topic, entry->topic, sizeof(entry->topic));
}

void causes_add(struct causes *causes, const struct cause *cause) {
    assert(cause->status != STATUS_OK);
    pthread_mutex_lock(&causes->lock);
    entry_fill(&causes->entries[causes->added++ % causes->capacity], cause);
    pthread_mutex_unlock(&causes->lock);
}

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
    uint64_t kept = causes->added < causes->capacity ? causes->added : causes->capacity;
    for (uint64_t age = 1; goes_on && age <= kept; age++) {
        const struct cause *cause =
            &causes->entries[(causes->added - age) % causes->capacity].cause;
        if ((!filter->disconnected_only || cause->kind == CAUSE_DISCONNECTED) &&
            is_wanted(&wanted.cause, cause))
            goes_on = callback(user, cause);
    }
    pthread_mutex_unlock(&causes->lock);
}
