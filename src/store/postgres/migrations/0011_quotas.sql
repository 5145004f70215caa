-- What each owner has stored, which every commit keeps, and the quotas that operators set. owner is
-- "user:ID", "guest:SCOPE" or "org:ID". Entities without an owner count for none. unowned_bytes are
-- those of events without an owner that tokens of this owner produced, which the log does not say.
CREATE TABLE owner_usage (
    owner text COLLATE "C" PRIMARY KEY,
    events bigint NOT NULL,
    bytes bigint NOT NULL,
    metadata_bytes bigint NOT NULL,
    open_runs bigint NOT NULL,
    open_workers bigint NOT NULL,
    unowned_bytes bigint NOT NULL
) WITH (fillfactor = 50);

-- A quota whose value is NULL was removed. Serials rise in the order of the commits, so that a node
-- reads the quotas after the last one that it has seen.
CREATE TABLE owner_quotas (
    owner text COLLATE "C" NOT NULL,
    quota text COLLATE "C" NOT NULL,
    value bigint,
    serial bigint NOT NULL,
    PRIMARY KEY (owner, quota)
);
CREATE INDEX owner_quotas_by_serial ON owner_quotas (serial);

-- The same as owner_usage, counted from the log and the entities, with no unowned_bytes. An event counts its type and
-- payload, an entity its texts, and each 256 bytes for everything else.
CREATE VIEW owner_usage_counted AS
WITH counted (owner, events, bytes, metadata_bytes, open_runs, open_workers) AS (
    SELECT CASE WHEN n.kind < 2
               THEN coalesce('user:' || n.owner_user_id, 'guest:' || n.owner_guest_scope, 'org:' || n.org_id)
               ELSE coalesce('user:' || e.owner_user_id, 'guest:' || e.owner_guest_scope, 'org:' || e.org_id)
           END,
           1, 256 + octet_length(e.type) + coalesce(octet_length(e.payload), 0), 0, 0, 0
    FROM events e JOIN entities n ON n.ref = e.entity_ref
    UNION ALL
    SELECT coalesce('user:' || owner_user_id, 'guest:' || owner_guest_scope, 'org:' || org_id),
           0,
           256 + octet_length(id) + coalesce(octet_length(worker_id), 0)
               + coalesce(octet_length(thread_id), 0) + coalesce(octet_length(workspace_ref), 0)
               + coalesce(octet_length(codex_home_ref), 0) + coalesce(octet_length(adapter), 0)
               + coalesce(octet_length(metadata), 0),
           coalesce(octet_length(metadata), 0),
           (kind = 0 AND status IN ('created', 'running', 'canceling'))::int,
           (kind = 1 AND status NOT IN ('stopped', 'failed'))::int
    FROM entities WHERE kind < 2
)
SELECT owner COLLATE "C" AS owner, sum(events)::bigint AS events, sum(bytes)::bigint AS bytes,
       sum(metadata_bytes)::bigint AS metadata_bytes, sum(open_runs)::bigint AS open_runs,
       sum(open_workers)::bigint AS open_workers,
       0::bigint AS unowned_bytes
FROM counted WHERE owner IS NOT NULL GROUP BY owner COLLATE "C";

INSERT INTO owner_usage SELECT * FROM owner_usage_counted;
