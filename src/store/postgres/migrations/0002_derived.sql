-- The tables that follow from the log. The repair of a missing table runs this file again, and every
-- later file whose name ends in _derived, so each statement may be repeated.

-- Topics. With entity_ref the topic is that entity's events, and head_seq is NULL: the entity's last
-- seq is the head. The epoch of another topic ends with journal_epoch. Frames up to damaged_seq may
-- have been lost by damage.
CREATE TABLE IF NOT EXISTS topics (
    ref bigint PRIMARY KEY,
    topic text COLLATE "C" NOT NULL UNIQUE,
    stream_id text COLLATE "C" NOT NULL UNIQUE,
    entity_ref bigint,
    oldest_seq bigint NOT NULL,
    head_seq bigint,
    journal_epoch bigint NOT NULL DEFAULT 0,
    damaged_seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS topics_by_entity ON topics (entity_ref);

-- Frames of topics without an entity. A frame without a payload is the event log_id.
-- first_entity_seq is the first event that the frame covers; NULL: it covers one event.
CREATE TABLE IF NOT EXISTS journal (
    topic_ref bigint NOT NULL,
    seq bigint NOT NULL,
    log_id bigint NOT NULL,
    entity_ref bigint NOT NULL,
    doc_version bigint NOT NULL,
    published_at bigint NOT NULL,
    first_entity_seq bigint,
    payload_hash bytea NOT NULL,
    payload text COLLATE "C",
    PRIMARY KEY (topic_ref, seq)
);

CREATE TABLE IF NOT EXISTS sync_run_summaries (
    entity_ref bigint PRIMARY KEY,
    doc_key text COLLATE "C" NOT NULL,
    doc_version bigint NOT NULL,
    payload_hash bytea NOT NULL,
    payload text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS sync_codex_worker_summaries (
    entity_ref bigint PRIMARY KEY,
    doc_key text COLLATE "C" NOT NULL,
    doc_version bigint NOT NULL,
    payload_hash bytea NOT NULL,
    payload text COLLATE "C" NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS checkpoints (
    entity_ref bigint NOT NULL,
    projection_name text COLLATE "C" NOT NULL,
    document_id text COLLATE "C" NOT NULL,
    last_runtime_seq bigint NOT NULL,
    projection_version text COLLATE "C" NOT NULL,
    summary_hash bytea NOT NULL,
    last_projected_at bigint NOT NULL,
    PRIMARY KEY (entity_ref, projection_name)
) WITH (fillfactor = 70);

CREATE TABLE IF NOT EXISTS khala_projection_drifts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection_name text COLLATE "C" NOT NULL,
    entity_ref bigint NOT NULL,
    reason text COLLATE "C" NOT NULL,
    expected_seq bigint NOT NULL,
    actual_seq bigint NOT NULL,
    seen_at bigint NOT NULL,
    subject text COLLATE "C"
);

-- The same rows under the names and columns of the projection contract, for people and reports.
CREATE OR REPLACE VIEW sync_topic_sequences AS
SELECT t.topic, coalesce(t.head_seq, (SELECT max(e.seq) FROM events e WHERE e.entity_ref = t.entity_ref),
                         0) + 1 AS next_watermark
FROM topics t;

CREATE OR REPLACE VIEW sync_stream_events AS
SELECT t.topic, j.seq AS watermark, coalesce(r.doc_key, w.doc_key) AS doc_key, j.doc_version,
       coalesce(j.payload, e.payload) AS payload,
       'sha256:' || encode(j.payload_hash, 'hex') AS payload_hash,
       to_timestamp(j.published_at / 1000.0) AS inserted_at
FROM journal j
JOIN topics t ON t.ref = j.topic_ref
JOIN events e ON e.log_id = j.log_id
LEFT JOIN sync_run_summaries r ON r.entity_ref = j.entity_ref AND j.payload IS NOT NULL
LEFT JOIN sync_codex_worker_summaries w ON w.entity_ref = j.entity_ref AND j.payload IS NOT NULL
UNION ALL
SELECT t.topic, e.seq, NULL, e.seq, e.payload, 'sha256:' || encode(e.payload_hash, 'hex'),
       to_timestamp(coalesce(e.recorded_at, ('x' || lpad(left(replace(e.cursor::text, '-', ''), 12),
                                                         16, '0'))::bit(64)::bigint) / 1000.0)
FROM topics t
JOIN events e ON e.entity_ref = t.entity_ref AND e.seq >= t.oldest_seq;

CREATE OR REPLACE VIEW khala_projection_checkpoints AS
SELECT c.projection_name, n.id AS entity_id, c.document_id, c.last_runtime_seq, c.projection_version,
       encode(c.summary_hash, 'hex') AS summary_hash,
       to_timestamp(c.last_projected_at / 1000.0) AS last_projected_at
FROM checkpoints c
JOIN entities n ON n.ref = c.entity_ref;
