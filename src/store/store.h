/* The store: all durable data, behind one small table of functions that every engine implements.
 * Thread: a session belongs to one thread at a time; one session of a store may write.
 * Memory: rows given to a callback live until it returns; rows that are loaded live in the caller's
 * arena.
 * Errors: STATUS_STORE_UNAVAILABLE: disk full, locked or gone; a retry may succeed.
 * STATUS_DISK_RESERVE: what is left of the disk is not for appends. STATUS_NOT_FOUND: no such row.
 * STATUS_INTERNAL_ERROR: the store is damaged. STATUS_WRITER_LOST, from a write session: the
 * session was lost, and another node may have the writer role; the caller drops all it knows of the
 * store, and the session is of use again after store_take_role. STATUS_APPEND_OUTCOME_UNKNOWN, from
 * a commit: the batch may be stored; the session is lost.
 * Invariant: store_commit is all or nothing, and durable when it returns STATUS_OK. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdatomic.h>
#include <stdint.h>

#include "auth/revocation.h"
#include "base/arena.h"
#include "base/sha256.h"
#include "base/slice.h"
#include "spec/codes.h"
#include "store/id_mark.h"
#include "topic/event_cursor.h"
#include "topic/owner.h"
#include "topic/topic_table.h"

#define STORE_SCHEMA_VERSION 15
#define STORE_EPOCH_SIZE     36
/* Of the links in the hash chains that are written now. */
#define STORE_CHAIN_VERSION 2
#define STORE_MESSAGE_MAX   512
/* No sequence, version or log id is larger. A stored one that is was put there by hand. JSON
 * numbers are exact up to twice as much. */
#define STORE_SEQ_MAX (UINT64_C(1) << 52)
/* Where the epochs of the log part, among the properties: fork_log_id is the lowest end of the log
 * at which a later epoch began, and import_log_id the end of what was imported. A log with one
 * epoch has neither. The fork of a topic that is served from the log follows from them. One with
 * journal rows has a property of its own, its head at that moment: this prefix and its name.
 * Without it, as behind the first ones by ref, its fork is 0. */
#define STORE_FORK_PREFIX     "fork-"
#define STORE_FORK_TOPICS_MAX 512
/* Metadata of at least this size is stored once for each version, and not in each row. */
#define STORE_METADATA_CUT_BYTES 256
/* Rows, indexes and keys of an event or an entity, in the usage of its owner. The view
 * owner_usage_counted has the same number. */
#define STORE_USAGE_ROW_BYTES 256
/* Waiting rows of the outbox are counted up to here. */
#define STORE_OUTBOX_COUNT_MAX 10000

/* ---- rows -------------------------------------------------------------------------------- */

/* The authority's own state of an entity. Refs are small integers the writer hands out, in order,
 * never reused. Which attributes are used depends on the kind; absent texts have data NULL.
 * head_seq and head_hash follow from the events and are only read, never written. */
struct store_entity {
    uint64_t ref;
    enum entity_kind kind;
    struct slice id;
    struct owner owner;
    struct slice status; /* run and worker states, by name */
    struct slice worker_id;
    struct slice thread_id;
    struct slice workspace_ref;
    struct slice codex_home_ref;
    struct slice adapter;
    struct slice metadata; /* JSON object */
    uint64_t created_at_ms;
    uint64_t started_at_ms; /* 0: never */
    uint64_t stopped_at_ms;
    uint64_t last_heartbeat_at_ms;
    uint64_t head_seq; /* 0: no event yet */
    uint8_t head_hash[SHA256_BYTES];
};

/* One fact. log_id numbers the whole log from 1 without gaps; cursors rise with it. The payload is
 * canonical JSON. owner is the event's own where its kind of entity has owners per event; otherwise
 * it is the entity's, which never changes, and is only read. */
struct store_event {
    uint64_t log_id;
    uint64_t entity_ref;
    enum entity_kind entity_kind;
    struct slice entity_id; /* read only: joined from the entity */
    uint64_t seq;
    struct slice type;
    struct slice payload;
    struct uuid event_id;
    struct uuid cursor;      /* the cursor's uuid, which holds the cursor's time */
    uint64_t recorded_at_ms; /* by the wall clock, which may be behind the cursor's time */
    struct owner owner;
    uint8_t payload_hash[SHA256_BYTES];
    unsigned chain_version; /* how chain_hash is made: 1 to STORE_CHAIN_VERSION */
    uint8_t prev_chain_hash[SHA256_BYTES];
    uint8_t chain_hash[SHA256_BYTES];
};

/* An idempotency key of an entity, for the event it made. */
struct store_key {
    uint64_t entity_ref; /* 0: the key holds its own scope */
    struct slice key;
    uint64_t log_id;
};

/* A topic. A topic with entity_ref is that entity's events: its seq is the entity's, its head is
 * the entity's head, and its journal is the log itself from oldest_seq on. The others have journal
 * rows of their own, from oldest_seq to head_seq. An empty journal has oldest_seq = head_seq + 1.
 */
struct store_topic {
    uint64_t ref;
    struct slice name;
    struct slice stream_id;
    uint64_t entity_ref; /* 0: journal rows */
    uint64_t oldest_seq;
    uint64_t head_seq;
    uint64_t journal_epoch; /* read only: how often its journal was rebuilt */
    uint64_t damaged_seq;   /* read only: frames up to here may have been lost by damage */
};

