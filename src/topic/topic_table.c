#include "topic/topic_table.h"

#include <assert.h>

#include "base/buffer.h"

#define ROW_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* The names of these topics are names of scopes too. */
#define CODEX_WORKER_EVENTS "runtime.codex_worker_events"
#define NOTIFICATIONS       "runtime.notifications"
#define AUDIT               "runtime.audit"

#define SCOPES_WORKER (SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS)

/* ---- topics ---- */

/* pattern, stream id, policy, ownership, entity, scopes */
static const struct topic_row topics[] = {
    [TOPIC_RUN_SUMMARIES] = {"runtime.run_summaries", NULL, POLICY_RUN_SUMMARIES, TOPIC_SHARED,
                             ENTITY_NONE, SCOPE_RUN_EVENTS},
    [TOPIC_CODEX_WORKER_SUMMARIES] = {"runtime.codex_worker_summaries", NULL,
                                      POLICY_CODEX_WORKER_SUMMARIES, TOPIC_SHARED, ENTITY_NONE,
                                      SCOPES_WORKER},
    [TOPIC_CODEX_WORKER_EVENTS] = {CODEX_WORKER_EVENTS, "runtime.codex.worker.events",
                                   POLICY_CODEX_WORKER_EVENTS, TOPIC_SHARED, ENTITY_NONE,
                                   SCOPES_WORKER},
    [TOPIC_NOTIFICATIONS] = {NOTIFICATIONS, NULL, POLICY_NOTIFICATIONS, TOPIC_SHARED, ENTITY_NONE,
                             SCOPE_NOTIFICATIONS},
    [TOPIC_AUDIT] = {AUDIT, NULL, POLICY_FALLBACK, TOPIC_SHARED, ENTITY_NONE, SCOPE_AUDIT},
    [TOPIC_RUN_EVENTS] = {"run:*:events", "runtime.run.*.events", POLICY_RUN_EVENTS,
                          TOPIC_OWNED_BY_ENTITY, ENTITY_RUN, SCOPE_RUN_EVENTS},
    [TOPIC_WORKER_LIFECYCLE] = {"worker:*:lifecycle", "runtime.worker.*.lifecycle",
                                POLICY_WORKER_LIFECYCLE, TOPIC_OWNED_BY_ENTITY, ENTITY_WORKER,
                                SCOPES_WORKER},
    [TOPIC_USER_FLEET] = {"fleet:user:*:workers", "runtime.fleet.user.*.workers",
                          POLICY_WORKER_LIFECYCLE, TOPIC_OWNED_BY_NAMED_USER, ENTITY_NONE,
                          SCOPES_WORKER},
    [TOPIC_GUEST_FLEET] = {"fleet:guest:*:workers", "runtime.fleet.guest.*.workers",
                           POLICY_WORKER_LIFECYCLE, TOPIC_OWNED_BY_NAMED_GUEST, ENTITY_NONE,
                           SCOPES_WORKER},
    [TOPIC_RESERVED_FLEET_WORKERS] = {"fleet:*:workers", NULL, POLICY_WORKER_LIFECYCLE,
                                      TOPIC_RESERVED, ENTITY_NONE, 0},
    [TOPIC_RESERVED_RUN] = {"run:*", NULL, POLICY_FALLBACK, TOPIC_RESERVED, ENTITY_NONE, 0},
    [TOPIC_RESERVED_WORKER] = {"worker:*", NULL, POLICY_FALLBACK, TOPIC_RESERVED, ENTITY_NONE, 0},
    [TOPIC_RESERVED_FLEET] = {"fleet:*", NULL, POLICY_FALLBACK, TOPIC_RESERVED, ENTITY_NONE, 0},
    [TOPIC_RESERVED_RUNTIME] = {"runtime.*", NULL, POLICY_FALLBACK, TOPIC_RESERVED, ENTITY_NONE, 0},
    [TOPIC_APPLICATION] = {"*", NULL, POLICY_FALLBACK, TOPIC_GRANTED, ENTITY_NONE, 0},
};
_Static_assert(ROW_COUNT(topics) == TOPIC_KIND_COUNT, "the last row takes all other names");

