-- What each owner has stored, which every commit keeps, and the quotas that operators set. owner is
-- "user:ID", "guest:SCOPE" or "org:ID". Entities without an owner count for none. unowned_bytes are
-- those of events without an owner that tokens of this owner produced, which the log does not say.
CREATE TABLE owner_usage (
    owner TEXT PRIMARY KEY,
    events INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    metadata_bytes INTEGER NOT NULL,
    open_runs INTEGER NOT NULL,
    open_workers INTEGER NOT NULL,
    unowned_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A quota whose value is NULL was removed. Serials rise, so that a reader asks for the latest ones.
CREATE TABLE owner_quotas (
    owner TEXT NOT NULL,
    quota TEXT NOT NULL,
    value INTEGER,
    serial INTEGER NOT NULL,
    PRIMARY KEY (owner, quota)
) STRICT, WITHOUT ROWID;

-- The same as owner_usage, counted from the log and the entities, with no unowned_bytes. An event counts its type and
-- payload, an entity its texts, and each 256 bytes for everything else. length() of a text counts
-- characters, and of a blob bytes.
CREATE VIEW owner_usage_counted AS
WITH counted (owner, events, bytes, metadata_bytes, open_runs, open_workers) AS (
    SELECT iif(n.kind < 2,
               coalesce('user:' || n.owner_user_id, 'guest:' || n.owner_guest_scope, 'org:' || n.org_id),
               coalesce('user:' || e.owner_user_id, 'guest:' || e.owner_guest_scope, 'org:' || e.org_id)),
           1, 256 + length(CAST(e.type AS BLOB)) + coalesce(length(CAST(e.payload AS BLOB)), 0), 0, 0, 0
    FROM events e JOIN entities n ON n.ref = e.entity_ref
    UNION ALL
    SELECT coalesce('user:' || owner_user_id, 'guest:' || owner_guest_scope, 'org:' || org_id),
           0,
           256 + length(CAST(id AS BLOB)) + coalesce(length(CAST(worker_id AS BLOB)), 0)
               + coalesce(length(CAST(thread_id AS BLOB)), 0)
               + coalesce(length(CAST(workspace_ref AS BLOB)), 0)
               + coalesce(length(CAST(codex_home_ref AS BLOB)), 0)
               + coalesce(length(CAST(adapter AS BLOB)), 0)
               + coalesce(length(CAST(metadata AS BLOB)), 0),
           coalesce(length(CAST(metadata AS BLOB)), 0),
           kind = 0 AND status IN ('created', 'running', 'canceling'),
           kind = 1 AND status NOT IN ('stopped', 'failed')
    FROM entities WHERE kind < 2
)
SELECT owner, sum(events) AS events, sum(bytes) AS bytes, sum(metadata_bytes) AS metadata_bytes,
       sum(open_runs) AS open_runs, sum(open_workers) AS open_workers,
       0 AS unowned_bytes
FROM counted WHERE owner IS NOT NULL GROUP BY owner;

INSERT INTO owner_usage SELECT * FROM owner_usage_counted;
