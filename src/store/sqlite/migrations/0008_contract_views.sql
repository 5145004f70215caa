-- The tables of topics, of the journal and of checkpoints get names of their own. The names of the
-- projection contract are views over them, for people and reports, as on PostgreSQL. A table that is
-- missing must not stop the migration: the repair makes a table with other columns again.
CREATE TABLE IF NOT EXISTS sync_topic_sequences (missing);
CREATE TABLE IF NOT EXISTS sync_stream_events (missing);
CREATE TABLE IF NOT EXISTS khala_projection_checkpoints (missing);
ALTER TABLE sync_topic_sequences RENAME TO topics;
ALTER TABLE sync_stream_events RENAME TO journal;
ALTER TABLE khala_projection_checkpoints RENAME TO checkpoints;

CREATE VIEW sync_topic_sequences AS
SELECT t.topic,
       coalesce(t.head_seq,
                (SELECT p.seq + p.event_count - 1 FROM event_positions_recent p
                 WHERE p.entity_ref = t.entity_ref ORDER BY p.seq DESC LIMIT 1),
                (SELECT p.seq + p.event_count - 1 FROM event_positions p
                 WHERE p.entity_ref = t.entity_ref ORDER BY p.seq DESC LIMIT 1),
                0) + 1 AS next_watermark
FROM topics t;

-- Events of an entity are found by their positions, so that a range of watermarks reads no other
-- events. A position of one event is found by its seq. A position of several events is taken apart
-- by json_each over an array of as many zeros, which costs no access to the log. An event's time is
-- recorded_at, or else the first 48 bits of its cursor. Events of topics have no document key.
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
       coalesce(j.payload, e.payload) AS payload,
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

CREATE VIEW khala_projection_checkpoints AS
SELECT c.projection_name, n.id AS entity_id, c.document_id, c.last_runtime_seq, c.projection_version,
       lower(hex(c.summary_hash)) AS summary_hash,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.last_projected_at / 1000.0, 'unixepoch') AS last_projected_at
FROM checkpoints c
JOIN entities n ON n.ref = c.entity_ref;