const struct topic_row *topic_row(enum topic_kind kind) {
    assert((unsigned)kind < TOPIC_KIND_COUNT);
    return &topics[kind];
}

enum topic_kind topic_kind_of(struct slice topic, struct slice *id) {
    size_t kind = 0;
    while (!topic_pattern_match(topics[kind].pattern, topic, id))
        kind++;
    return (enum topic_kind)kind;
}

/* ---- entities ---- */

static const struct entity_row entities[] = {
    [ENTITY_RUN] =
        {
            .name = "run",
            .id_member = "run_id",
            .topic = TOPIC_RUN_EVENTS,
            .shared_topic = TOPIC_NONE,
            .summary = DOCUMENT_RUN_SUMMARY,
            .event_key_prefix = "runtime/run_event:",
            .not_found = STATUS_RUN_NOT_FOUND,
        },
    [ENTITY_WORKER] =
        {
            .name = "worker",
            .id_member = "worker_id",
            .topic = TOPIC_WORKER_LIFECYCLE,
            .shared_topic = TOPIC_CODEX_WORKER_EVENTS,
            .summary = DOCUMENT_WORKER_SUMMARY,
            .event_key_prefix = "runtime/codex_worker_event:",
            .not_found = STATUS_WORKER_NOT_FOUND,
        },
    [ENTITY_TOPIC] =
        {
            .name = "topic",
            .id_member = "topic",
            .topic = TOPIC_APPLICATION,
            .shared_topic = TOPIC_NONE,
            .summary = DOCUMENT_NONE,
            .has_event_owner = true,
            .not_found = STATUS_NOT_FOUND,
        },
    [ENTITY_AUDIT] =
        {
            .name = "audit",
            .id_member = "audit_id",
            .topic = TOPIC_AUDIT,
            .shared_topic = TOPIC_NONE,
            .summary = DOCUMENT_NONE,
            .has_event_owner = true,
            .not_found = STATUS_NOT_FOUND,
        },
};
_Static_assert(ROW_COUNT(entities) == ENTITY_KIND_COUNT, "every entity kind has a row");

const struct entity_row *entity_row(enum entity_kind kind) {
    assert((unsigned)kind < ENTITY_KIND_COUNT);
    return &entities[kind];
}

const char *entity_kind_name(enum entity_kind kind) {
    return entity_row(kind)->name;
}

/* ---- names ---- */

bool topic_is_projection_owned(struct slice topic) {
    return topic_kind_of(topic, NULL) != TOPIC_APPLICATION;
}

struct slice topic_name(enum topic_kind kind) {
    const char *pattern = topic_row(kind)->pattern;
    assert(!strchr(pattern, '*'));
    return slice_of(pattern);
}

enum status topic_name_make(struct arena *arena, enum topic_kind kind, struct slice id,
                            struct slice *name) {
    const char *pattern = topic_row(kind)->pattern;
    size_t size = topic_pattern_size(pattern, id);
    char *text = arena_alloc(arena, size);
    *name = (struct slice){text, text ? size : 0};
    if (!text)
        return STATUS_OUT_OF_MEMORY;
    topic_pattern_fill(pattern, id, text);
    return STATUS_OK;
}

enum status topic_name_of_entity(struct arena *arena, enum entity_kind kind, struct slice id,
                                 struct slice *name) {
    return topic_name_make(arena, entity_row(kind)->topic, id, name);
}

/* ---- documents ---- */

#define DOCUMENT_ROW(kind_, name_, table_, view_, entity_, topic_, user_topic_, guest_topic_)      \
    [kind_] = {                                                                                    \
        .name = (name_),                                                                           \
        .key_prefix = "runtime/" name_ ":",                                                        \
        .source_table = "runtime." view_,                                                          \
        .entity = (entity_),                                                                       \
        .topic = (topic_),                                                                         \
        .user_topic = (user_topic_),                                                               \
        .guest_topic = (guest_topic_),                                                             \
    },
static const struct document_row documents[] = {DOCUMENT_KINDS(DOCUMENT_ROW)};

const struct document_row *document_row(enum document_kind kind) {
    assert((unsigned)kind < DOCUMENT_KIND_COUNT);
    return &documents[kind];
}

const char *document_kind_name(enum document_kind kind) {
    return document_row(kind)->name;
}

