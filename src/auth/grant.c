#include "auth/grant.h"

#include <assert.h>

#include "topic/stream_id.h"
#include "topic/topic_pattern.h"

enum ownership {
    OWNERSHIP_RUN,
    OWNERSHIP_WORKER,
    OWNERSHIP_USER_NAMED, /* the topic's name says whose it is */
    OWNERSHIP_GUEST_NAMED,
    OWNERSHIP_SHARED,      /* every frame has its own owner */
    OWNERSHIP_APPLICATION, /* whoever was granted the topic */
    OWNERSHIP_RESERVED,    /* there is no such topic */
};

struct topic_rule {
    const char *pattern;
    unsigned scopes_any; /* one of these */
    enum ownership ownership;
};

#define SCOPES_WORKER (SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS)

static const struct topic_rule rules[] = {
    {"run:*:events", SCOPE_RUN_EVENTS, OWNERSHIP_RUN},
    {"worker:*:lifecycle", SCOPES_WORKER, OWNERSHIP_WORKER},
    {"fleet:user:*:workers", SCOPES_WORKER, OWNERSHIP_USER_NAMED},
    {"fleet:guest:*:workers", SCOPES_WORKER, OWNERSHIP_GUEST_NAMED},
    {"runtime.run_summaries", SCOPE_RUN_EVENTS, OWNERSHIP_SHARED},
    {"runtime.codex_worker_summaries", SCOPES_WORKER, OWNERSHIP_SHARED},
    {"runtime.codex_worker_events", SCOPES_WORKER, OWNERSHIP_SHARED},
    {"runtime.notifications", SCOPE_NOTIFICATIONS, OWNERSHIP_SHARED},
    {"runtime.audit", SCOPE_AUDIT, OWNERSHIP_SHARED},
};
static const struct topic_rule rule_application = {"*", 0, OWNERSHIP_APPLICATION};
static const struct topic_rule rule_reserved = {"*", 0, OWNERSHIP_RESERVED};

static const struct topic_rule *rule_of(struct slice topic, struct slice *id) {
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (topic_pattern_match(rules[i].pattern, topic, id) &&
            (id->size > 0 || rules[i].ownership == OWNERSHIP_SHARED))
            return &rules[i];
    return topic_is_projection_owned(topic) ? &rule_reserved : &rule_application;
}

enum grant_entity grant_entity_of(struct slice topic, struct slice *id) {
    enum ownership ownership = rule_of(topic, id)->ownership;
    if (ownership == OWNERSHIP_RUN)
        return GRANT_ENTITY_RUN;
    return ownership == OWNERSHIP_WORKER ? GRANT_ENTITY_WORKER : GRANT_ENTITY_NONE;
}

/* ---- granted names ---- */

enum match { MATCH_NONE, MATCH_PATTERN, MATCH_EXACT };

static bool is_separator(char c) {
    return c == ':' || c == '.';
}

static bool pattern_matches(struct slice pattern, struct slice name) {
    const char *star = memchr(pattern.data, '*', pattern.size);
    if (!star || star == pattern.data || !is_separator(star[-1]))
        return false;
    struct slice prefix = {pattern.data, (size_t)(star - pattern.data)};
    struct slice suffix = slice_from(pattern, prefix.size + 1);
    if (suffix.size > 0 && (!is_separator(suffix.data[0]) || memchr(suffix.data, '*', suffix.size)))
        return false;
    return name.size > prefix.size + suffix.size && slice_starts(name, prefix) &&
           slice_ends(name, suffix);
}

static enum match list_match(const struct grant_list *list, struct slice name) {
    enum match best = MATCH_NONE;
    for (size_t i = 0; i < list->count && best != MATCH_EXACT; i++) {
        if (slice_equal(list->names[i], name))
            best = MATCH_EXACT;
        else if (list->names[i].size > 0 && pattern_matches(list->names[i], name))
            best = MATCH_PATTERN;
    }
    return best;
}

static enum match granted(const struct principal *principal, struct slice topic) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream_id = {.data = text, .capacity = sizeof(text), .size_max = sizeof(text)};
    enum match by_topic = list_match(&principal->topics, topic);
    if (by_topic == MATCH_EXACT || principal->streams.count == 0)
        return by_topic;
    enum status status = topic_to_stream(topic, &stream_id);
    assert(status == STATUS_OK);
    (void)status;
    enum match by_stream = list_match(&principal->streams, buffer_slice(&stream_id));
    return by_stream > by_topic ? by_stream : by_topic;
}

/* ---- the decision ---- */

static bool owns(const struct principal *principal, const struct topic_rule *rule, struct slice id,
                 const struct owner *owner) {
    switch (rule->ownership) {
    case OWNERSHIP_RUN:
    case OWNERSHIP_WORKER:
        return owner && principal_may_read(principal, owner);
    case OWNERSHIP_USER_NAMED:
        return principal_may_read(principal, &(struct owner){.user_id = id});
    case OWNERSHIP_GUEST_NAMED:
        return principal_may_read(principal, &(struct owner){.guest_scope = id});
    case OWNERSHIP_SHARED:
    case OWNERSHIP_APPLICATION:
        return true;
    case OWNERSHIP_RESERVED:
        return false;
    }
    assert(0 && "an ownership of the table");
    return false;
}

static struct grant allow(enum grant_view view) {
    return (struct grant){STATUS_OK, view};
}

static struct grant refuse(enum status status) {
    return (struct grant){status, GRANT_VIEW_NONE};
}

struct grant grant_check(const struct principal *principal, struct slice topic,
                         const struct owner *owner) {
    struct slice id;
    if (topic_name_check(topic) != STATUS_OK)
        return refuse(STATUS_FORBIDDEN_TOPIC);
    const struct topic_rule *rule = rule_of(topic, &id);
    bool is_narrowed = principal->topics.count + principal->streams.count > 0;
    enum match match = granted(principal, topic);
    if (is_narrowed && match == MATCH_NONE)
        return refuse(STATUS_FORBIDDEN_TOPIC);
    if (principal->read_all)
        return allow(GRANT_VIEW_ALL);
    if (rule->ownership == OWNERSHIP_RESERVED ||
        (rule->ownership == OWNERSHIP_APPLICATION && match == MATCH_NONE))
        return refuse(STATUS_FORBIDDEN_TOPIC);
    if (rule->scopes_any != 0 && (principal->scopes & rule->scopes_any) == 0)
        return refuse(STATUS_MISSING_SCOPE);
    if (rule->ownership == OWNERSHIP_APPLICATION)
        return allow(GRANT_VIEW_OWN_OR_UNOWNED);
    if (rule->ownership == OWNERSHIP_SHARED)
        return allow(GRANT_VIEW_OWN);
    if (match == MATCH_EXACT)
        return allow(GRANT_VIEW_ALL);
    return owns(principal, rule, id, owner) ? allow(GRANT_VIEW_OWN) : refuse(STATUS_OWNER_MISMATCH);
}

bool grant_may_read(const struct principal *principal, enum grant_view view,
                    const struct owner *owner) {
    bool is_unowned = !owner->user_id.data && !owner->guest_scope.data && !owner->org_id.data;
    switch (view) {
    case GRANT_VIEW_NONE:
        return false;
    case GRANT_VIEW_OWN:
        return principal_may_read(principal, owner);
    case GRANT_VIEW_OWN_OR_UNOWNED:
        return is_unowned || principal_may_read(principal, owner);
    case GRANT_VIEW_ALL:
        return true;
    }
    assert(0 && "a view");
    return false;
}
