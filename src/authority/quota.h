/* Quotas per owner: the limits, the usage of each owner, and the check of one event.
 * Thread: any for the table of limits, the writer's for the usage; time is an argument.
 * Memory: at most QUOTA_OWNERS_MAX owners with limits of their own, and the usage of at most
 * USAGE_OWNERS_KEPT_MAX owners beside those of the batch under way.
 * Errors: STATUS_QUOTA_EXCEEDED with the details of the refusal, STATUS_LIMIT_REACHED,
 * STATUS_OUT_OF_MEMORY, and the store's statuses from the calls that use the store.
 * Invariant: stored amounts change in the commit of the events. usages_forget gives the use of a
 * batch back. */
#ifndef AUTHORITY_QUOTA_H
#define AUTHORITY_QUOTA_H

#include <stdatomic.h>

#include "authority/append.h"
#include "base/list.h"
#include "base/map.h"

/* Stored amounts come first, then the rates. The writer checks both. Each node counts the last two
 * for itself. */
#define QUOTAS(X)                                                                                  \
    X(BYTES_STORED, "bytes_stored")                                                                \
    X(METADATA_BYTES, "metadata_bytes")                                                            \
    X(OPEN_RUNS, "open_runs")                                                                      \
    X(OPEN_WORKERS, "open_workers")                                                                \
    X(BYTES_PER_SECOND, "bytes_per_second")                                                        \
    X(EVENTS_PER_SECOND, "events_per_second")                                                      \
    X(ENTITIES_PER_MINUTE, "entities_per_minute")                                                  \
    X(SUBSCRIPTIONS, "subscriptions") /* per node */                                               \
    X(BATCH_BYTES, "batch_bytes")     /* per node */

#define QUOTA_ENUMERATOR(name, text) QUOTA_##name,
enum quota { QUOTAS(QUOTA_ENUMERATOR) QUOTA_COUNT };
#define QUOTA_RATE_FIRST QUOTA_BYTES_PER_SECOND
#define QUOTA_RATE_COUNT 3

/* "guest:" and the longest name of an owner. */
#define QUOTA_OWNER_BYTES_MAX (6 + 640)
/* An event that ends something passes the quota of stored bytes up to this payload. */
#define QUOTA_ENDING_BYTES_MAX 4096

const char *quota_name(enum quota quota);
/* False: no quota has that name. */
bool quota_parse(struct slice name, enum quota *quota);
/* "user:ID", "guest:SCOPE" or "org:ID": the user, else the guest, else the organisation. Empty: the
 * owner names none of them. */
struct slice quota_owner(const struct owner *owner, char text[QUOTA_OWNER_BYTES_MAX]);
/* Whether the text is such an owner. */
bool quota_owner_is_valid(struct slice owner);

/* ---- the limits ------------------------------------------------------------------------------ */

struct quota_limits {
    uint64_t of[QUOTA_COUNT];
};

/* The limits that an operator set for one owner. */
struct quota_settings {
    bool is_set[QUOTA_COUNT];
    uint64_t value[QUOTA_COUNT];
};

/* A request to change some of the limits. Limits that are given and not set are removed. */
struct quota_change {
    bool is_given[QUOTA_COUNT];
    struct quota_settings settings;
};

#define QUOTA_MESSAGE_BYTES_MAX 160
/* Reads a JSON object of quotas. The fault, for people; NULL: there is none. */
const char *quota_read_change(struct slice body, struct quota_change *change,
                              char message[QUOTA_MESSAGE_BYTES_MAX]);

struct quota_table;

MUST_CHECK enum status quota_table_open(struct quota_table **table,
                                        const struct quota_limits *defaults);
void quota_table_close(struct quota_table *table);
/* Any thread. Reads the changes that the table does not have yet. */
MUST_CHECK enum status quota_table_read(struct quota_table *table, struct store_session *session);
/* Any thread. The limit of an owner, as this node knows it. An empty owner has the limit of all. */
uint64_t quota_limit(struct quota_table *table, struct slice owner, enum quota quota);
/* Any thread. All limits of an owner. settings may be NULL. */
void quota_limits_of(struct quota_table *table, struct slice owner, struct quota_limits *limits,
                     struct quota_settings *settings);