/* A payload as it is written: without its metadata, which is stored once for each entity and hash.
 * Every function that reads a row puts the metadata back, so only writers see this. */
struct store_cut {
    struct slice text;    /* the payload without the metadata */
    uint64_t metadata_at; /* the place of the metadata: characters of text before it, at least 1 */
    struct slice metadata;
    uint8_t metadata_hash[SHA256_BYTES];
    bool is_new; /* the store may lack this version of the metadata */
};

/* A frame of a topic with journal rows. document_key and payload of a summary; or, with payload
 * absent, the event log_id itself (runtime.codex_worker_events). */
struct store_journal_row {
    uint64_t topic_ref;
    uint64_t seq;
    uint64_t log_id;     /* the (last) event that caused it */
    uint64_t entity_ref; /* the entity of the frame, whose owner may read it */
    uint64_t first_seq; /* the entity's first event since the document's last frame; 0: one event */
    uint64_t document_version;
    struct slice payload;
    uint8_t payload_hash[SHA256_BYTES]; /* of the whole payload */
    uint64_t published_at_ms;
    /* Of a summary: the record of topic/where.h; absent: the frame before is not known. */
    struct slice fields_before;
    /* Write only; NULL: the payload is stored whole. In a batch, the version of the metadata is in
     * the store or comes with a document of the batch. */
    const struct store_cut *cut;
};

/* What lists order and filter documents by. It follows from the payload and the entity's owner. */
struct store_listed {
    struct slice owner; /* store_list_owner; absent: none */
    struct slice state; /* plain text */
    uint64_t updated_at_ms;
    /* JSON: two strings and an array. Absent: it has none. */
    struct slice parent_run_id;
    struct slice title;
    struct slice tags;
};

/* A read model row. The key is spec'd text (runtime/run_summary:<id>); entity_ref finds it. owner
 * is its entity's: walks set it, nothing else reads or writes it. */
struct store_document {
    enum document_kind kind;
    uint64_t entity_ref;
    struct slice key;
    uint64_t version;
    struct slice payload;               /* canonical JSON */
    uint8_t payload_hash[SHA256_BYTES]; /* of the whole payload */
    struct owner owner;
    const struct store_cut *cut; /* write only; NULL: the payload is stored whole */
    struct store_listed listed;  /* write only */
};

/* The rows of a summary as the writer left them. */
struct store_summary_rows {
    uint64_t last_runtime_seq; /* of the checkpoint */
    uint8_t summary_hash[SHA256_BYTES];
    uint64_t document_version;
    uint8_t document_hash[SHA256_BYTES]; /* its payload_hash */
};

/* An entity has one, because it has one kind of document. */
struct store_checkpoint {
    enum document_kind kind; /* the projection's name follows from it */
    uint64_t entity_ref;
    struct slice document_id;
    uint64_t last_runtime_seq;
    struct slice projection_version;
    uint8_t summary_hash[SHA256_BYTES]; /* without projected_at */
    uint64_t last_projected_at_ms;
    /* Write only: the rows that this one and its document replace. The commit compares them with
     * the stored ones, and records a difference as drift. NULL: they are not compared. */
    const struct store_summary_rows *replaced;
};

/* A drift that was found: of the document of an entity, or of a topic or table. */
struct store_drift {
    uint64_t id;             /* read only */
    enum document_kind kind; /* DOCUMENT_NONE: of a topic or table */
    uint64_t entity_ref;
    struct slice entity_id; /* read only */
    struct slice subject;   /* read only: the topic or table */
    enum reason reason;
    uint64_t expected_seq;
    uint64_t actual_seq;
    uint64_t seen_at_ms;
};

struct store_revocation {
    enum revocation_kind kind;
    struct slice id;
    struct slice reason; /* may be absent */
    uint64_t revoked_at_ms;
    uint64_t expires_at_ms;
};

/* Things that may be used once: a token that opens a connection, a nonce of the audit stream. */
enum single_use_kind { SINGLE_USE_TOKEN, SINGLE_USE_NONCE };

struct store_single_use {
    enum single_use_kind kind;
    struct slice id;
    uint64_t expires_at_ms;
    bool was_used; /* set by the store: before, and is remembered until that use's expiry */
};

/* A derived row that a read found missing or altered. */
struct store_damage {
    enum document_kind kind; /* the document of entity_ref; DOCUMENT_NONE: of a journal */
    uint64_t entity_ref;
    struct slice topic;
    uint64_t seq; /* the topic's first frame that is missing or altered */
};

/* A repair of a journal. */
struct store_journal_repair {
    struct slice topic;
    const struct store_journal_row *rows; /* altered ones, as they should be */
    size_t row_count;
    uint64_t lost_seq; /* a frame that cannot be repaired; 0: none */
    uint64_t now_ms;
};

/* The cost of a replay. */
struct store_replay {
    uint64_t frame_count;
    uint64_t payload_bytes;
};

/* One topic of a pruning: request and result. */
struct store_prune {
    uint64_t topic_ref;
    uint64_t below_seq; /* frames from here on stay */
    uint64_t limit;     /* most frames to remove */
    uint64_t pruned;
    uint64_t oldest_seq; /* afterwards */
    uint64_t head_seq;
};

