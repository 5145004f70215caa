#include "auth/grant.h"

#include <assert.h>

#include "topic/stream_id.h"

/* A name whose id is empty ("run::events") fits a pattern of the table, but names no topic. */
static enum topic_ownership ownership_of(const struct topic_row *row, struct slice id) {
    return id.size == 0 && strchr(row->pattern, '*') ? TOPIC_RESERVED : row->ownership;
}

enum entity_kind grant_entity_of(struct slice topic, struct slice *id) {
    const struct topic_row *row = topic_row(topic_kind_of(topic, id));
    return ownership_of(row, *id) == TOPIC_OWNED_BY_ENTITY ? row->entity : ENTITY_NONE;
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

/* A name with '*' is a pattern, and never exact, because a topic may be named run:*:events. */
static bool is_exactly(struct slice granted, struct slice name) {
    return slice_equal(granted, name) && !memchr(name.data, '*', name.size);
}

static enum match list_match(const struct grant_list *list, struct slice name) {
    enum match best = MATCH_NONE;
    for (size_t i = 0; i < list->count && best != MATCH_EXACT; i++) {
        if (is_exactly(list->names[i], name))
            best = MATCH_EXACT;
        else if (list->names[i].size > 0 && pattern_matches(list->names[i], name))
            best = MATCH_PATTERN;
    }
    return best;
}

static enum match better(enum match a, enum match b) {
    return a > b ? a : b;
}

/* A stream id among the topics counts only whole: the pattern runtime.* names built-in topics, and
 * would match every stream id. */
static enum match stream_match(const struct principal *principal, struct slice stream_id) {
    enum match match = list_match(&principal->streams, stream_id);
    for (size_t i = 0; i < principal->topics.count && match != MATCH_EXACT; i++)
        if (is_exactly(principal->topics.names[i], stream_id))
            match = MATCH_EXACT;
    return match;
}

static enum match granted(const struct principal *principal, struct slice topic) {
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream_id = buffer_over(text, sizeof(text));
    enum match by_topic = list_match(&principal->topics, topic);
    if (by_topic == MATCH_EXACT || !principal_is_narrowed(principal))
        return by_topic;
    enum status status = topic_to_stream(topic, &stream_id);
    assert(status == STATUS_OK);
    (void)status;
    return better(by_topic, stream_match(principal, buffer_slice(&stream_id)));
}

/* ---- the decision ---- */

static struct grant allowed(enum grant_view view) {
    return (struct grant){STATUS_OK, view};
}

static struct grant denied(enum status status) {
    return (struct grant){status, GRANT_VIEW_NONE};
}

/* Whether a granted topic, or one that a granted pattern matches, could have the stream id. The
 * stream id of a pattern is a pattern for the stream ids of its topics. */
static enum match could_grant(const struct principal *principal, struct slice stream_id) {
    enum match match = stream_match(principal, stream_id);
    for (size_t i = 0; i < principal->topics.count && match != MATCH_EXACT; i++) {
        char text[STREAM_ID_BYTES_MAX];
        struct buffer stream = buffer_over(text, sizeof(text));
        struct slice name = principal->topics.names[i];
        if (topic_kind_of(name, NULL) != TOPIC_APPLICATION ||
            topic_to_stream(name, &stream) != STATUS_OK)
            continue;
        struct slice granted_stream = buffer_slice(&stream);
        match = better(match, list_match(&(struct grant_list){&granted_stream, 1}, stream_id));
    }
    return match;
}

struct grant grant_check(const struct principal *principal, struct slice topic,
                         const struct owner *owner) {
    bool is_narrowed = principal_is_narrowed(principal);
    struct slice id;
    if (address_check(topic) == STATUS_OK && address_kind(topic) == ADDRESS_STORED_STREAM) {
        /* No topic has the stream id yet. The topic that appears is an application topic, and is
         * checked then by its name. */
        if (could_grant(principal, topic) == MATCH_NONE && (is_narrowed || !principal->read_all))
            return denied(STATUS_FORBIDDEN_TOPIC);
        return allowed(principal->read_all ? GRANT_VIEW_ALL : GRANT_VIEW_OWN_OR_UNOWNED);
    }
    if (topic_name_check(topic) != STATUS_OK)
        return denied(STATUS_FORBIDDEN_TOPIC);
    const struct topic_row *row = topic_row(topic_kind_of(topic, &id));
    enum topic_ownership ownership = ownership_of(row, id);
    enum match match = granted(principal, topic);
    if (is_narrowed && match == MATCH_NONE)
        return denied(STATUS_FORBIDDEN_TOPIC);
    if (principal->read_all)
        return allowed(GRANT_VIEW_ALL);
    if (ownership == TOPIC_RESERVED || (ownership == TOPIC_GRANTED && match == MATCH_NONE))
        return denied(STATUS_FORBIDDEN_TOPIC);
    if (row->scopes_any != 0 && (principal->scopes & row->scopes_any) == 0)
        return denied(STATUS_MISSING_SCOPE);
    if (ownership == TOPIC_GRANTED)
        return allowed(GRANT_VIEW_OWN_OR_UNOWNED);
    if (ownership == TOPIC_SHARED)
        return allowed(GRANT_VIEW_OWN);
    if (match == MATCH_EXACT)
        return allowed(GRANT_VIEW_ALL);
    /* A fleet names its owner. The owner of a run or worker is known if it exists. */
    struct owner named = {.user_id = {NULL, 0}};
    if (ownership == TOPIC_OWNED_BY_NAMED_USER)
        named.user_id = id;
    else if (ownership == TOPIC_OWNED_BY_NAMED_GUEST)
        named.guest_scope = id;
    if (ownership != TOPIC_OWNED_BY_ENTITY)
        owner = &named;
    return owner && principal_may_read(principal, owner) ? allowed(GRANT_VIEW_OWN)
                                                         : denied(STATUS_OWNER_MISMATCH);
}

struct grant grant_subscribe(const struct principal *principal, struct slice topic) {
    struct slice id;
    struct grant grant = grant_check(principal, topic, NULL);
    if (grant.status != STATUS_OWNER_MISMATCH || grant_entity_of(topic, &id) == ENTITY_NONE)
        return grant;
    return allowed(GRANT_VIEW_PENDING);
}

const char *grant_message(enum status refusal, struct slice topic,
                          char text[SCOPES_NEEDED_BYTES_MAX]) {
    return refusal == STATUS_MISSING_SCOPE
               ? scopes_needed(topic_row(topic_kind_of(topic, NULL))->scopes_any, text)
               : status_message(refusal);
}

enum status grant_check_append(const struct principal *principal, struct slice topic,
                               const struct owner *owner) {
    struct slice id;
    const struct topic_row *row = topic_row(topic_kind_of(topic, &id));
    bool is_narrowed = principal_is_narrowed(principal);
    if (is_narrowed && topic_name_check(topic) != STATUS_OK)
        return STATUS_FORBIDDEN_TOPIC;
    enum match match = granted(principal, topic);
    if (is_narrowed && match == MATCH_NONE)
        return STATUS_FORBIDDEN_TOPIC;
    switch (ownership_of(row, id)) {
    case TOPIC_GRANTED:
        return match != MATCH_NONE ? STATUS_OK : STATUS_FORBIDDEN_TOPIC;
    case TOPIC_OWNED_BY_ENTITY:
        return match == MATCH_EXACT || (owner && principal_owns(principal, owner))
                   ? STATUS_OK
                   : STATUS_OWNER_MISMATCH;
    case TOPIC_SHARED:
        return STATUS_OK;
    case TOPIC_OWNED_BY_NAMED_USER:
    case TOPIC_OWNED_BY_NAMED_GUEST:
    case TOPIC_RESERVED:
        break;
    }
    return STATUS_FORBIDDEN_TOPIC;
}

/* ---- tokens that open nothing ---- */

static bool has_identity(const struct principal *principal) {
    const struct owner *identity = &principal->identity;
    return identity->user_id.data || identity->guest_scope.data || identity->org_id.data;
}

bool grant_opens(const struct principal *principal, struct slice topic) {
    bool is_pattern = memchr(topic.data, '*', topic.size) != NULL;
    struct slice id;
    const struct topic_row *row = topic_row(topic_kind_of(topic, &id));
    if (is_pattern && principal->read_all)
        return true;
    if (is_pattern && row->ownership == TOPIC_RESERVED)
        return principal->scopes != 0 && has_identity(principal);
    if (is_pattern && row->ownership != TOPIC_GRANTED)
        return (principal->scopes & row->scopes_any) != 0 && has_identity(principal);
    if (row->ownership == TOPIC_SHARED && !has_identity(principal))
        return false;
    return is_pattern || grant_check(principal, topic, NULL).status == STATUS_OK;
}

/* Whether the principal could read a topic of that name, or append to it as a producer. */
static bool topic_opens(const struct principal *principal, struct slice topic) {
    struct slice id;
    enum topic_kind kind = topic_kind_of(topic, &id);
    bool is_pattern = memchr(topic.data, '*', topic.size) != NULL;
    if (grant_opens(principal, topic))
        return true;
    switch (topic_row(kind)->ownership) {
    case TOPIC_OWNED_BY_ENTITY:
        return principal->scopes & (kind == TOPIC_RUN_EVENTS ? SCOPES_PRODUCER : SCOPE_APPEND) &&
               id.size > 0 && (!is_pattern || has_identity(principal));
    case TOPIC_SHARED:
        return kind == TOPIC_NOTIFICATIONS && principal->scopes & SCOPE_APPEND &&
               has_identity(principal);
    case TOPIC_GRANTED:
        return (principal->scopes & SCOPE_APPEND) != 0;
    case TOPIC_OWNED_BY_NAMED_USER:
    case TOPIC_OWNED_BY_NAMED_GUEST:
    case TOPIC_RESERVED:
        break;
    }
    return false;
}

static bool stream_opens(const struct principal *principal, struct slice stream_id) {
    char text[TOPIC_NAME_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    return stream_to_topic(stream_id, &topic) != STATUS_OK ||
           topic_opens(principal, buffer_slice(&topic));
}

bool grant_opens_any(const struct principal *principal) {
    if (principal->read_all)
        return true;
    if (!principal_is_narrowed(principal))
        return principal->scopes & SCOPE_DASHBOARD ||
               ((principal->scopes & ~(unsigned)SCOPE_REPLAY_ALL) != 0 && has_identity(principal));
    for (size_t i = 0; i < principal->topics.count; i++) {
        struct slice name = principal->topics.names[i];
        bool is_topic = address_kind(name) == ADDRESS_TOPIC;
        if (is_topic ? topic_opens(principal, name) : stream_opens(principal, name))
            return true;
    }
    for (size_t i = 0; i < principal->streams.count; i++)
        if (stream_opens(principal, principal->streams.names[i]))
            return true;
    return false;
}

/* ---- delivery ---- */

bool grant_may_read(const struct principal *principal, enum grant_view view,
                    const struct owner *owner) {
    bool is_unowned = !owner->user_id.data && !owner->guest_scope.data && !owner->org_id.data;
    switch (view) {
    case GRANT_VIEW_NONE:
    case GRANT_VIEW_PENDING:
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