/* Any thread. The next owner by name that has limits of its own; false: there is none. */
bool quota_table_next(struct quota_table *table, struct slice after,
                      char owner[QUOTA_OWNER_BYTES_MAX], size_t *size);
/* Any thread: whether an owner without limits of its own can get some. */
bool quota_table_has_room(struct quota_table *table, struct slice owner);

/* ---- the usage ------------------------------------------------------------------------------- */

/* The use of one event. */
struct quota_use {
    uint64_t events;        /* stored; 0: the event has no owner, and its producer pays */
    int64_t bytes;          /* stored */
    uint64_t unowned_bytes; /* stored, of an event without an owner */
    int64_t metadata_bytes;
    int64_t open_runs;
    int64_t open_workers;
    uint64_t written_bytes; /* for the rates: stored bytes, and metadata beside the entities */
    uint64_t entities;      /* created */
    bool is_ending;         /* may exceed the quota of stored bytes */
    bool is_unrefused;      /* is counted, and never refused */
    bool is_unpaced;        /* takes nothing from the rates */
};

/* The moment at which nothing of a rate is used any more, as in struct publish_bucket. */
struct usage_rates {
    uint64_t full_at_ns[QUOTA_RATE_COUNT];
};

/* The usage of an owner, whose name follows the struct. */
struct usage {
    struct list_node by_use;
    struct store_usage stored; /* includes the batch under way */
    struct usage_rates rates;
    struct usage_rates rates_before; /* the batch under way, if it changes them */
    struct quota_limits limits;
    uint64_t generation; /* the generation of its limits */
    uint64_t batch;      /* the last one that used it */
    bool is_changed;     /* the batch under way changes it */
    bool is_loaded;
    char owner[];
};

/* The usage of recent owners. */
struct usages {
    struct quota_table *table; /* NULL: usage is counted without limits */
    struct map by_owner;
    struct list by_use; /* the newest first */
    uint64_t batch;
    struct usage **expected; /* owners of this batch that are not loaded yet */
    size_t expected_count;
    struct usage **changed;
    size_t changed_count;
    struct store_usage *rows; /* buffer for the store's rows */
};

MUST_CHECK enum status usages_init(struct usages *usages, struct quota_table *table);
void usages_release(struct usages *usages);
/* The batch under way was not stored, or another node may have written: gives back what the batch
 * used, and reads the stored amounts again when they are next needed. */
void usages_forget(struct usages *usages);
void usages_begin(struct usages *usages);
/* The usage of an owner that the batch may use. NULL: out of memory. */
struct usage *usages_expect(struct usages *usages, struct slice owner);
/* Asks the store for those that were not in memory. */
MUST_CHECK enum status usages_fetch(struct usages *usages, struct store_session *session);
/* NULL: it was not expected. */
struct usage *usages_find(struct usages *usages, struct slice owner);
/* Whether the use fits. Takes nothing. */
MUST_CHECK enum status usage_check(struct usages *usages, struct usage *usage,
                                   const struct quota_use *use, uint64_t now_ns,
                                   struct append_refusal *refusal);
void usage_take(struct usages *usages, struct usage *usage, const struct quota_use *use,
                uint64_t now_ns);
void usages_fill(struct usages *usages, struct store_batch *rows);
void usages_committed(struct usages *usages);

/* The stored bytes of an entity's row: all of its texts. */
uint64_t usage_entity_bytes(const struct store_entity *entity);
bool usage_is_open(const struct store_entity *entity);
/* The bytes that count for the quota of stored bytes. */
uint64_t usage_bytes_stored(const struct store_usage *usage);
/* The metadata that a commit with events of the entity writes beside the row. Large metadata is
 * written once for each version; the document and the frames of each commit repeat small metadata.
 */
uint64_t usage_metadata_copied(const struct store_entity *entity, bool is_new_version,
                               bool is_first_event);

#endif
