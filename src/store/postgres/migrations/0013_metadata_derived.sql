-- Metadata of a summary is stored once for each version, and not again in each document and frame. A
-- row with metadata_at lacks its metadata, which has its place after so many characters; metadata_hash
-- names the version. Other rows have whole payloads.
CREATE TABLE IF NOT EXISTS summary_metadata (
    entity_ref bigint NOT NULL,
    metadata_hash bytea NOT NULL,
    metadata text COLLATE "C" NOT NULL,
    PRIMARY KEY (entity_ref, metadata_hash)
);

ALTER TABLE journal ADD COLUMN IF NOT EXISTS metadata_at bigint;
ALTER TABLE journal ADD COLUMN IF NOT EXISTS metadata_hash bytea;
CREATE INDEX IF NOT EXISTS journal_by_metadata ON journal (entity_ref, metadata_hash)
WHERE metadata_hash IS NOT NULL;

-- The tables of documents get names of their own. The names of the projection contract are views with
-- whole payloads, which nodes of 0.2.0 read too. The repair may have made an empty table under the
-- name of a view.
DO $$
DECLARE
    name record;
BEGIN
    FOR name IN SELECT * FROM (VALUES ('sync_run_summaries', 'run_documents'),
                                      ('sync_codex_worker_summaries', 'worker_documents')) n(old, new)
    LOOP
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass('runtime.' || name.old) AND c.relkind = 'r') THEN
            IF to_regclass('runtime.' || name.new) IS NULL THEN
                EXECUTE format('ALTER TABLE runtime.%I RENAME TO %I', name.old, name.new);
            ELSE
                EXECUTE format('DROP TABLE runtime.%I CASCADE', name.old);
            END IF;
        END IF;
    END LOOP;
END
$$;
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS metadata_at bigint;
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS metadata_hash bytea;
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS metadata_at bigint;
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS metadata_hash bytea;

CREATE OR REPLACE VIEW sync_run_summaries AS
SELECT d.entity_ref, d.doc_key, d.doc_version, d.payload_hash,
       CASE WHEN d.metadata_at IS NULL THEN d.payload
            ELSE substr(d.payload, 1, d.metadata_at::int)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = d.entity_ref AND v.metadata_hash = d.metadata_hash), '')
                 || substr(d.payload, d.metadata_at::int + 1) END AS payload
FROM run_documents d;

CREATE OR REPLACE VIEW sync_codex_worker_summaries AS
SELECT d.entity_ref, d.doc_key, d.doc_version, d.payload_hash,
       CASE WHEN d.metadata_at IS NULL THEN d.payload
            ELSE substr(d.payload, 1, d.metadata_at::int)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = d.entity_ref AND v.metadata_hash = d.metadata_hash), '')
                 || substr(d.payload, d.metadata_at::int + 1) END AS payload
FROM worker_documents d;

-- As before, with whole payloads.
CREATE OR REPLACE VIEW sync_stream_events AS
SELECT t.topic, j.seq AS watermark,
       CASE WHEN j.payload IS NULL THEN 'runtime/codex_worker_event:' || n.id || ':' || e.seq
            WHEN n.kind = 0 THEN 'runtime/run_summary:' || n.id
            ELSE 'runtime/codex_worker_summary:' || n.id END AS doc_key,
       CASE WHEN j.payload IS NULL THEN e.seq ELSE j.doc_version END AS doc_version,
       coalesce(CASE WHEN j.metadata_at IS NULL THEN j.payload
            ELSE substr(j.payload, 1, j.metadata_at::int)
                 || coalesce((SELECT v.metadata FROM summary_metadata v
                              WHERE v.entity_ref = j.entity_ref AND v.metadata_hash = j.metadata_hash), '')
                 || substr(j.payload, j.metadata_at::int + 1) END,
                e.payload) AS payload,
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
