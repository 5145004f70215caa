/* The tables of topics, entity kinds, document kinds and scopes. Each built-in name stands here. To
 * add a kind, add its enumerator and its row; a row that is missing does not compile.
 * Thread: any: the tables are constant.
 * Memory: texts are static; a name that is made lives in the caller's arena.
 * Errors: STATUS_OUT_OF_MEMORY.
 * Invariant: a topic belongs to the first row whose pattern matches its name. The last row matches
 * all others. */
#ifndef TOPIC_TOPIC_TABLE_H
#define TOPIC_TOPIC_TABLE_H

#include "base/arena.h"
#include "base/slice.h"
#include "spec/codes.h"

/* ---- kinds ---- */

enum topic_kind {
    TOPIC_RUN_SUMMARIES,
    TOPIC_CODEX_WORKER_SUMMARIES,
    TOPIC_CODEX_WORKER_EVENTS,
    TOPIC_NOTIFICATIONS,
    TOPIC_AUDIT,
    TOPIC_RUN_EVENTS,
    TOPIC_WORKER_LIFECYCLE,
    TOPIC_USER_FLEET,
    TOPIC_GUEST_FLEET,
    /* Names under a reserved prefix that no topic has. Clients may not publish to them. */
    TOPIC_RESERVED_FLEET_WORKERS,
    TOPIC_RESERVED_RUN,
    TOPIC_RESERVED_WORKER,
    TOPIC_RESERVED_FLEET,
    TOPIC_RESERVED_RUNTIME,
    TOPIC_APPLICATION,
    TOPIC_KIND_COUNT,
    TOPIC_NONE = TOPIC_KIND_COUNT,
};

/* An entity has a sequence of events. The store holds these numbers. Notifications are an
 * ENTITY_TOPIC; the audit log is the one ENTITY_AUDIT. */
enum entity_kind {
    ENTITY_RUN,
    ENTITY_WORKER,
    ENTITY_TOPIC,
    ENTITY_AUDIT,
    ENTITY_KIND_COUNT,
    ENTITY_NONE = ENTITY_KIND_COUNT,
};

/* The table of document kinds, as a list: engines build their SQL from it at compile time.
 * X(kind, name, SQL table, SQL view with whole payloads, entity, topic of all documents, topic of
 *   one user's documents, topic of one guest's documents) */
#define DOCUMENT_KINDS(X)                                                                          \
    X(DOCUMENT_RUN_SUMMARY, "run_summary", "run_documents", "sync_run_summaries", ENTITY_RUN,      \
      TOPIC_RUN_SUMMARIES, TOPIC_NONE, TOPIC_NONE)                                                 \
    X(DOCUMENT_WORKER_SUMMARY, "codex_worker_summary", "worker_documents",                         \
      "sync_codex_worker_summaries", ENTITY_WORKER, TOPIC_CODEX_WORKER_SUMMARIES,                  \
      TOPIC_USER_FLEET, TOPIC_GUEST_FLEET)

#define DOCUMENT_ENUMERATOR(kind, ...) kind,
enum document_kind {
    DOCUMENT_KINDS(DOCUMENT_ENUMERATOR) DOCUMENT_KIND_COUNT,
    DOCUMENT_NONE = DOCUMENT_KIND_COUNT,
};
#undef DOCUMENT_ENUMERATOR

/* Rows of topic/policy.h. */
enum policy_row {
    POLICY_RUN_SUMMARIES,
    POLICY_CODEX_WORKER_SUMMARIES,
    POLICY_CODEX_WORKER_EVENTS,
    POLICY_NOTIFICATIONS,
    POLICY_RUN_EVENTS,
    POLICY_WORKER_LIFECYCLE,
    POLICY_FALLBACK,
    POLICY_ROW_COUNT,
};

/* Bits of a token's scopes. SCOPE_READ_ALL_NAME has no bit: it lifts scopes altogether. */
enum scope {
    SCOPE_RUN_EVENTS = 1 << 0,
    SCOPE_CODEX_WORKER_EVENTS = 1 << 1,
    SCOPE_WORKER_LIFECYCLE_EVENTS = 1 << 2,
    SCOPE_NOTIFICATIONS = 1 << 3,
    SCOPE_AUDIT = 1 << 4,
    SCOPE_APPEND = 1 << 5,     /* producers; it opens no topic to read */
    SCOPE_REPLAY_ALL = 1 << 6, /* opens no topic: lifts floor and budget of a replay */
    SCOPE_CANCEL = 1 << 7,     /* producers that append run.cancel_requested only */
    SCOPE_DASHBOARD = 1 << 8,  /* opens no topic: reads the routes of operators */
};
#define SCOPE_COUNT     9
#define SCOPES_PRODUCER (SCOPE_APPEND | SCOPE_CANCEL)
/* The scopes that a key of the role mint may mint. The others read beyond one owner. */
#define SCOPES_MINTABLE                                                                            \
    (SCOPE_RUN_EVENTS | SCOPE_CODEX_WORKER_EVENTS | SCOPE_WORKER_LIFECYCLE_EVENTS |                \
     SCOPE_NOTIFICATIONS | SCOPES_PRODUCER)
