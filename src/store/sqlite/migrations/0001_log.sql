-- The log, what is derived from it, and the journal. Times are milliseconds since 1970, hashes
-- SHA-256 in raw bytes, uuids 16 raw bytes: select hex(cursor) to read them.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What owns a sequence. kind: 0 run, 1 worker, 2 topic, 3 audit.
CREATE TABLE entities (
    ref INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 3),
    id TEXT NOT NULL,
    owner_user_id TEXT,
    owner_guest_scope TEXT,
    org_id TEXT,
    status TEXT,
    worker_id TEXT,
    thread_id TEXT,
    workspace_ref TEXT,
    codex_home_ref TEXT,
    adapter TEXT,
    metadata TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    stopped_at INTEGER,
    last_heartbeat_at INTEGER
) STRICT;
CREATE UNIQUE INDEX entities_by_id ON entities (kind, id);
CREATE INDEX entities_by_kind ON entities (kind);

CREATE VIEW runs AS
SELECT ref, id AS run_id, status, worker_id, thread_id, metadata, created_at, started_at, stopped_at
FROM entities WHERE kind = 0;

CREATE VIEW run_ownerships AS
SELECT id AS run_id, owner_user_id, owner_guest_scope, org_id FROM entities WHERE kind = 0;

CREATE VIEW codex_workers AS
SELECT ref, id AS worker_id, status, owner_user_id, owner_guest_scope, org_id, workspace_ref,
       codex_home_ref, adapter, metadata, created_at, started_at, stopped_at, last_heartbeat_at
FROM entities WHERE kind = 1;

-- The authority log. event_id is NULL where it equals the cursor's uuid, and cursors rise with
-- log_id: both are found by searching log_id, so no index has to be kept for them. The payload
-- stands last, so that reading the other columns never follows it into overflow pages.
CREATE TABLE events (
    log_id INTEGER PRIMARY KEY,
    entity_ref INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    cursor BLOB NOT NULL,
    event_id BLOB,
    type TEXT NOT NULL,
    owner_user_id TEXT,
    owner_guest_scope TEXT,
    org_id TEXT,
    payload_hash BLOB NOT NULL,
    prev_hash BLOB NOT NULL,
    event_hash BLOB NOT NULL,
    payload TEXT NOT NULL
) STRICT;

-- Where an entity's events are, in two parts. New positions go to the small part; when it has grown
-- enough all of it moves into the large one. A commit over a thousand entities then dirties the few
-- pages of the small part, instead of one page of the large part for every entity. An entity's
-- positions in the small part follow those in the large one without a gap.
CREATE TABLE event_positions (
    entity_ref INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    log_id INTEGER NOT NULL,
    PRIMARY KEY (entity_ref, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE event_positions_recent (
    entity_ref INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    log_id INTEGER NOT NULL,
    PRIMARY KEY (entity_ref, seq)
) STRICT, WITHOUT ROWID;

-- Only ids that clients chose.
CREATE TABLE event_ids (
    event_id BLOB PRIMARY KEY,
    log_id INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    entity_ref INTEGER NOT NULL,
    key TEXT NOT NULL,
    log_id INTEGER NOT NULL,
    PRIMARY KEY (entity_ref, key)
) STRICT, WITHOUT ROWID;

-- Topics. With entity_ref the topic is that entity's events, and head_seq is NULL: the entity's
-- last seq is the head.
CREATE TABLE sync_topic_sequences (
    ref INTEGER PRIMARY KEY,
    topic TEXT NOT NULL UNIQUE,
    stream_id TEXT NOT NULL UNIQUE,
    entity_ref INTEGER,
    oldest_seq INTEGER NOT NULL,
    head_seq INTEGER
) STRICT;

-- The journal. Rows are kept in order of birth and found through a narrow index: a payload inside
-- an index would leave its pages half full.
CREATE TABLE sync_stream_events (
    id INTEGER PRIMARY KEY,
    topic_ref INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    log_id INTEGER NOT NULL,
    entity_ref INTEGER NOT NULL,
    doc_version INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    payload_hash BLOB NOT NULL,
    payload TEXT
) STRICT;
CREATE UNIQUE INDEX sync_stream_events_by_topic ON sync_stream_events (topic_ref, seq);

CREATE TABLE sync_run_summaries (
    entity_ref INTEGER PRIMARY KEY,
    doc_key TEXT NOT NULL,
    doc_version INTEGER NOT NULL,
    payload_hash BLOB NOT NULL,
    payload TEXT NOT NULL
) STRICT;

CREATE TABLE sync_codex_worker_summaries (
    entity_ref INTEGER PRIMARY KEY,
    doc_key TEXT NOT NULL,
    doc_version INTEGER NOT NULL,
    payload_hash BLOB NOT NULL,
    payload TEXT NOT NULL
) STRICT;

CREATE TABLE khala_projection_checkpoints (
    entity_ref INTEGER NOT NULL,
    projection_name TEXT NOT NULL,
    document_id TEXT NOT NULL,
    last_runtime_seq INTEGER NOT NULL,
    projection_version TEXT NOT NULL,
    summary_hash BLOB NOT NULL,
    last_projected_at INTEGER NOT NULL,
    PRIMARY KEY (entity_ref, projection_name)
) STRICT, WITHOUT ROWID;

CREATE TABLE khala_projection_drifts (
    id INTEGER PRIMARY KEY,
    projection_name TEXT NOT NULL,
    entity_ref INTEGER NOT NULL,
    reason TEXT NOT NULL,
    expected_seq INTEGER NOT NULL,
    actual_seq INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT;

-- The fixed topics. Notifications are the events of one entity; the others have journal rows.
INSERT INTO entities (ref, kind, id, created_at)
VALUES (1, 2, 'runtime.notifications', unixepoch() * 1000);

INSERT INTO sync_topic_sequences (ref, topic, stream_id, entity_ref, oldest_seq, head_seq) VALUES
    (1, 'runtime.run_summaries', 'runtime.topic.runtime.run_summaries', NULL, 1, 0),
    (2, 'runtime.codex_worker_summaries', 'runtime.topic.runtime.codex_worker_summaries', NULL, 1, 0),
    (3, 'runtime.codex_worker_events', 'runtime.codex.worker.events', NULL, 1, 0),
    (4, 'runtime.notifications', 'runtime.topic.runtime.notifications', 1, 1, NULL);
