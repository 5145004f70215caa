#include "cluster/nodes.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/metrics.h"

/* The writer tidies the tables with each so many of its beats. */
#define TIDY_BEATS 10
#define BEAT_MS    1000
/* While a revocation waits for other nodes. */
#define WAIT_BEAT_MS 20

struct nodes {
    const char *version;
    const struct policy_table *policies;
    char self[NODE_ID_SIZE + 1];
    unsigned beats;  /* of the writer's thread */
    bool is_failing; /* of the writer's thread */
    atomic_bool has_others;
    pthread_mutex_t lock;
    /* Under lock. */
    struct node_address address;
    bool has_address;
    uint64_t read_ns; /* when the table was read; 0: never */
    struct nodes_wait *waits;
    size_t count;
    struct node_row rows[NODES_MAX];
};

/* ---- this node's row ---- */

static enum status put_self(struct nodes *nodes, struct store_session *side,
                            const struct follow_beat *beat, uint64_t term,
                            uint64_t revocations_seen) {
    bool is_writer = role_is_writer(beat->role);
    pthread_mutex_lock(&nodes->lock);
    struct node_address address = nodes->address;
    bool has_address = nodes->has_address;
    /* This node knows its role also if the table cannot be read. */
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->rows[i].address.is_self)
            nodes->rows[i].is_writer = is_writer;
    pthread_mutex_unlock(&nodes->lock);
    if (!has_address)
        return STATUS_OK;
    char topics_hash[TOPIC_RULES_HASH_SIZE] = "";
    if (nodes->policies)
        policy_rules_hash(nodes->policies, topics_hash);
    const struct store_node node = {
        .id = {nodes->self, NODE_ID_SIZE},
        .address = slice_of(address.text),
        .operator_address =
            *address.operator_text ? slice_of(address.operator_text) : (struct slice){0},
        .version = slice_of(nodes->version),
        .is_writer = is_writer,
        .term = term,
        .log_id = beat->log_id,
        .cursor = beat->cursor,
        .revocations_seen = revocations_seen,
        .topics_hash = slice_of(topics_hash),
    };
    enum status status = store_put_node(side, &node);
    if (status == STATUS_OK && is_writer && nodes->beats++ % TIDY_BEATS == 0)
        status = store_tidy_nodes(side);
    return status;
}

/* ---- the table ---- */

struct reading {
    const struct nodes *nodes;
    size_t count;
    struct node_row rows[NODES_MAX];
};

static void copy_text(char *copy, size_t size, struct slice text) {
    snprintf(copy, size, "%.*s", (int)text.size, text.data ? text.data : "");
}

static enum status take_row(void *user, const struct store_node *node) {
    struct reading *reading = user;
    if (reading->count == NODES_MAX)
        return STATUS_OK;
    struct node_row *row = &reading->rows[reading->count++];
    *row = (struct node_row){
        .schema_version = node->schema_version,
        .is_writer = node->is_writer,
        .is_live = node->age_ms <= NODE_LIVE_MS,
        .term = node->term,
        .log_id = node->log_id,
        .revocations_seen = node->revocations_seen,
        .started_at_ms = node->started_at_ms,
        .age_ms = node->age_ms,
    };
    copy_text(row->address.id, sizeof(row->address.id), node->id);
    copy_text(row->address.text, sizeof(row->address.text), node->address);
    copy_text(row->address.operator_text, sizeof(row->address.operator_text),
              node->operator_address);
    copy_text(row->version, sizeof(row->version), node->version);
    row->knows_topics = node->topics_hash.data != NULL;
    copy_text(row->topics_hash, sizeof(row->topics_hash), node->topics_hash);
    row->address.is_self = strcmp(row->address.id, reading->nodes->self) == 0;
    return STATUS_OK;
}

/* ---- waits ---- */

void nodes_confirm_post(struct nodes *nodes, struct nodes_wait *wait) {
    wait->end_ns = clock_now().mono_ns + NODE_LIVE_MS * (uint64_t)CLOCK_NS_PER_MS;
    pthread_mutex_lock(&nodes->lock);
    wait->next = nodes->waits;
    nodes->waits = wait;
    pthread_mutex_unlock(&nodes->lock);
}

/* Under lock. Nodes that are not live deliver nothing. */
static void count_confirmed(const struct nodes *nodes, struct nodes_wait *wait) {
    wait->confirmed = 1;
    wait->unconfirmed = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct node_row *row = &nodes->rows[i];
        if (row->address.is_self || !row->is_live)
            continue;
        if (row->revocations_seen >= wait->serial)
            wait->confirmed++;
        else
            wait->unconfirmed++;
    }
}

/* is_read: the table was read after the waits were posted. */
static void end_waits(struct nodes *nodes, bool is_read, bool is_ending) {
    struct nodes_wait *ended = NULL;
    uint64_t now_ns = clock_now().mono_ns;
    pthread_mutex_lock(&nodes->lock);
    for (struct nodes_wait **at = &nodes->waits; *at;) {
        struct nodes_wait *wait = *at;
        count_confirmed(nodes, wait);
        if (!(is_read && wait->unconfirmed == 0) && now_ns < wait->end_ns && !is_ending) {
            at = &wait->next;
            continue;
        }
        *at = wait->next;
        wait->next = ended;
        ended = wait;
    }
    pthread_mutex_unlock(&nodes->lock);
    while (ended) {
        struct nodes_wait *next = ended->next;
        ended->done(ended);
        ended = next;
    }
}