/* Frames of before before_ms have expired. */
struct store_expiry_query {
    uint64_t before_ms;
    uint64_t now_ms;
    uint64_t limit; /* most expired journal rows to count; at least 1 */
};

/* How far a topic has expired. */
struct store_expiry {
    uint64_t first_seq;   /* of the frames that stay: one after the last expired frame */
    uint64_t first_at_ms; /* how old that frame is; 0: not looked at, or not there */
};

/* A row that a user's own transaction left for the writer. Nothing in it was checked. */
struct store_outbox_row {
    int64_t id;
    struct slice kind; /* topic, run, worker or notification */
    struct slice target;
    struct slice event_type;
    struct slice payload;
    struct slice event_id; /* as text */
    struct slice idempotency_key;
    struct owner owner;
    bool is_oversized;      /* the texts are absent, because they are too large to be read */
    uint64_t age_ms;        /* since it was inserted */
    uint64_t waiting_count; /* all rows that wait, as far as they were counted */
};

/* A row of the outbox that the writer refused. */
struct store_outbox_rejection {
    int64_t id;
    struct slice code;
    struct slice message;
};

/* The largest payload of a kind of row. */
struct store_outbox_limit {
    struct slice kind;
    uint64_t payload_bytes_max;
};

/* How much of the outbox to read at once. */
struct store_outbox_query {
    uint64_t row_max;
    uint64_t row_bytes_max;                  /* the texts of a larger row are left out */
    uint64_t bytes_max;                      /* texts of all rows */
    const struct store_outbox_limit *limits; /* for the functions that users call */
    size_t limit_count;
    unsigned limits_edition; /* changes when the limits do */
};

/* The outbox, for people. */
struct store_outbox_state {
    uint64_t waiting_count; /* up to STORE_OUTBOX_COUNT_MAX */
    uint64_t oldest_age_ms;
    uint64_t rejected_count;
    char rejected_code[64]; /* of the latest */
    char rejected_message[STORE_MESSAGE_MAX];
    bool has_producer_role;
};

/* What an owner has stored. owner is "user:ID", "guest:SCOPE" or "org:ID". */
struct store_usage {
    struct slice owner;
    uint64_t events;
    uint64_t bytes;          /* of events and entities, each with STORE_USAGE_ROW_BYTES more */
    uint64_t metadata_bytes; /* of runs and workers; part of bytes too */
    uint64_t open_runs;
    uint64_t open_workers;
    /* Of events without an owner that tokens of this owner produced. The log does not say so, and a
     * count cannot find them. */
    uint64_t unowned_bytes;
};

/* A quota that an operator set for one owner. */
struct store_quota {
    struct slice owner;
    struct slice name;
    bool is_set; /* false: it was removed */
    uint64_t value;
    uint64_t serial; /* read only: rises with each change */
};

/* An operator key. Only its SHA-256 is kept. */
struct store_operator_key {
    struct slice name;
    struct slice role; /* by name, as in auth/principal.h */
    struct slice id;   /* changes with each rotation; revocations name it */
    uint8_t digest[SHA256_BYTES];
    uint64_t created_at_ms;
    uint64_t rotated_at_ms;   /* 0: never */
    struct slice previous_id; /* of the key before the last rotation; absent: there is none */
    uint8_t previous_digest[SHA256_BYTES];
    uint64_t previous_until_ms; /* it is valid until then */
};

/* Room on the disk of an embedded store, from much to little (see "the disk reserve" below). */
enum store_room {
    STORE_ROOM_FREE,    /* above the line: what other appends need */
    STORE_ROOM_RESERVE, /* half of the file of the reserve is left */
    STORE_ROOM_LAST,    /* less than that */
};

/* Everything one commit writes. Entities, topics, documents and checkpoints replace the row of the
 * same ref (documents: kind and ref); events, keys, journal rows and drifts are new. The name of a
 * ref never changes, and a topic's oldest_seq never falls. Absent metadata leaves that of the
 * entity's row as it is. Only the latest drifts, some thousands, are kept. */
struct store_batch {
    const struct store_entity *entities;
    size_t entity_count;
    const struct store_event *events;
    size_t event_count;
    const struct store_key *keys;
    size_t key_count;
    const struct store_topic *topics;
    size_t topic_count;
    const struct store_document *documents;
    size_t document_count;
    const struct store_checkpoint *checkpoints;
    size_t checkpoint_count;
    const struct store_journal_row *journal;
    size_t journal_count;
    const struct store_drift *drifts;
    size_t drift_count;
    /* > 0: the derived rows of the events from this log id on are missing. The lowest is kept until
     * a batch says that all derived rows are there. */
    uint64_t unprojected_from;
    bool is_projected;
    /* > 0: the log was imported up to this event. What follows belongs to another epoch. */
    uint64_t imported_log_id;
    /* The rows of the outbox that this batch answers. The commit removes them, and keeps the
     * rejected ones aside. STATUS_STORE_UNAVAILABLE: one was removed or locked by others. */
    const int64_t *outbox_ids;
    size_t outbox_count;
    const struct store_outbox_rejection *rejections; /* of those rows */
    size_t rejection_count;
    /* What the owners of the events have stored with this batch: they replace the owners' rows. */
    const struct store_usage *usages;
    size_t usage_count;
    enum store_room room_least; /* the commit is refused with less */
    bool is_shared;             /* others wait for their turn: the pauses after it must be short */
};

