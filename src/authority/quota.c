/* The table holds the limits of all owners and the settings of some, read from the store by serial.
 * Before an event is added, its use is compared with the amounts that its owner has stored, and
 * then with the rates. A rate is one number, as in publish_limit.c: the moment at which nothing of
 * it is used any more. An event that is larger than a whole second's rate passes if nothing is
 * used, and the next one waits until all of it is paid off. So an owner never writes more than its
 * rate in the long run, and no event is too large to be stored at all. A batch that fails gives its
 * rates back, and the stored amounts are read again. */
#include "authority/quota.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "authority/entity_state.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/metrics.h"
#include "wire/json.h"

#define NS_PER_SECOND UINT64_C(1000000000)
/* An owner whose rate was lowered waits no longer than this many seconds, or minutes. */
#define RENEWED_WINDOWS_MAX 60

/* ---- names ---- */

#define QUOTA_NAME(name, text) text,
static const char *const names[QUOTA_COUNT] = {QUOTAS(QUOTA_NAME)};

const char *quota_name(enum quota quota) {
    assert((unsigned)quota < QUOTA_COUNT);
    return names[quota];
}

bool quota_parse(struct slice name, enum quota *quota) {
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        if (!slice_equal(name, slice_of(names[i])))
            continue;
        *quota = (enum quota)i;
        return true;
    }
    return false;
}

static const struct slice prefixes[] = {{"user:", 5}, {"guest:", 6}, {"org:", 4}};
#define PREFIX_COUNT (sizeof(prefixes) / sizeof(prefixes[0]))

struct slice quota_owner(const struct owner *owner, char text[QUOTA_OWNER_BYTES_MAX]) {
    const struct slice parts[PREFIX_COUNT] = {owner->user_id, owner->guest_scope, owner->org_id};
    for (size_t i = 0; i < PREFIX_COUNT; i++) {
        if (!parts[i].data)
            continue;
        assert(prefixes[i].size + parts[i].size <= QUOTA_OWNER_BYTES_MAX);
        memcpy(text, prefixes[i].data, prefixes[i].size);
        memcpy(text + prefixes[i].size, parts[i].data, parts[i].size);
        return (struct slice){text, prefixes[i].size + parts[i].size};
    }
    return (struct slice){text, 0};
}

bool quota_owner_is_valid(struct slice owner) {
    for (size_t i = 0; i < PREFIX_COUNT; i++)
        if (owner.size > prefixes[i].size && owner.size <= QUOTA_OWNER_BYTES_MAX &&
            memcmp(owner.data, prefixes[i].data, prefixes[i].size) == 0)
            return true;
    return false;
}

/* ---- a request to change quotas ---- */

const char *quota_read_change(struct slice body, struct quota_change *change,
                              char message[QUOTA_MESSAGE_BYTES_MAX]) {
    const struct json_limits limits = {body.size, JSON_DEPTH_MAX};
    struct json_value value, name, member;
    *change = (struct quota_change){{false}, {{false}, {0}}};
    if (json_parse(body, &limits, &value) != STATUS_OK || value.kind != JSON_KIND_OBJECT)
        return "The body is an object of quotas, such as {\"open_runs\": 100}.";
    struct json_iterator members = json_iterate(value);
    while (json_next_member(&members, &name, &member)) {
        unsigned quota = 0;
        while (quota < QUOTA_COUNT && !json_string_is(name, slice_of(names[quota])))
            quota++;
        if (quota == QUOTA_COUNT)
            return "A member of the body is no quota.";
        uint64_t number = 0;
        bool is_set = member.kind != JSON_KIND_NULL;
        if (is_set && !json_u64(member, JSON_INTEGER_MAX, &number)) {
            snprintf(message, QUOTA_MESSAGE_BYTES_MAX,
                     "The quota %s is a whole number from 0 to 9007199254740991, or null.",
                     names[quota]);
            return message;
        }
        change->is_given[quota] = true;
        change->settings.is_set[quota] = is_set;
        change->settings.value[quota] = number;
    }
    return NULL;
}

/* ---- the limits ---- */

struct owner_settings {
    struct quota_settings settings;
    char owner[];
};