bool topic_has_documents_only(enum topic_kind kind) {
    for (unsigned i = 0; i < DOCUMENT_KIND_COUNT; i++)
        if (documents[i].topic == kind || documents[i].user_topic == kind ||
            documents[i].guest_topic == kind)
            return true;
    return false;
}

enum document_kind document_kind_of(struct slice name) {
    size_t kind = 0;
    while (kind < DOCUMENT_KIND_COUNT && !slice_equal(name, slice_of(documents[kind].name)))
        kind++;
    return (enum document_kind)kind;
}

bool topic_is_from_log(struct slice topic) {
    enum topic_kind kind = topic_kind_of(topic, NULL);
    for (size_t i = 0; i < ENTITY_KIND_COUNT; i++)
        if (entities[i].shared_topic == kind)
            return false;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++)
        if (documents[i].topic == kind || documents[i].user_topic == kind ||
            documents[i].guest_topic == kind)
            return false;
    return true;
}

bool topic_begins_in_log(struct slice topic) {
    return topic_is_from_log(topic) &&
           topic_row(topic_kind_of(topic, NULL))->ownership != TOPIC_SHARED;
}

/* ---- scopes ---- */

/* The names of the scopes, in the order of their bits. */
static const char *const scopes[] = {
    "runtime.run_events",
    CODEX_WORKER_EVENTS,
    "runtime.worker_lifecycle_events",
    NOTIFICATIONS,
    AUDIT,
    "runtime.append",
    "runtime.replay_all",
    "runtime.cancel",
    "runtime.dashboard",
};
_Static_assert(ROW_COUNT(scopes) == SCOPE_COUNT, "every scope has a name");

unsigned scope_of(struct slice name) {
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (slice_equal(name, slice_of(scopes[i])))
            return 1u << i;
    return 0;
}

const char *scope_name(enum scope scope) {
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if ((unsigned)scope == 1u << i)
            return scopes[i];
    assert(0 && "a scope is one bit of the table");
    return "";
}

const char *scopes_needed(unsigned scopes_any, char text[SCOPES_NEEDED_BYTES_MAX]) {
    struct buffer out = buffer_over(text, SCOPES_NEEDED_BYTES_MAX);
    const char *before = "The token needs the scope ";
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        if (!(scopes_any & 1u << i))
            continue;
        buffer_printf(&out, "%s%s", before, scopes[i]);
        before = " or ";
    }
    bool is_whole = buffer_printf(&out, ".") == STATUS_OK && out.size > 1;
    return is_whole ? text : status_message(STATUS_MISSING_SCOPE);
}

/* ---- patterns --------------------------------------------------------------------------- */

bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle) {
    /* Most rows of a table end here, without a search of the pattern. */
    if (name.size > 0 && *pattern != '*' && *pattern != *name.data)
        return false;
    const char *star = strchr(pattern, '*');
    struct slice prefix = slice_of(pattern);
    struct slice suffix = {"", 0};
    if (star) {
        prefix.size = (size_t)(star - pattern);
        suffix = slice_of(star + 1);
    }
    if (name.size < prefix.size + suffix.size || (!star && name.size != prefix.size))
        return false;
    /* An empty name may have no address; nothing of it may be compared. */
    if (name.size > 0 && !(slice_starts(name, prefix) && slice_ends(name, suffix)))
        return false;
    if (middle)
        *middle = name.size == 0 ? suffix
                                 : (struct slice){name.data + prefix.size,
                                                  name.size - prefix.size - suffix.size};
    return true;
}

size_t topic_pattern_size(const char *pattern, struct slice middle) {
    size_t size = strlen(pattern);
    return strchr(pattern, '*') ? size - 1 + middle.size : size;
}

void topic_pattern_fill(const char *pattern, struct slice middle, char *name) {
    const char *star = strchr(pattern, '*');
    size_t prefix_size = star ? (size_t)(star - pattern) : strlen(pattern);
    memcpy(name, pattern, prefix_size);
    if (!star)
        return;
    if (middle.size > 0)
        memcpy(name + prefix_size, middle.data, middle.size);
    memcpy(name + prefix_size + middle.size, star + 1, strlen(star + 1));
}