/* One entity that the writer asks for, by its name. */
struct store_entity_lookup {
    enum entity_kind kind;
    struct slice id;
    struct slice stream_id; /* of the topic that a new entity would get; absent: not asked for */
    /* Answered. STATUS_NOT_FOUND: the entity does not exist. */
    enum status status;
    uint64_t ref;         /* 0: not found */
    bool is_stream_taken; /* where the entity does not exist: a topic has the stream id */
};

enum store_event_by {
    STORE_EVENT_BY_LOG_ID,
    STORE_EVENT_BY_ID,
    STORE_EVENT_BY_KEY,        /* the event that an idempotency key of an entity made */
    STORE_EVENT_BY_SCOPED_KEY, /* the same of a key that holds its own scope */
    STORE_EVENT_FIRST,         /* an entity's event with seq 1 */
};

/* One event that the writer asks for. The entity of a key or of a first event is named by its ref,
 * or by a lookup of the same prefetch where the ref is not known. */
struct store_event_lookup {
    enum store_event_by by;
    uint64_t log_id;
    struct uuid event_id;
    uint64_t entity_ref;
    const struct store_entity_lookup *entity; /* NULL: entity_ref is set */
    struct slice key;
    struct arena *arena;         /* for the texts of the event */
    struct store_entity *holder; /* filled with the entity of the event; NULL: not asked for */
    /* Answered. STATUS_NOT_FOUND: there is no such event. */
    enum status status;
    struct store_event event;
};

/* Everything that the writer must know before it applies a batch and does not hold in memory. */
struct store_prefetch {
    struct store_entity_lookup *entities;
    size_t entity_count;
    struct store_event_lookup *events;
    size_t event_count;
    /* Called for each entity that exists. The entity lives until it returns, and its answer becomes
     * the lookup's status. It may not use the session. */
    enum status (*on_entity)(void *user, struct store_entity_lookup *lookup,
                             const struct store_entity *entity);
    void *user;
};

/* A short text of the store itself, by name. */
struct store_property {
    struct slice name;
    struct slice value; /* absent: the store has no such property */
};

/* The state from which the writer continues after a restart. */
struct store_state {
    char epoch[STORE_EPOCH_SIZE + 1];
    uint64_t log_id;     /* of the last event; 0: none */
    uint64_t entity_ref; /* the last handed out */
    uint64_t topic_ref;
    struct uuid cursor;       /* of the last event */
    struct uuid event_id_max; /* no stored event id is above it; zero: none is stored */
    struct id_mark id_mark;   /* the ids that the server mints carry it; it never changes */
    /* Events from this log id on may lack their derived rows, and documents may be missing. 0: all
     * derived rows are there. */
    uint64_t unprojected_from;
    /* The log has had several epochs, which are the same up to this log id; 0: it is not known
     * where they part. */
    bool has_fork;
    uint64_t fork_log_id;
};

/* Whether payload and hash of a derived row agree, and a journal row with its event. Documents
 * whose payload is absent are not whole. */
bool store_document_is_whole(const struct store_document *document);
bool store_row_is_whole(const struct store_journal_row *row, const struct store_event *event);
/* A row that cannot be read is written anew, like one that is missing. */
static inline bool store_is_lost(enum status found) {
    return found == STATUS_NOT_FOUND || found == STATUS_INTERNAL_ERROR;
}

/* ---- sessions ---------------------------------------------------------------------------- */

struct store;
struct store_session;

/* STORE_SIDE, of a store that servers share: writes secrets, revocations, single uses and the
 * node's own row, which need no writer role. Several may be open. */
enum store_mode { STORE_READ, STORE_WRITE, STORE_SIDE };

/* A sentence for people: the failure and its remedy. */
struct store_message {
    char text[STORE_MESSAGE_MAX];
};

/* Opens the store that a URL names. "sqlite:FOLDER", and any text without a scheme, is the embedded
 * store in that folder. "postgres://…" is a database of PostgreSQL. STATUS_INVALID_CONFIG for a
 * scheme that this build has no engine for, and for another schema version; the message then names
 * the remedy. exclusive: for the process that writes. It takes the store's lock, so that two
 * servers never share a store, and creates the store where there is none. Without it a store that
 * exists is opened for reading beside a server. A store that was moved elsewhere is opened for
 * reading only, and one that an unfinished move fills is not opened: STATUS_INVALID_CONFIG. */
MUST_CHECK enum status store_open(struct store **store, const char *url, bool exclusive,
                                  struct store_message *message);
/* A new epoch, which no other log has. STATUS_SYSTEM_ERROR: the system has no random bytes. */
MUST_CHECK enum status store_epoch_mint(char epoch[STORE_EPOCH_SIZE + 1]);
/* Gives the log of the store a new epoch, so that all clients start again. No server may use the
 * store. fork_log_id: the last event that is in all histories of the log; NULL: its last one. The
 * statuses of store_open; the message has a sentence for people. */
MUST_CHECK enum status store_epoch_renew(const char *url, const uint64_t *fork_log_id,
                                         char epoch[STORE_EPOCH_SIZE + 1],
                                         struct store_message *message);
/* Brings the schema up to date under the lock, and creates the store where there is none. Repeating
 * it changes nothing. */