uint64_t nodes_beat_ms(struct nodes *nodes) {
    pthread_mutex_lock(&nodes->lock);
    bool is_waiting = nodes->waits != NULL;
    pthread_mutex_unlock(&nodes->lock);
    return is_waiting ? WAIT_BEAT_MS : BEAT_MS;
}

/* ---- beats ---- */

void nodes_note_failure(struct nodes *nodes, enum status status, const char *error) {
    if (status != STATUS_OK)
        metrics_add(METRIC_CLUSTER_BEAT_FAILURES, METRIC_PLAIN, 1);
    if ((status != STATUS_OK) != nodes->is_failing)
        log_event(status == STATUS_OK ? LOG_INFO : LOG_WARN,
                  status == STATUS_OK ? "nodes.recovered" : "nodes.failing",
                  log_str("status", status_code(status)), log_str("error", error));
    nodes->is_failing = status != STATUS_OK;
    if (status != STATUS_OK)
        end_waits(nodes, false, false);
}

enum status nodes_beat(struct nodes *nodes, struct store_session *side,
                       const struct follow_beat *beat, uint64_t term, uint64_t revocations_seen) {
    if (beat->is_ending) {
        if (store_drop_node(side, (struct slice){nodes->self, NODE_ID_SIZE}) != STATUS_OK)
            log_event(LOG_WARN, "nodes.row_left", log_str("node_id", nodes->self),
                      log_str("effect", "other nodes show this node as lost for a minute"));
        end_waits(nodes, false, true);
        return STATUS_OK;
    }
    metrics_set(METRIC_CLUSTER_FOLLOWED_LOG_ID, METRIC_PLAIN, beat->log_id);
    enum status status = put_self(nodes, side, beat, term, revocations_seen);
    struct reading reading = {.nodes = nodes};
    if (status == STATUS_OK)
        status = store_walk_nodes(side, &reading, take_row);
    if (status == STATUS_OK) {
        bool has_others = false;
        for (size_t i = 0; i < reading.count; i++)
            has_others |= reading.rows[i].is_live && !reading.rows[i].address.is_self;
        pthread_mutex_lock(&nodes->lock);
        nodes->count = reading.count;
        memcpy(nodes->rows, reading.rows, reading.count * sizeof(reading.rows[0]));
        nodes->read_ns = clock_now().mono_ns;
        pthread_mutex_unlock(&nodes->lock);
        atomic_store(&nodes->has_others, has_others);
    }
    nodes_note_failure(nodes, status, store_session_error(side));
    if (status == STATUS_OK)
        end_waits(nodes, true, false);
    return status;
}

/* ---- questions ---- */

const char *nodes_self(const struct nodes *nodes) {
    return nodes->self;
}

/* Under lock. How much older the rows are than when they were read. */
static uint64_t table_age_ms(const struct nodes *nodes) {
    return (clock_now().mono_ns - nodes->read_ns) / CLOCK_NS_PER_MS;
}

bool nodes_writer(struct nodes *nodes, struct node_address *address) {
    const struct node_row *found = NULL;
    pthread_mutex_lock(&nodes->lock);
    uint64_t age_ms = table_age_ms(nodes);
    for (size_t i = 0; i < nodes->count; i++) {
        const struct node_row *row = &nodes->rows[i];
        bool is_live = row->address.is_self || row->age_ms + age_ms <= NODE_LIVE_MS;
        if (row->is_writer && is_live && (!found || row->term >= found->term))
            found = row;
    }
    if (found)
        *address = found->address;
    pthread_mutex_unlock(&nodes->lock);
    return found != NULL;
}

bool nodes_has_others(struct nodes *nodes) {
    return atomic_load_explicit(&nodes->has_others, memory_order_relaxed);
}

size_t nodes_list(struct nodes *nodes, struct node_row rows[NODES_MAX]) {
    pthread_mutex_lock(&nodes->lock);
    size_t count = nodes->count;
    uint64_t age_ms = table_age_ms(nodes);
    memcpy(rows, nodes->rows, count * sizeof(rows[0]));
    pthread_mutex_unlock(&nodes->lock);
    for (size_t i = 0; i < count; i++) {
        rows[i].age_ms += age_ms;
        rows[i].is_live = rows[i].age_ms <= NODE_LIVE_MS;
    }
    return count;
}

/* ---- life ---- */

enum status nodes_open(struct nodes **nodes, const struct nodes_options *options) {
    uint8_t bytes[NODE_ID_SIZE / 2];
    struct nodes *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        free(made);
        return STATUS_SYSTEM_ERROR;
    }
    hex_write(made->self, bytes, sizeof(bytes));
    made->version = options->version;
    made->policies = options->policies;
    pthread_mutex_init(&made->lock, NULL);
    *nodes = made;
    return STATUS_OK;
}

void nodes_set_address(struct nodes *nodes, const char *address, const char *operator_address) {
    pthread_mutex_lock(&nodes->lock);
    snprintf(nodes->address.text, sizeof(nodes->address.text), "%s", address);
    snprintf(nodes->address.operator_text, sizeof(nodes->address.operator_text), "%s",
             operator_address);
    nodes->has_address = true;
    pthread_mutex_unlock(&nodes->lock);
}

void nodes_close(struct nodes *nodes) {
    if (!nodes)
        return;
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}