struct quota_table {
    struct quota_limits defaults;
    pthread_mutex_t lock;
    struct map by_owner;         /* under lock */
    uint64_t serial;             /* the last change that was read; under lock */
    _Atomic uint64_t generation; /* rises with each change */
    atomic_size_t owner_count;   /* 0: no lock is needed */
};

enum status quota_table_open(struct quota_table **table, const struct quota_limits *defaults) {
    struct quota_table *made = calloc(1, sizeof(*made));
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    made->defaults = *defaults;
    atomic_init(&made->generation, 1);
    pthread_mutex_init(&made->lock, NULL);
    map_init(&made->by_owner, QUOTA_OWNERS_MAX);
    *table = made;
    return STATUS_OK;
}

void quota_table_close(struct quota_table *table) {
    if (!table)
        return;
    for (size_t i = 0; i < table->by_owner.entry_count; i++)
        free(table->by_owner.entries[i].value);
    map_release(&table->by_owner);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

/* Rows come in the order of their serials, so another walk has brought the rows up to the table's
 * serial, or newer ones in their place. A quota of a later build is ignored. An owner without
 * settings leaves the table. */
static enum status take_quota(void *user, const struct store_quota *row) {
    struct quota_table *table = user;
    struct owner_settings *owner = NULL;
    enum status status = STATUS_OK;
    enum quota quota;
    pthread_mutex_lock(&table->lock);
    bool is_new = row->serial > table->serial;
    if (is_new)
        table->serial = row->serial;
    if (!is_new || !row->owner.data || !quota_parse(row->name, &quota))
        goto out;
    owner = map_find(&table->by_owner, row->owner);
    if (!owner && row->is_set) {
        status = STATUS_OUT_OF_MEMORY;
        owner = calloc(1, sizeof(*owner) + row->owner.size);
        if (!owner)
            goto out;
        memcpy(owner->owner, row->owner.data, row->owner.size);
        const struct slice name = {owner->owner, row->owner.size};
        if (map_insert(&table->by_owner, name, owner) != STATUS_OK) {
            free(owner);
            goto out;
        }
        status = STATUS_OK;
    }
    if (!owner)
        goto out;
    owner->settings.is_set[quota] = row->is_set;
    owner->settings.value[quota] = row->is_set ? row->value : 0;
    bool has_settings = false;
    for (size_t i = 0; i < QUOTA_COUNT; i++)
        has_settings = has_settings || owner->settings.is_set[i];
    if (!has_settings) {
        map_remove(&table->by_owner, row->owner);
        free(owner);
    }
    atomic_store(&table->owner_count, table->by_owner.count);
    atomic_fetch_add(&table->generation, 1);
out:
    pthread_mutex_unlock(&table->lock);
    return status;
}

/* The loops ask for limits, so the lock is never held while the store answers. */
enum status quota_table_read(struct quota_table *table, struct store_session *session) {
    pthread_mutex_lock(&table->lock);
    uint64_t serial = table->serial;
    pthread_mutex_unlock(&table->lock);
    return store_walk_quotas(session, serial, table, take_quota);
}

void quota_limits_of(struct quota_table *table, struct slice owner, struct quota_limits *limits,
                     struct quota_settings *settings) {
    *limits = table->defaults;
    if (settings)
        *settings = (struct quota_settings){0};
    if (atomic_load(&table->owner_count) == 0)
        return;
    pthread_mutex_lock(&table->lock);
    const struct owner_settings *found = map_find(&table->by_owner, owner);
    for (size_t i = 0; found && i < QUOTA_COUNT; i++)
        if (found->settings.is_set[i])
            limits->of[i] = found->settings.value[i];
    if (found && settings)
        *settings = found->settings;
    pthread_mutex_unlock(&table->lock);
}

uint64_t quota_limit(struct quota_table *table, struct slice owner, enum quota quota) {
    struct quota_limits limits;
    quota_limits_of(table, owner, &limits, NULL);
    return limits.of[quota];
}

bool quota_table_next(struct quota_table *table, struct slice after,
                      char owner[QUOTA_OWNER_BYTES_MAX], size_t *size) {
    struct slice next = {NULL, 0};
    pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < table->by_owner.entry_count; i++) {
        const struct map_entry *entry = &table->by_owner.entries[i];
        if (entry->value && slice_compare(entry->key, after) > 0 &&
            (!next.data || slice_compare(entry->key, next) < 0))
            next = entry->key;
    }
    if (next.data)
        memcpy(owner, next.data, next.size);
    *size = next.size;
    pthread_mutex_unlock(&table->lock);
    return next.data != NULL;
}

