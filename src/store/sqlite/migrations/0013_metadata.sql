-- Metadata of a summary is stored once for each version, and not again in each document and frame. A
-- row with metadata_at lacks its metadata, which has its place after so many characters; metadata_hash
-- names the version. Other rows have whole payloads.
CREATE TABLE summary_metadata (
    entity_ref INTEGER NOT NULL,
    metadata_hash BLOB NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (entity_ref, metadata_hash)
) STRICT;

DROP VIEW sync_stream_events;
ALTER TABLE journal ADD COLUMN metadata_at INTEGER;
ALTER TABLE journal ADD COLUMN metadata_hash BLOB;
CREATE INDEX journal_by_metadata ON journal (entity_ref, metadata_hash) WHERE metadata_hash IS NOT NULL;

-- The tables of documents get names of their own. The names of the projection contract are views with
-- whole payloads. Views that people made keep the names that they use.
PRAGMA legacy_alter_table = ON;
ALTER TABLE sync_run_summaries RENAME TO run_documents;
ALTER TABLE sync_codex_worker_summaries RENAME TO worker_documents;
PRAGMA legacy_alter_table = OFF;
ALTER TABLE run_documents ADD COLUMN metadata_at INTEGER;
ALTER TABLE run_documents ADD COLUMN metadata_hash BLOB;
ALTER TABLE worker_documents ADD COLUMN metadata_at INTEGER;
ALTER TABLE worker_documents ADD COLUMN metadata_hash BLOB;

CREATE VIEW sync_run_summaries AS
SELECT d.entity_ref, d.doc_key, d.doc_version, d.payload_hash,
       CASE WHEN d.metadata_at IS NULL THEN d.payload
            ELSE substr(d.payload, 1, d.metadata_at)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = d.entity_ref AND v.metadata_hash = d.metadata_hash), '')
                 || substr(d.payload, d.metadata_at + 1) END AS payload
FROM run_documents d;

CREATE VIEW sync_codex_worker_summaries AS
SELECT d.entity_ref, d.doc_key, d.doc_version, d.payload_hash,
       CASE WHEN d.metadata_at IS NULL THEN d.payload
            ELSE substr(d.payload, 1, d.metadata_at)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = d.entity_ref AND v.metadata_hash = d.metadata_hash), '')
                 || substr(d.payload, d.metadata_at + 1) END AS payload
FROM worker_documents d;

-- As before, with whole payloads.
CREATE VIEW sync_stream_events AS
WITH frames (topic, watermark, log_id) AS (
    SELECT t.topic, p.seq, p.log_id
    FROM topics t CROSS JOIN event_positions p
    WHERE p.entity_ref = t.entity_ref AND p.seq >= t.oldest_seq AND p.event_count = 1
    UNION ALL
    SELECT t.topic, p.seq + i.key, p.log_id + i.key
    FROM topics t CROSS JOIN event_positions p
    CROSS JOIN json_each('[0' || replace(hex(zeroblob(p.event_count - 1)), '00', ',0') || ']') i
    WHERE p.entity_ref = t.entity_ref AND p.seq + i.key >= t.oldest_seq AND p.event_count > 1
    UNION ALL
    SELECT t.topic, p.seq + i.key, p.log_id + i.key
    FROM topics t CROSS JOIN event_positions_recent p
    CROSS JOIN json_each('[0' || replace(hex(zeroblob(p.event_count - 1)), '00', ',0') || ']') i
    WHERE p.entity_ref = t.entity_ref AND p.seq + i.key >= t.oldest_seq
)
SELECT t.topic, j.seq AS watermark,
       iif(j.payload IS NULL, 'runtime/codex_worker_event:' || n.id || ':' || e.seq,
           iif(n.kind = 0, 'runtime/run_summary:', 'runtime/codex_worker_summary:') || n.id) AS doc_key,
       iif(j.payload IS NULL, e.seq, j.doc_version) AS doc_version,
       coalesce(CASE WHEN j.metadata_at IS NULL THEN j.payload
            ELSE substr(j.payload, 1, j.metadata_at)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = j.entity_ref AND v.metadata_hash = j.metadata_hash), '')
                 || substr(j.payload, j.metadata_at + 1) END,
                e.payload) AS payload,
       'sha256:' || lower(hex(j.payload_hash)) AS payload_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.published_at / 1000.0, 'unixepoch') AS inserted_at
FROM topics t
JOIN journal j ON j.topic_ref = t.ref
JOIN events e ON e.log_id = j.log_id
JOIN entities n ON n.ref = e.entity_ref
UNION ALL
SELECT f.topic, f.watermark,
       CASE n.kind WHEN 0 THEN 'runtime/run_event:' WHEN 1 THEN 'runtime/codex_worker_event:' END
           || n.id || ':' || e.seq,
       f.watermark, e.payload, 'sha256:' || lower(hex(e.payload_hash)),
       strftime('%Y-%m-%dT%H:%M:%fZ',
                coalesce(e.recorded_at,
                         (SELECT sum(instr('123456789ABCDEF', substr(hex(e.cursor), d.column1, 1))
                                     << (48 - 4 * d.column1))
                          FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12)) d))
                / 1000.0, 'unixepoch')
FROM frames f CROSS JOIN events e CROSS JOIN entities n
WHERE e.log_id = f.log_id AND n.ref = e.entity_ref;