MUST_CHECK enum status store_migrate(const char *url, struct store_message *message);
void store_close(struct store *store);
/* The schema version that this build makes of the URL's store. */
int store_schema_version(const char *url);
/* The URL without user and password, for people; writes a NUL-terminated text. */
void store_url_label(const char *url, char *label, size_t size);

/* Whether the store keeps generated secrets, for all its servers. Otherwise they are files of the
 * data folder only. */
bool store_has_secrets(const struct store *store);

/* Any thread, while a write session is open: checks that the store's files are still where that
 * session found them. STATUS_STORE_UNAVAILABLE: they were moved or deleted. Commits fail until the
 * files are back; reads continue. */
MUST_CHECK enum status store_check_location(const struct store *store,
                                            struct store_message *message);

/* The disk space that the store takes. */
struct store_size {
    uint64_t bytes;     /* of the log, and of everything derived from it */
    uint64_t wal_bytes; /* of the embedded store's write-ahead log; 0 in PostgreSQL */
};

MUST_CHECK enum status store_measure(struct store_session *session, struct store_size *size);

/* The write session, after STATUS_WRITER_LOST: tries to take the writer role again. STATUS_OK: the
 * caller reads its state again, because another server may have written. STATUS_WRITER_LOST: not
 * yet; the session waits longer after each attempt that fails. STATUS_NOT_WRITER: another server
 * has the role. It never waits for the role. */
MUST_CHECK enum status store_take_role(struct store_session *session);
/* The write session, while its thread has no work: shows a remote store that the session is in use,
 * and measures the disk of an embedded one. *wait_ms: when to call again; negative: never.
 * STATUS_WRITER_LOST: the session is gone. */
MUST_CHECK enum status store_keep_alive(struct store_session *session, int64_t *wait_ms);

/* A second write session, or one without the lock, is a bug and asserts. */
MUST_CHECK enum status store_session_open(struct store *store, enum store_mode mode,
                                          struct store_session **session);
void store_session_close(struct store_session *session);
/* The last failure of this session, for logs. */
const char *store_session_error(const struct store_session *session);
/* The reason code of that failure. */
enum reason store_session_reason(const struct store_session *session);
/* Any thread: how many rows this session has read since it was opened. */
uint64_t store_session_rows_read(const struct store_session *session);
/* Reads of the session fail with STATUS_STORE_UNAVAILABLE once the flag is true, between two rows
 * of a walk too. The flag outlives the reads; NULL: none. */
void store_session_cancel_by(struct store_session *session, const atomic_bool *is_cancelled);

/* ---- the disk reserve ----------------------------------------------------------------------

 * An embedded store keeps a part of its disk for work that must go on where appends cannot. Half of
 * it is free space below which appends stop. The other half is a file that is given back piece by
 * piece when even that space is used up. These calls may use all of it: store_put_revocations,
 * store_use_once, store_put_quotas, store_put_operator_key, store_drop_operator_key,
 * store_prune_topics, and store_commit of a batch for STORE_ROOM_LAST. A commit for
 * STORE_ROOM_RESERVE leaves half of the file to them. A commit of other events is refused at the
 * line. Both are refused with STATUS_DISK_RESERVE. All other writes may use the free space below
 * the line, but not the file. */

/* The disk, as last measured. */
struct store_disk {
    bool is_stopped; /* appends are refused */
    uint64_t free_bytes;
    uint64_t line_bytes; /* appends stop where less would stay free; 0: never */
    uint64_t held_bytes; /* of the file, which usually has line_bytes too */
};

/* Before the write session is opened: how much of the disk to reserve; 0: nothing. A small disk
 * gets a smaller reserve. No effect where the disk is another server's. */
void store_set_reserve(struct store *store, uint64_t bytes);
/* Half of the reserve, on a disk of that size. */
uint64_t store_reserve_half(uint64_t reserve_bytes, uint64_t disk_bytes);
/* The write session: what is left. Costs a comparison, and a measurement where much was written
 * since the last one. */
enum store_room store_check_room(struct store_session *session);
/* Any thread. All is 0 where nothing is reserved. */
void store_disk(const struct store *store, struct store_disk *disk);

/* ---- the outbox ---------------------------------------------------------------------------- */

typedef void store_outbox_cb(void *user, const struct store_outbox_row *row);

/* Whether users can append in their own transactions. */
bool store_has_outbox(const struct store_session *session);
/* The write session of a store with an outbox: the rows that are visible now, by id. The callback
 * may not use the session. It costs one cheap query, which also keeps the session alive. The
 * first call of a writer's term also stores the limits. */
MUST_CHECK enum status store_read_outbox(struct store_session *session,
                                         const struct store_outbox_query *query, void *user,
                                         store_outbox_cb *callback);
/* Any session. STATUS_NOT_FOUND: the store has no outbox. */
MUST_CHECK enum status store_outbox_state(struct store_session *session,
                                          struct store_outbox_state *state);

/* ---- writing (the write session) --------------------------------------------------------- */

/* Answers all lookups of a batch together: one round trip where the store is remote. Each lookup
 * has a status of its own, STATUS_INTERNAL_ERROR for a damaged row and STATUS_OUT_OF_MEMORY
 * included. An answer other than STATUS_OK: the store could not be read, and no lookup is answered.
 */
MUST_CHECK enum status store_prefetch(struct store_session *session,
                                      struct store_prefetch *prefetch);
