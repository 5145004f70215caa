/* Causes are kept in as many slots as there are entries, newest first. A new cause takes the oldest
 * slot of its principal or address if that one has its share, else the oldest of all. Each decision
 * is counted, kept, and logged unless causes of its kind come too fast. */
#include "delivery/telemetry.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/siphash.h"
#include "base/utf8.h"

/* ---- causes ---- */

/* The texts of a cause, truncated to their maximum sizes. */
struct entry {
    struct cause cause;
    char connection[CAUSE_CONNECTION_BYTES_MAX];
    char principal[CAUSE_PRINCIPAL_BYTES_MAX];
    char peer[CAUSE_PEER_BYTES_MAX];
    char topic[STREAM_ID_BYTES_MAX];
    char origin[CAUSE_ORIGIN_BYTES_MAX];
    char build_id[CAUSE_VERSION_BYTES_MAX];
    char protocol_version[CAUSE_VERSION_BYTES_MAX];
    char schema_version[CAUSE_VERSION_BYTES_MAX];
};

/* One for each entry. Kept apart from the entries, because an eviction reads all slots. */
struct slot {
    struct list_node node;
    uint64_t principal_hash; /* or the hash of the address */
    uint64_t filled_at_ms;
    bool is_filled;
    bool has_principal;
};

struct causes {
    pthread_mutex_t lock;
    struct siphash_key secret;
    size_t capacity;
    struct slot *slots;
    struct list order; /* all slots: the newest first, empty slots last */
    struct entry entries[];
};

enum status causes_open(struct causes **causes, size_t capacity) {
    assert(capacity > 0);
    struct causes *made = calloc(1, sizeof(*made) + capacity * sizeof(made->entries[0]));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->slots = calloc(capacity, sizeof(made->slots[0]));
    if (!made->slots) {
        free(made);
        return STATUS_OUT_OF_MEMORY;
    }
    made->capacity = capacity;
    made->secret = siphash_process_key();
    list_init(&made->order);
    for (size_t i = 0; i < capacity; i++)
        list_push_front(&made->order, &made->slots[i].node);
    pthread_mutex_init(&made->lock, NULL);
    *causes = made;
    return STATUS_OK;
}

void causes_close(struct causes *causes) {
    if (!causes)
        return;
    pthread_mutex_destroy(&causes->lock);
    free(causes->slots);
    free(causes);
}

/* Replaces bytes that are not UTF-8, because truncating may split a character. */
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
    entry->cause.origin = keep(cause->origin, entry->origin, sizeof(entry->origin));
    entry->cause.client = (struct cause_client){
        keep(cause->client.build_id, entry->build_id, sizeof(entry->build_id)),
        keep(cause->client.protocol_version, entry->protocol_version,
             sizeof(entry->protocol_version)),
        keep(cause->client.schema_version, entry->schema_version, sizeof(entry->schema_version))};
}

/* ---- eviction ---- */

/* The number of some slots, and the oldest of them. */
struct tally {
    size_t count;
    struct slot *oldest;
};

/* Called for the newest slot first. */
static void tally_add(struct tally *tally, struct slot *slot) {
    tally->count++;
    tally->oldest = slot;
}

static struct slot *slot_for(const struct causes *causes, uint64_t principal_hash,
                             bool has_principal) {
    struct tally same = {0}, unnamed = {0};
    for (struct list_node *node = list_first(&causes->order); node;
         node = list_next(&causes->order, node)) {
        struct slot *slot = container_of(node, struct slot, node);
        if (!slot->is_filled)
            break;
        if (slot->principal_hash == principal_hash)
            tally_add(&same, slot);
        if (!slot->has_principal)
            tally_add(&unnamed, slot);
    }
    /* One principal gets a sixteenth of the slots, all clients without a principal get half. */
    if (same.count > 0 && same.count >= causes->capacity / 16)
        return same.oldest;
    if (!has_principal && unnamed.count > 0 && unnamed.count >= causes->capacity / 2)
        return unnamed.oldest;
    return container_of(list_last(&causes->order), struct slot, node);
}

