-- Several servers over one database. Each is a node; one of them has the writer role.

-- Which topics with journal rows a commit changed, so that the other nodes learn it with one query.
-- topic_refs NULL: any topic may have changed. Ids are given under the lock of the writer's term, so
-- their order is the order of the commits. Only the latest rows are kept.
CREATE TABLE commits (
    commit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_refs bigint[]
);

-- The running nodes. Each node writes its own row, about once a second. role: writer or follower.
-- log_id and cursor name the last event that the node has delivered.
CREATE TABLE nodes (
    node_id text COLLATE "C" PRIMARY KEY,
    address text COLLATE "C" NOT NULL,
    operator_address text COLLATE "C",
    version text COLLATE "C" NOT NULL,
    schema_version bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    log_id bigint NOT NULL,
    cursor uuid,
    revocations_seen bigint NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Serials rise in the order of the commits, so that a node reads the revocations after the last one
-- that it has seen.
CREATE SEQUENCE revocation_serials;
ALTER TABLE sync_revocations ADD COLUMN serial bigint NOT NULL DEFAULT 0;
CREATE INDEX sync_revocations_by_serial ON sync_revocations (serial);

-- The oldest schema version whose builds can read this schema.
INSERT INTO meta (name, value) VALUES ('reader_version', '6');