/* A batch that contradicts stored rows changes nothing: STATUS_ALREADY_EXISTS where an id, name,
 * key or frame is taken, STATUS_SEQUENCE_CONFLICT where log_id, cursor or an entity's seq does not
 * follow the last; the caller then reads its state again. After any other failure no session sees
 * any of the batch; should the process end before a later commit succeeds, a restart may still
 * find the batch whole, as if only its answer had been lost. */
MUST_CHECK enum status store_commit(struct store_session *session, const struct store_batch *batch);
/* Repairs the derived tables: rebuilds missing tables, empty; adds missing topics; removes
 * journal rows that no topic can have. Documents are not rebuilt: store_state.unprojected_from is
 * set then. Each repair is recorded as drift. All or nothing. */
MUST_CHECK enum status store_heal(struct store_session *session, uint64_t now_ms);
/* Puts the payload and the hash of altered rows right. With lost_seq it also raises oldest_seq of
 * the topic, which has journal rows, behind its last hole and behind lost_seq. Cursors up to there
 * are journal_damaged; a seq outside of the journal only looks for holes. All or nothing. Each
 * repair is recorded as drift of the topic. */
MUST_CHECK enum status store_repair_journal(struct store_session *session,
                                            const struct store_journal_repair *repair);
/* Rebuilds the journals of all topics with journal rows, in a new epoch: a frame for each
 * document, and the latest events, at most events_max, where a topic carries events. The documents
 * agree with the log. Every cursor into the old journals is stale. All or nothing. */
MUST_CHECK enum status store_rebuild_journal(struct store_session *session, uint64_t events_max,
                                             uint64_t now_ms);
/* Removes at most limit journal rows of a topic below seq and raises oldest_seq accordingly (for an
 * entity's topic only that); says how many frames went. */
MUST_CHECK enum status store_prune(struct store_session *session, uint64_t topic_ref,
                                   uint64_t below_seq, uint64_t limit, uint64_t *pruned);
/* The same for several topics in one transaction: all of it or nothing. */
MUST_CHECK enum status store_prune_topics(struct store_session *session, struct store_prune *prunes,
                                          size_t count);

/* All or nothing. One that is there keeps the later expiry. Those that have expired go. */
MUST_CHECK enum status store_put_revocations(struct store_session *session,
                                             const struct store_revocation *revocations,
                                             size_t count, uint64_t now_ms);
/* Uses all of them in one transaction; each says by itself whether it was used before. Of two equal
 * ones the first counts. Otherwise all or nothing. */
MUST_CHECK enum status store_use_once(struct store_session *session, struct store_single_use *uses,
                                      size_t count, uint64_t now_ms);
#define STORE_SINGLE_USES_MAX 128 /* in one call */

/* Until store_commit_secrets, no other session has this lock: for a server that looks for secrets
 * and generates those that are missing. Waits for the lock. Secrets that the session keeps
 * meanwhile are stored by store_commit_secrets, or not at all where the session closes before. */
MUST_CHECK enum status store_lock_secrets(struct store_session *session);
MUST_CHECK enum status store_commit_secrets(struct store_session *session);
/* Keeps a generated secret: in place of one of that name, or unless the store has one. */
MUST_CHECK enum status store_replace_secret(struct store_session *session, struct slice name,
                                            struct slice value);
MUST_CHECK enum status store_keep_secret(struct store_session *session, struct slice name,
                                         struct slice value);

/* Sets and removes quotas in one transaction. They must be few. */
MUST_CHECK enum status store_put_quotas(struct store_session *session,
                                        const struct store_quota *quotas, size_t count);

/* Adds an operator key, or replaces the one of that name. */
MUST_CHECK enum status store_put_operator_key(struct store_session *session,
                                              const struct store_operator_key *key);
/* Also where there is no such key. */
MUST_CHECK enum status store_drop_operator_key(struct store_session *session, struct slice name);
/* Leaves an event of the audit log to the writer, which sequences it soon: for nodes that are not
 * the writer. STATUS_NOT_WRITER: the engine has no other nodes. */
MUST_CHECK enum status store_leave_audit_event(struct store_session *session, struct slice type,
                                               struct slice payload);

/* Sets and removes properties in one transaction. */
MUST_CHECK enum status store_put_properties(struct store_session *session,
                                            const struct store_property *properties, size_t count);

/* Before the log gets another epoch: notes its end, and the heads of the topics with journal rows,
 * as the place where its epochs part. One that was noted before is lower, and stays. */
MUST_CHECK enum status store_note_fork(struct store_session *session);
/* The epochs of the log part at this event, unless they do earlier. The heads of topics with
 * journal rows are not known for it: their forks become 0. */
MUST_CHECK enum status store_lower_fork(struct store_session *session, uint64_t log_id);

/* ---- reading (any session) ---------------------------------------------------------------- */

/* Between these two calls a read session sees the store as it was at the first call. Keep it short:
 * rows replaced meanwhile cannot be removed before the end. The end cannot fail, and is required
 * even when a read in between failed. */
MUST_CHECK enum status store_read_begin(struct store_session *session);
void store_read_end(struct store_session *session);

MUST_CHECK enum status store_read_state(struct store_session *session, struct store_state *state);
/* STATUS_NOT_FOUND: there is no such property. */
MUST_CHECK enum status store_load_property(struct store_session *session, struct slice name,
                                           struct arena *arena, struct slice *value);