bool causes_add(struct causes *causes, const struct cause *cause, uint64_t mono_ms) {
    bool has_principal = cause->principal.data != NULL;
    uint64_t hash = siphash(causes->secret, has_principal ? cause->principal : cause->peer);
    assert(cause->status != STATUS_OK);
    pthread_mutex_lock(&causes->lock);
    struct slot *slot = slot_for(causes, hash, has_principal);
    bool is_paced = !slot->is_filled || mono_ms >= slot->filled_at_ms + CAUSE_PACE_MS;
    list_remove(&slot->node);
    *slot = (struct slot){.principal_hash = hash,
                          .filled_at_ms = mono_ms,
                          .is_filled = true,
                          .has_principal = has_principal};
    list_push_front(&causes->order, &slot->node);
    entry_fill(&causes->entries[slot - causes->slots], cause);
    pthread_mutex_unlock(&causes->lock);
    return is_paced;
}

/* ---- walking ---- */

static bool matches(struct slice wanted, struct slice kept) {
    return !wanted.data || (kept.data && slice_equal(wanted, kept));
}

/* A stream id matches its topic. */
static bool matches_topic(struct slice wanted, struct slice kept) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    if (matches(wanted, kept))
        return true;
    return kept.data && address_kind(wanted) != ADDRESS_TOPIC &&
           address_stream(kept, &stream) == STATUS_OK && slice_equal(wanted, buffer_slice(&stream));
}