bool quota_table_has_room(struct quota_table *table, struct slice owner) {
    pthread_mutex_lock(&table->lock);
    bool has_room = table->by_owner.count < QUOTA_OWNERS_MAX || map_find(&table->by_owner, owner);
    pthread_mutex_unlock(&table->lock);
    return has_room;
}

/* ---- entities ---- */

uint64_t usage_entity_bytes(const struct store_entity *entity) {
    return STORE_USAGE_ROW_BYTES + entity->id.size + entity->worker_id.size +
           entity->thread_id.size + entity->workspace_ref.size + entity->codex_home_ref.size +
           entity->adapter.size + entity->metadata.size;
}

uint64_t usage_bytes_stored(const struct store_usage *usage) {
    return usage->bytes + usage->unowned_bytes;
}

bool usage_is_open(const struct store_entity *entity) {
    enum run_state run;
    enum worker_state worker;
    if (entity->kind == ENTITY_RUN)
        return run_state_parse(entity->status, &run) && !run_state_is_final(run);
    return entity->kind == ENTITY_WORKER && worker_state_parse(entity->status, &worker) &&
           !worker_state_is_down(worker);
}

/* The summary of a run is a document and a frame of runtime.run_summaries. That of a worker is a
 * document and frames of runtime.codex_worker_summaries and of the owner's fleet. */
uint64_t usage_metadata_copied(const struct store_entity *entity, bool is_new_version,
                               bool is_first_event) {
    uint64_t bytes = entity->metadata.size;
    uint64_t copies = entity->kind == ENTITY_RUN ? 2 : 3;
    if (bytes >= STORE_METADATA_CUT_BYTES)
        return is_new_version ? bytes : 0;
    return is_first_event ? copies * bytes : 0;
}

/* ---- rates ---- */

static uint64_t window_ns(size_t rate) {
    return QUOTA_RATE_FIRST + rate == QUOTA_ENTITIES_PER_MINUTE ? 60 * NS_PER_SECOND
                                                                : NS_PER_SECOND;
}

static uint64_t amount_of(const struct quota_use *use, size_t rate) {
    switch (QUOTA_RATE_FIRST + rate) {
    case QUOTA_BYTES_PER_SECOND:
        return use->written_bytes;
    case QUOTA_EVENTS_PER_SECOND:
        return 1;
    default:
        return use->entities;
    }
}

/* The time that the amount takes to be used no more. */
static uint64_t cost_ns(uint64_t amount, uint64_t limit, size_t rate) {
    assert(limit > 0 && amount < UINT64_C(1) << 28);
    return amount * window_ns(rate) / limit;
}

static uint64_t used_ns(const struct usage *usage, size_t rate, uint64_t now_ns) {
    uint64_t full_at_ns = usage->rates.full_at_ns[rate];
    return full_at_ns > now_ns ? full_at_ns - now_ns : 0;
}

/* ---- the check ---- */

static enum status exceed(const struct usage *usage, enum quota quota, uint64_t used,
                          struct append_refusal *refusal) {
    refusal->quota = quota_name(quota);
    refusal->used = used;
    refusal->limit = usage->limits.of[quota];
    metrics_add(METRIC_QUOTA_REFUSALS, METRIC_LABELS(quota), 1);
    return STATUS_QUOTA_EXCEEDED;
}

/* Amounts in use stay the same if a rate changes, so their times change. */
static void renew_limits(const struct usages *usages, struct usage *usage, uint64_t now_ns) {
    uint64_t generation = atomic_load(&usages->table->generation);
    if (usage->generation == generation)
        return;
    const struct quota_limits before = usage->limits;
    bool is_known = usage->generation > 0;
    usage->generation = generation;
    quota_limits_of(usages->table, usage->stored.owner, &usage->limits, NULL);
    for (size_t i = 0; is_known && i < QUOTA_RATE_COUNT; i++) {
        uint64_t old_limit = before.of[QUOTA_RATE_FIRST + i];
        uint64_t limit = usage->limits.of[QUOTA_RATE_FIRST + i];
        if (limit == old_limit || limit == 0)
            continue;
        double used = (double)used_ns(usage, i, now_ns) * (double)old_limit / (double)limit;
        uint64_t used_max = RENEWED_WINDOWS_MAX * window_ns(i);
        usage->rates.full_at_ns[i] = now_ns + (used < (double)used_max ? (uint64_t)used : used_max);
    }
}