/* A secret that store_keep_secret kept. STATUS_NOT_FOUND: there is none. */
MUST_CHECK enum status store_load_secret(struct store_session *session, struct slice name,
                                         struct arena *arena, struct slice *value);
MUST_CHECK enum status store_load_entity(struct store_session *session, enum entity_kind kind,
                                         struct slice id, struct arena *arena,
                                         struct store_entity *entity);
MUST_CHECK enum status store_load_entity_ref(struct store_session *session, uint64_t ref,
                                             struct arena *arena, struct store_entity *entity);
/* For tests and checks of a backend; the server reads events by walks and prefetches. */
MUST_CHECK enum status store_load_event(struct store_session *session, uint64_t log_id,
                                        struct arena *arena, struct store_event *event);
/* The last event at or before the cursor: the position it names. 0 when before the first. */
MUST_CHECK enum status store_find_cursor(struct store_session *session,
                                         const struct event_cursor *cursor, uint64_t *log_id);
MUST_CHECK enum status store_load_topic(struct store_session *session, struct slice name,
                                        struct arena *arena, struct store_topic *topic);
MUST_CHECK enum status store_load_stream(struct store_session *session, struct slice stream_id,
                                         struct arena *arena, struct store_topic *topic);
/* The frames of a topic after a seq, at most limit of them: costs a look at each row's size. */
MUST_CHECK enum status store_measure_replay(struct store_session *session,
                                            const struct store_topic *topic, uint64_t after_seq,
                                            uint64_t limit, struct store_replay *replay);
/* How many frames at the topic's beginning are older than a time. The walk goes from the oldest
 * frame to the first that is young enough. A frame dated after now_ms does not end the walk: it
 * goes with the first later frame that goes. */
MUST_CHECK enum status store_find_expired(struct store_session *session,
                                          const struct store_topic *topic,
                                          const struct store_expiry_query *query,
                                          struct store_expiry *expiry);
MUST_CHECK enum status store_load_document(struct store_session *session, enum document_kind kind,
                                           uint64_t entity_ref, struct arena *arena,
                                           struct store_document *document);
MUST_CHECK enum status store_load_checkpoint(struct store_session *session, enum document_kind kind,
                                             uint64_t entity_ref, struct arena *arena,
                                             struct store_checkpoint *checkpoint);

/* Usage and quotas: a callback may not use the session. Fills in the numbers of these owners, which
 * are 0 where the store has none. */
typedef enum status store_usage_cb(void *user, const struct store_usage *usage);
typedef enum status store_quota_cb(void *user, const struct store_quota *quota);
typedef enum status store_usage_difference_cb(void *user, const struct store_usage *stored,
                                              const struct store_usage *counted);
MUST_CHECK enum status store_load_usages(struct store_session *session, struct store_usage *usages,
                                         size_t count);
/* By owner. */
MUST_CHECK enum status store_walk_usages(struct store_session *session, struct slice after_owner,
                                         uint64_t limit, void *user, store_usage_cb *callback);
/* Counts the usage from the log and the entities, which reads all of them. The owners whose row
 * differs, at most limit. */
MUST_CHECK enum status store_check_usages(struct store_session *session, uint64_t limit, void *user,
                                          store_usage_difference_cb *callback);
/* Those that changed after a serial, also removed ones, by serial. */
MUST_CHECK enum status store_walk_quotas(struct store_session *session, uint64_t after_serial,
                                         void *user, store_quota_cb *callback);
/* All of them, by name. They are few, so that a caller reads them again instead of changes. The
 * callback may not use the session. */
typedef enum status store_operator_key_cb(void *user, const struct store_operator_key *key);
MUST_CHECK enum status store_walk_operator_keys(struct store_session *session, void *user,
                                                store_operator_key_cb *callback);

/* Walks: rows in order until the limit, or until the callback returns a status other than
 * STATUS_OK, which the walk then returns. All rows show the store as it was when the walk began.
 * The engine fetches a page of rows, of bounded memory, before the callback sees the first of them.
 * So a callback may read with the session; it may not begin the same kind of walk, and not write.
 * Rows before one that is damaged are still delivered. */
typedef enum status store_event_cb(void *user, const struct store_event *event);
typedef enum status store_entity_cb(void *user, const struct store_entity *entity);
typedef enum status store_topic_cb(void *user, const struct store_topic *topic);
typedef enum status store_document_cb(void *user, const struct store_document *document);
typedef enum status store_journal_cb(void *user, const struct store_journal_row *row,
                                     const struct store_event *event);
/* The owner's texts are valid during the call, which must not use the session. */
typedef enum status store_owner_cb(void *user, uint64_t seq, const struct owner *owner);
typedef enum status store_drift_cb(void *user, const struct store_drift *drift);
typedef enum status store_revocation_cb(void *user, const struct store_revocation *revocation);

MUST_CHECK enum status store_walk_entity_events(struct store_session *session, uint64_t entity_ref,
                                                uint64_t after_seq, uint64_t limit, void *user,
                                                store_event_cb *callback);
/* The same for readers that need no hashes of the chain: prev_chain_hash, chain_hash and
 * chain_version may be 0. The callback may not begin such a walk itself. */
