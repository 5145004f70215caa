-- An entity has one projection, so its ref alone is the key of its checkpoint. SQLite then replaces
-- the row in its place, where the key before took a search by text, a removal and an insertion.
-- The rows wait in another table, because renaming a table would change views that people made.
CREATE TABLE checkpoints_before AS SELECT * FROM checkpoints;
DROP TABLE checkpoints;
CREATE TABLE checkpoints (
    entity_ref INTEGER PRIMARY KEY,
    projection_name TEXT NOT NULL,
    document_id TEXT NOT NULL,
    last_runtime_seq INTEGER NOT NULL,
    projection_version TEXT NOT NULL,
    summary_hash BLOB NOT NULL,
    last_projected_at INTEGER NOT NULL
) STRICT;
-- A damaged row stays behind: the next event of its entity makes the checkpoint again.
INSERT OR IGNORE INTO checkpoints (entity_ref, projection_name, document_id, last_runtime_seq,
    projection_version, summary_hash, last_projected_at)
SELECT c.entity_ref, c.projection_name, c.document_id, c.last_runtime_seq, c.projection_version,
       c.summary_hash, c.last_projected_at
FROM checkpoints_before c
JOIN entities n ON n.ref = c.entity_ref
WHERE c.projection_name = CASE n.kind WHEN 0 THEN 'run_summary' WHEN 1 THEN 'codex_worker_summary' END
  AND typeof(c.document_id) = 'text' AND typeof(c.last_runtime_seq) = 'integer'
  AND typeof(c.projection_version) = 'text' AND typeof(c.summary_hash) = 'blob'
  AND typeof(c.last_projected_at) = 'integer';
DROP TABLE checkpoints_before;