enum status usage_check(struct usages *usages, struct usage *usage, const struct quota_use *use,
                        uint64_t now_ns, struct append_refusal *refusal) {
    if (!usages->table || use->is_unrefused)
        return STATUS_OK;
    renew_limits(usages, usage, now_ns);
    const struct store_usage *stored = &usage->stored;
    const uint64_t used[QUOTA_RATE_FIRST] = {usage_bytes_stored(stored), stored->metadata_bytes,
                                             stored->open_runs, stored->open_workers};
    const int64_t more[QUOTA_RATE_FIRST] = {use->bytes + (int64_t)use->unowned_bytes,
                                            use->metadata_bytes, use->open_runs, use->open_workers};
    for (unsigned i = 0; i < QUOTA_RATE_FIRST; i++) {
        bool is_exempt = more[i] <= 0 || (i == QUOTA_BYTES_STORED && use->is_ending);
        if (!is_exempt && used[i] + (uint64_t)more[i] > usage->limits.of[i])
            return exceed(usage, (enum quota)i, used[i], refusal);
    }
    for (unsigned i = 0; i < QUOTA_RATE_COUNT; i++) {
        uint64_t limit = usage->limits.of[QUOTA_RATE_FIRST + i];
        uint64_t amount = amount_of(use, i);
        uint64_t used_before = used_ns(usage, i, now_ns);
        uint64_t window = window_ns(i);
        uint64_t wait = 0;
        if (amount == 0)
            continue;
        if (limit > 0) {
            /* An amount beyond a whole window waits until nothing is used. */
            uint64_t cost = cost_ns(amount, limit, i);
            if (cost >= window)
                wait = used_before;
            else if (used_before + cost > window)
                wait = used_before + cost - window;
            if (wait == 0)
                continue;
        }
        double part = (double)used_before / (double)window;
        refusal->retry_after_ms = (wait + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS;
        return exceed(usage, (enum quota)(QUOTA_RATE_FIRST + i),
                      (uint64_t)(part * (double)limit + 0.5), refusal);
    }
    return STATUS_OK;
}

static uint64_t moved(uint64_t number, int64_t by) {
    /* An operator set the row back by hand. The doctor names it. */
    if (by < 0 && (uint64_t)-by > number)
        return 0;
    return number + (uint64_t)by;
}

void usage_take(struct usages *usages, struct usage *usage, const struct quota_use *use,
                uint64_t now_ns) {
    struct store_usage *stored = &usage->stored;
    if (!usage->is_changed) {
        assert(usages->changed_count < BATCH_REQUESTS_MAX);
        usages->changed[usages->changed_count++] = usage;
        usage->is_changed = true;
        usage->rates_before = usage->rates;
    }
    stored->events += use->events;
    stored->bytes = moved(stored->bytes, use->bytes);
    stored->unowned_bytes += use->unowned_bytes;
    stored->metadata_bytes = moved(stored->metadata_bytes, use->metadata_bytes);
    stored->open_runs = moved(stored->open_runs, use->open_runs);
    stored->open_workers = moved(stored->open_workers, use->open_workers);
    if (!usages->table || use->is_unpaced)
        return;
    renew_limits(usages, usage, now_ns);
    for (size_t i = 0; i < QUOTA_RATE_COUNT; i++) {
        uint64_t limit = usage->limits.of[QUOTA_RATE_FIRST + i];
        uint64_t amount = amount_of(use, i);
        if (limit == 0 || amount == 0)
            continue;
        uint64_t used = used_ns(usage, i, now_ns) + cost_ns(amount, limit, i);
        /* An event that is never refused leaves no debt for other events of the owner. */
        if (use->is_unrefused && used > window_ns(i))
            used = window_ns(i);
        usage->rates.full_at_ns[i] = now_ns + used;
    }
}

/* ---- the usage of recent owners ---- */

enum status usages_init(struct usages *usages, struct quota_table *table) {
    *usages = (struct usages){
        .table = table,
        .expected = calloc(BATCH_REQUESTS_MAX, sizeof(struct usage *)),
        .changed = calloc(BATCH_REQUESTS_MAX, sizeof(struct usage *)),
        .rows = calloc(BATCH_REQUESTS_MAX, sizeof(*usages->rows)),
    };
    map_init(&usages->by_owner, USAGE_OWNERS_KEPT_MAX + BATCH_REQUESTS_MAX);
    list_init(&usages->by_use);
    if (usages->expected && usages->changed && usages->rows)
        return STATUS_OK;
    usages_release(usages);
    return STATUS_OUT_OF_MEMORY;
}

static void drop(struct usages *usages, struct usage *usage) {
    void *removed = map_remove(&usages->by_owner, usage->stored.owner);
    assert(removed == usage);
    (void)removed;
    list_remove(&usage->by_use);
    free(usage);
}

static struct usage *usage_at(struct list_node *node) {
    return node ? container_of(node, struct usage, by_use) : NULL;
}

void usages_release(struct usages *usages) {
    for (struct usage *usage; (usage = usage_at(list_last(&usages->by_use)));)
        drop(usages, usage);
    map_release(&usages->by_owner);
    free(usages->expected);
    free(usages->changed);
    free(usages->rows);
    *usages = (struct usages){0};
    list_init(&usages->by_use);
}

/* The rates stay: a failure of the store must not give an owner another second's rate. */
void usages_forget(struct usages *usages) {
    for (size_t i = 0; i < usages->changed_count; i++)
        usages->changed[i]->rates = usages->changed[i]->rates_before;
    usages->changed_count = usages->expected_count = 0;
    for (struct list_node *node = list_first(&usages->by_use); node;
         node = list_next(&usages->by_use, node)) {
        usage_at(node)->is_changed = false;
        usage_at(node)->is_loaded = false;
    }
}

void usages_begin(struct usages *usages) {
    usages->batch++;
    usages->expected_count = 0;
    assert(usages->changed_count == 0);
    while (usages->by_owner.count > USAGE_OWNERS_KEPT_MAX)
        drop(usages, usage_at(list_last(&usages->by_use)));
}

struct usage *usages_find(struct usages *usages, struct slice owner) {
    struct usage *usage = map_find(&usages->by_owner, owner);
    return usage && usage->is_loaded ? usage : NULL;
}

struct usage *usages_expect(struct usages *usages, struct slice owner) {
    struct usage *usage = map_find(&usages->by_owner, owner);
    if (usage && usage->batch == usages->batch)
        return usage;
    if (!usage) {
        usage = calloc(1, sizeof(*usage) + owner.size);
        if (!usage)
            return NULL;
        memcpy(usage->owner, owner.data, owner.size);
        usage->stored.owner = (struct slice){usage->owner, owner.size};
        if (map_insert(&usages->by_owner, usage->stored.owner, usage) != STATUS_OK) {
            free(usage);
            return NULL;
        }
    } else {
        list_remove(&usage->by_use);
    }
    list_push_front(&usages->by_use, &usage->by_use);
    usage->batch = usages->batch;
    if (!usage->is_loaded)
        usages->expected[usages->expected_count++] = usage;
    return usage;
}

enum status usages_fetch(struct usages *usages, struct store_session *session) {
    if (usages->expected_count == 0)
        return STATUS_OK;
    for (size_t i = 0; i < usages->expected_count; i++)
        usages->rows[i] = (struct store_usage){.owner = usages->expected[i]->stored.owner};
    enum status status = store_load_usages(session, usages->rows, usages->expected_count);
    for (size_t i = 0; status == STATUS_OK && i < usages->expected_count; i++) {
        usages->expected[i]->stored = usages->rows[i];
        usages->expected[i]->is_loaded = true;
    }
    usages->expected_count = 0;
    return status;
}

void usages_fill(struct usages *usages, struct store_batch *rows) {
    size_t count = 0;
    for (size_t i = 0; i < usages->changed_count; i++)
        usages->rows[count++] = usages->changed[i]->stored;
    rows->usages = usages->rows;
    rows->usage_count = count;
}

void usages_committed(struct usages *usages) {
    for (size_t i = 0; i < usages->changed_count; i++)
        usages->changed[i]->is_changed = false;
    usages->changed_count = 0;
}
