-- A frame that is an event has the document key and the version that its message has. Events of
-- topics have no document key.
CREATE OR REPLACE VIEW sync_stream_events AS
SELECT t.topic, j.seq AS watermark,
       CASE WHEN j.payload IS NULL THEN 'runtime/codex_worker_event:' || n.id || ':' || e.seq
            WHEN n.kind = 0 THEN 'runtime/run_summary:' || n.id
            ELSE 'runtime/codex_worker_summary:' || n.id END AS doc_key,
       CASE WHEN j.payload IS NULL THEN e.seq ELSE j.doc_version END AS doc_version,
       coalesce(j.payload, e.payload) AS payload,
       'sha256:' || encode(j.payload_hash, 'hex') AS payload_hash,
       to_timestamp(j.published_at / 1000.0) AS inserted_at
FROM journal j
JOIN topics t ON t.ref = j.topic_ref
JOIN events e ON e.log_id = j.log_id
JOIN entities n ON n.ref = e.entity_ref
UNION ALL
SELECT t.topic, e.seq,
       CASE n.kind WHEN 0 THEN 'runtime/run_event:' WHEN 1 THEN 'runtime/codex_worker_event:' END
           || n.id || ':' || e.seq,
       e.seq, e.payload, 'sha256:' || encode(e.payload_hash, 'hex'),
       to_timestamp(coalesce(e.recorded_at, ('x' || lpad(left(replace(e.cursor::text, '-', ''), 12),
                                                         16, '0'))::bit(64)::bigint) / 1000.0)
FROM topics t
JOIN events e ON e.entity_ref = t.entity_ref AND e.seq >= t.oldest_seq
JOIN entities n ON n.ref = e.entity_ref;