MUST_CHECK enum status store_walk_entity_frames(struct store_session *session, uint64_t entity_ref,
                                                uint64_t after_seq, uint64_t limit, void *user,
                                                store_event_cb *callback);
MUST_CHECK enum status store_walk_log(struct store_session *session, uint64_t after_log_id,
                                      uint64_t limit, void *user, store_event_cb *callback);
/* By ref, of one kind. */
MUST_CHECK enum status store_walk_entities(struct store_session *session, enum entity_kind kind,
                                           uint64_t after_ref, uint64_t limit, void *user,
                                           store_entity_cb *callback);
MUST_CHECK enum status store_walk_topics(struct store_session *session, uint64_t after_ref,
                                         uint64_t limit, void *user, store_topic_cb *callback);
/* By id, of one kind: a list that is continued after the last id. */
MUST_CHECK enum status store_list_entities(struct store_session *session, enum entity_kind kind,
                                           struct slice after_id, uint64_t limit, void *user,
                                           store_entity_cb *callback);
/* Lists of runs or workers in an order. One call reads at most limit rows, each by an index: the
 * caller goes on behind the last one. A run that does not change between two calls is neither
 * skipped nor repeated. */
enum store_list_order { STORE_LIST_BY_ID, STORE_LIST_BY_CREATION, STORE_LIST_BY_UPDATE };
/* The rows that have a value, where these are few. */
enum store_list_filter {
    STORE_LIST_ALL,
    STORE_LIST_OF_WORKER,
    STORE_LIST_OF_PARENT,
};
/* More rows are not few: the caller walks all rows in their order instead, and filters them. */
#define STORE_LIST_FEW_MAX      10000
#define STORE_LIST_OWNERS_MAX   2
#define STORE_LIST_STATUSES_MAX 6
#define STORE_LIST_ROWS_MAX     1024
struct store_list_position {
    uint64_t time_ms; /* unused by id */
    uint64_t ref;
    struct slice id; /* by id alone */
};
struct store_list {
    enum entity_kind kind; /* runs or workers */
    enum store_list_order order;
    bool is_descending;
    enum store_list_filter filter;
    struct slice value; /* of the filter */
    /* Rows in these states, which may be all of the kind. An order by id, and a filter, have rows
     * in all states. */
    struct slice statuses[STORE_LIST_STATUSES_MAX];
    size_t status_count;
    /* Rows of these owners (store_list_owner). None: of all, and with a filter always of all. */
    struct slice owners[STORE_LIST_OWNERS_MAX];
    size_t owner_count;
    bool has_after;
    struct store_list_position after;
    uint64_t limit; /* at most STORE_LIST_ROWS_MAX */
};
struct store_list_row {
    uint64_t ref;
    struct slice id;
    struct slice status;
    struct owner owner;
    struct slice worker_id;
    uint64_t created_at_ms;
    /* As in struct store_listed; 0 and absent where the document is missing. By update, a row
     * without a document is not listed. */
    uint64_t updated_at_ms;
    struct slice parent_run_id;
    struct slice title;
    struct slice tags;
};
/* The text by which an owner is listed: its user, else its guest, else its organisation. Absent:
 * it has none. */
MUST_CHECK enum status store_list_owner(struct arena *arena, const struct owner *owner,
                                        struct slice *text);
typedef enum status store_list_cb(void *user, const struct store_list_row *row);
/* The callback may use the session. */
MUST_CHECK enum status store_list_rows(struct store_session *session, const struct store_list *list,
                                       void *user, store_list_cb *callback);
/* How many rows the list's filter has, at most STORE_LIST_FEW_MAX + 1. */
MUST_CHECK enum status store_count_listed(struct store_session *session,
                                          const struct store_list *list, uint64_t *count);
/* By name, from the first name at or behind the prefix on. */
MUST_CHECK enum status store_list_topics(struct store_session *session, struct slice prefix,
                                         struct slice after_name, uint64_t limit, void *user,
                                         store_topic_cb *callback);
/* By ref: one for each entity of that kind. key and payload are absent where the row is missing or
 * cannot be read. */
MUST_CHECK enum status store_walk_documents(struct store_session *session, enum document_kind kind,
                                            uint64_t after_ref, uint64_t limit, void *user,
                                            store_document_cb *callback);
/* Frames of a topic with journal rows; event is the row's event (type, cursor, id, payload). */
MUST_CHECK enum status store_walk_journal(struct store_session *session, uint64_t topic_ref,
                                          uint64_t after_seq, uint64_t limit, void *user,
                                          store_journal_cb *callback);
/* The owners of such frames, without payloads and events: a row belongs to the owner of its entity.
 */
MUST_CHECK enum status store_walk_owners(struct store_session *session, uint64_t topic_ref,
                                         uint64_t after_seq, uint64_t limit, void *user,
                                         store_owner_cb *callback);
/* The first journal row of a topic that does not exist. STATUS_NOT_FOUND: there is none. */
MUST_CHECK enum status store_find_stray_row(struct store_session *session, uint64_t *topic_ref,
                                            uint64_t *seq);
/* The most recent first. */
MUST_CHECK enum status store_walk_drifts(struct store_session *session, uint64_t limit, void *user,
                                         store_drift_cb *callback);
/* Those that have not expired. */
MUST_CHECK enum status store_walk_revocations(struct store_session *session, uint64_t now_ms,
                                              void *user, store_revocation_cb *callback);

#endif