#define SCOPE_READ_ALL_NAME "runtime.read_all"

/* ---- rows ---- */

/* The rule that decides which principals read a topic. */
enum topic_ownership {
    TOPIC_OWNED_BY_ENTITY,      /* the owner of the entity whose id is in the name */
    TOPIC_OWNED_BY_NAMED_USER,  /* the user whose id is in the name */
    TOPIC_OWNED_BY_NAMED_GUEST, /* the guest whose scope is in the name */
    TOPIC_SHARED,               /* each frame has its own owner */
    TOPIC_GRANTED,              /* a token must grant the topic by name */
    TOPIC_RESERVED,             /* no such topic exists */
};

struct topic_row {
    const char *pattern; /* without '*': the name of the only topic of this row */
    const char *stream;  /* the pattern of its stream id; NULL: "runtime.topic." and the name */
    enum policy_row policy;
    enum topic_ownership ownership;
    enum entity_kind entity; /* TOPIC_OWNED_BY_ENTITY only, else ENTITY_NONE */
    unsigned scopes_any;     /* a token needs one of these; 0: none */
};

struct entity_row {
    const char *name;             /* on the wire, in hashes and in logs */
    const char *id_member;        /* the JSON member that names an entity of this kind */
    enum topic_kind topic;        /* carries the events of one entity, under their own seq */
    enum topic_kind shared_topic; /* carries the events of all entities of the kind, or NONE */
    enum document_kind summary;   /* folded from the events, or DOCUMENT_NONE */
    const char *event_key_prefix; /* prefix of an event's document key; NULL: no key */
    bool has_event_owner;         /* each event names its owner; false: the entity's owner */
    enum status not_found;        /* the answer if no such entity exists */
};

struct document_row {
    const char *name;         /* name of the document and of its projection */
    const char *key_prefix;   /* the document key without the entity's id */
    const char *source_table; /* its name in answers to clients */
    enum entity_kind entity;
    enum topic_kind topic;
    enum topic_kind user_topic; /* or TOPIC_NONE, as for guests */
    enum topic_kind guest_topic;
};

const struct topic_row *topic_row(enum topic_kind kind);
const struct entity_row *entity_row(enum entity_kind kind);
const struct document_row *document_row(enum document_kind kind);

/* id, which may be NULL, becomes the part of the name in the place of '*'; it may be empty. */
enum topic_kind topic_kind_of(struct slice topic, struct slice *id);
/* run:*, worker:*, fleet:*, runtime.*: no client may publish to these. */
bool topic_is_projection_owned(struct slice topic);
/* The name of a topic that is the only one of its kind. */
struct slice topic_name(enum topic_kind kind);
/* The name with id in the place of '*'. */
MUST_CHECK enum status topic_name_make(struct arena *arena, enum topic_kind kind, struct slice id,
                                       struct slice *name);
/* The topic that carries the events of one entity. */
MUST_CHECK enum status topic_name_of_entity(struct arena *arena, enum entity_kind kind,
                                            struct slice id, struct slice *name);
/* Its frames are documents only. No event is published to it, so publish limits do not apply. */
bool topic_has_documents_only(enum topic_kind kind);
/* Whether the frames of a topic are events of the log, which keeps all of them. The other topics
 * have a journal of their own, which is pruned. */
bool topic_is_from_log(struct slice topic);
/* Whether a bootstrap begins with the first event of the log, whatever the floor of retention: of
 * runs, workers and application topics. Shared topics of the log begin at their floor. */
bool topic_begins_in_log(struct slice topic);
/* DOCUMENT_NONE if no kind has this name. */
enum document_kind document_kind_of(struct slice name);

const char *entity_kind_name(enum entity_kind kind);
const char *document_kind_name(enum document_kind kind);

/* The bit of a scope by its name; 0 for a name that is no scope. */
unsigned scope_of(struct slice name);
const char *scope_name(enum scope scope);
#define SCOPES_NEEDED_BYTES_MAX 192
/* "The token needs the scope A or B.": the message of STATUS_MISSING_SCOPE, for the bits of those
 * scopes of which a token needs one. */
const char *scopes_needed(unsigned scopes_any, char text[SCOPES_NEEDED_BYTES_MAX]);

/* Patterns of topic names and stream ids: literal text with at most one '*', which stands for any
 * bytes or for none. The literal parts never overlap: "run:*:events" does not match "run:events". A
 * name made from a pattern matches it, with the same middle. */

/* On a match, middle (may be NULL) becomes the part in the place of '*'; empty without a '*'. */
bool topic_pattern_match(const char *pattern, struct slice name, struct slice *middle);
/* The bytes of the name with middle in the place of '*'. */
size_t topic_pattern_size(const char *pattern, struct slice middle);
/* Writes that name, topic_pattern_size bytes of it. */
void topic_pattern_fill(const char *pattern, struct slice middle, char *name);

#endif