/* "user:NAME", or NAME alone, which is a user's, a guest's or an organisation's. */
static bool matches_principal(struct slice wanted, struct slice kept) {
    static const struct slice kinds[] = {SLICE("user:"), SLICE("guest:"), SLICE("org:")};
    if (matches(wanted, kept))
        return true;
    for (size_t i = 0; kept.data && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (slice_starts(kept, kinds[i]) && slice_equal(wanted, slice_from(kept, kinds[i].size)))
            return true;
    return false;
}

void causes_walk(struct causes *causes, const struct cause_filter *filter, void *user,
                 cause_cb *callback) {
    /* Truncated as the kept texts are, so that a long text still matches. */
    struct entry wanted;
    entry_fill(&wanted, &(struct cause){.connection = filter->connection,
                                        .principal = filter->principal,
                                        .topic = filter->topic});
    bool wants_more = true;
    pthread_mutex_lock(&causes->lock);
    for (struct list_node *node = list_first(&causes->order); wants_more && node;
         node = list_next(&causes->order, node)) {
        const struct slot *slot = container_of(node, struct slot, node);
        if (!slot->is_filled)
            break;
        const struct cause *cause = &causes->entries[slot - causes->slots].cause;
        if ((!filter->disconnected_only || cause->kind == CAUSE_DISCONNECTED) &&
            matches(wanted.cause.connection, cause->connection) &&
            matches_principal(wanted.cause.principal, cause->principal) &&
            matches_topic(wanted.cause.topic, cause->topic))
            wants_more = callback(user, cause);
    }
    pthread_mutex_unlock(&causes->lock);
}

/* ---- decisions about clients ---- */

static unsigned class_of(const struct telemetry *telemetry, struct slice topic) {
    return topic.data ? policy_of(telemetry->policies, topic)->topic_class : TOPIC_CLASS_COUNT;
}

/* The topic is last: it is the one that may be long. */
static void log_cause(const struct telemetry *telemetry, const struct cause *cause) {
    struct log_field fields[15];
    size_t count = 0;
    bool is_request = cause->dialect == LABEL_DIALECT_HTTP || cause->dialect == LABEL_DIALECT_POLL;
    fields[count++] = log_str("code", status_code(cause->status));
    fields[count++] = log_slice(is_request ? "request_id" : "connection", cause->connection);
    fields[count++] = log_str("dialect", label_dialect_name(cause->dialect));
    if (cause->principal.data)
        fields[count++] = log_slice("principal", cause->principal);
    if (cause->peer.data)
        fields[count++] = log_slice("peer", cause->peer);
    if (cause->reason)
        fields[count++] = log_str("reason", cause->reason);
    if (cause->rule)
        fields[count++] = log_str("rule", cause->rule);
    if (cause->close_code > 0)
        fields[count++] = log_int("close_code", cause->close_code);
    if (cause->surface)
        fields[count++] = log_str("surface", cause->surface);
    if (cause->origin.data)
        fields[count++] = log_slice("origin", cause->origin);
    if (cause->client.build_id.data) {
        fields[count++] = log_slice("client_build_id", cause->client.build_id);
        fields[count++] = log_slice("protocol_version", cause->client.protocol_version);
        fields[count++] = log_slice("schema_version", cause->client.schema_version);
    }
    if (cause->topic.data) {
        fields[count++] =
            log_str("topic_class",
                    topic_class_name(policy_of(telemetry->policies, cause->topic)->topic_class));
        fields[count++] = log_slice("topic", cause->topic);
    }
    log_emit(LOG_INFO, cause->kind == CAUSE_DENIED ? "client.denied" : "client.disconnected",
             fields, count);
}

static void remember(struct telemetry *telemetry, struct cause cause, enum cause_kind kind) {
    struct clock_reading now = clock_now();
    cause.kind = kind;
    cause.at_ms = now.wall_ms;
    /* A session may end for another reason after one of its tokens was refused. */
    if (status_http(cause.status) != 401)
        cause.rule = NULL;
    if (causes_add(telemetry->causes, &cause, now.mono_ns / CLOCK_NS_PER_MS))
        log_cause(telemetry, &cause);
    else
        atomic_fetch_add(&telemetry->unlogged_count, 1);
}

void telemetry_tick(struct telemetry *telemetry) {
    uint64_t count = atomic_exchange(&telemetry->unlogged_count, 0);
    if (count > 0)
        log_event(LOG_INFO, "client.decisions_unlogged", log_int("count", (int64_t)count));
}

static struct slice text_slice(const struct compatibility_text *text) {
    return (struct slice){text->text, text->size};
}

struct cause_client telemetry_client(const struct compatibility_claim *claim) {
    return (struct cause_client){text_slice(&claim->client_build_id),
                                 text_slice(&claim->protocol_version),
                                 text_slice(&claim->schema_version)};
}

void telemetry_refused(struct telemetry *telemetry, struct cause cause, enum status status) {
    cause.status = status;
    if (compatibility_refuses(status)) {
        cause.surface = COMPATIBILITY_SURFACE;
        metrics_add(METRIC_SYNC_SOCKET_COMPATIBILITY_REJECTED,
                    METRIC_LABELS(LABEL_SURFACE_KHALA_WEBSOCKET, status), 1);
    } else if (status_http(status) == 401 || status_http(status) == 403)
        metrics_add(METRIC_AUTH_DENIALS, METRIC_LABELS(status, class_of(telemetry, cause.topic)),
                    1);
    remember(telemetry, cause, CAUSE_DENIED);
}

/* A shutdown disconnects all clients, which would evict every other cause. */
void telemetry_disconnected(struct telemetry *telemetry, struct cause cause) {
    if (cause.status != STATUS_SHUTTING_DOWN)
        remember(telemetry, cause, CAUSE_DISCONNECTED);
}

void telemetry_stale(struct telemetry *telemetry, struct cause cause,
                     const struct continuity *continuity) {
    unsigned topic_class = class_of(telemetry, cause.topic);
    for (size_t i = 0; i < continuity->reason_count; i++)
        metrics_add(METRIC_SYNC_REPLAY_STALE, METRIC_LABELS(topic_class, continuity->reasons[i]),
                    1);
    topic_activity_stale(telemetry->activity, cause.topic, continuity);
    cause.status = STATUS_STALE_CURSOR;
    cause.reason = continuity->reason_count > 0 ? reason_code(continuity->reasons[0]) : NULL;
    remember(telemetry, cause,
             cause.dialect == LABEL_DIALECT_POLL ? CAUSE_DISCONNECTED : CAUSE_DENIED);
}

void telemetry_evicted(struct telemetry *telemetry, struct cause cause) {
    metrics_add(METRIC_SYNC_SLOW_CONSUMER_EVICTIONS,
                METRIC_LABELS(cause.dialect, class_of(telemetry, cause.topic)), 1);
    if (cause.status == STATUS_OK)
        cause.status = STATUS_SLOW_CONSUMER;
    remember(telemetry, cause, CAUSE_DISCONNECTED);
}

void telemetry_handed(enum label_dialect dialect, const struct policy *policy,
                      struct frame *const *frames, size_t count, uint64_t now_ns) {
    metrics_add(METRIC_FANOUT_FRAMES, METRIC_LABELS(dialect, policy->topic_class), count);
    /* Frames of one commit follow one another. */
    for (size_t begin = 0, end; begin < count; begin = end) {
        uint64_t committed_ns = frames[begin]->committed_ns;
        for (end = begin + 1; end < count && frames[end]->committed_ns == committed_ns; end++)
            continue;
        if (committed_ns != 0)
            metrics_observe(METRIC_FANOUT_LATENCY_SECONDS, METRIC_LABELS(dialect),
                            now_ns > committed_ns ? now_ns - committed_ns : 0, end - begin);
    }
}
