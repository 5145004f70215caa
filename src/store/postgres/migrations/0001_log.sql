-- The authority log and its entities. Times are milliseconds since 1970, hashes SHA-256 in raw
-- bytes. Keys compare by bytes, so that their order does not depend on the locale of the server.
-- Payloads are canonical JSON as text, because jsonb refuses \u0000 and does not keep the text.

CREATE TABLE meta (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- The writer role. term rises with each session that takes the role, and each commit checks it. One
-- row.
CREATE TABLE writer (
    id smallint PRIMARY KEY CHECK (id = 1),
    term bigint NOT NULL,
    taken_at timestamptz NOT NULL
);
INSERT INTO writer (id, term, taken_at) VALUES (1, 0, now());

-- An entity owns a sequence of events. kind: 0 run, 1 worker, 2 topic, 3 audit. Room in each page
-- lets an update stay there, without new index entries.
CREATE TABLE entities (
    ref bigint PRIMARY KEY,
    kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 3),
    id text COLLATE "C" NOT NULL,
    owner_user_id text COLLATE "C",
    owner_guest_scope text COLLATE "C",
    org_id text COLLATE "C",
    status text COLLATE "C",
    worker_id text COLLATE "C",
    thread_id text COLLATE "C",
    workspace_ref text COLLATE "C",
    codex_home_ref text COLLATE "C",
    adapter text COLLATE "C",
    metadata text COLLATE "C",
    created_at bigint NOT NULL,
    started_at bigint,
    stopped_at bigint,
    last_heartbeat_at bigint
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX entities_by_id ON entities (kind, id);
CREATE INDEX entities_by_kind ON entities (kind, ref);

CREATE VIEW runs AS
SELECT ref, id AS run_id, status, worker_id, thread_id, metadata, created_at, started_at, stopped_at
FROM entities WHERE kind = 0;

CREATE VIEW run_ownerships AS
SELECT id AS run_id, owner_user_id, owner_guest_scope, org_id FROM entities WHERE kind = 0;

CREATE VIEW codex_workers AS
SELECT ref, id AS worker_id, status, owner_user_id, owner_guest_scope, org_id, workspace_ref,
       codex_home_ref, adapter, metadata, created_at, started_at, stopped_at, last_heartbeat_at
FROM entities WHERE kind = 1;

-- The log. event_id is NULL where it equals the cursor, and cursors rise with log_id, which has no
-- gaps. Both are found by a search over log_id, so no index has to be kept for them. recorded_at is
-- NULL where it is the time of the cursor.
CREATE TABLE events (
    log_id bigint PRIMARY KEY,
    entity_ref bigint NOT NULL,
    seq bigint NOT NULL,
    recorded_at bigint,
    chain_version smallint NOT NULL,
    cursor uuid NOT NULL,
    event_id uuid,
    type text COLLATE "C" NOT NULL,
    owner_user_id text COLLATE "C",
    owner_guest_scope text COLLATE "C",
    org_id text COLLATE "C",
    payload_hash bytea NOT NULL,
    prev_chain_hash bytea NOT NULL,
    chain_hash bytea NOT NULL,
    payload text COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX events_by_entity ON events (entity_ref, seq);

-- Event ids that clients supplied.
CREATE TABLE event_ids (
    event_id uuid PRIMARY KEY,
    log_id bigint NOT NULL
);

CREATE TABLE idempotency_keys (
    entity_ref bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    log_id bigint NOT NULL,
    PRIMARY KEY (entity_ref, key)
);

-- The mark of this store in the ids that its server mints. One row.
CREATE TABLE minted_ids (
    id smallint PRIMARY KEY CHECK (id = 1),
    mark bytea NOT NULL,
    unmarked_max uuid
);
INSERT INTO minted_ids (id, mark) VALUES (1, substring(uuid_send(gen_random_uuid()) FROM 1 FOR 3));

-- The last event at or before a cursor; 0: there is none.
CREATE FUNCTION find_cursor(wanted uuid) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    low bigint := 0;
    high bigint;
    probe bigint;
    found_cursor uuid;
BEGIN
    SELECT e.log_id + 1, e.log_id INTO high, probe FROM runtime.events e ORDER BY e.log_id DESC LIMIT 1;
    WHILE high - low > 1 LOOP
        SELECT e.cursor INTO found_cursor FROM runtime.events e WHERE e.log_id = probe;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'event % is missing', probe USING ERRCODE = 'data_corrupted';
        END IF;
        IF found_cursor <= wanted THEN
            low := probe;
        ELSE
            high := probe;
        END IF;
        probe := low + (high - low) / 2;
    END LOOP;
    RETURN low;
END
$$;

-- The event whose minted id this is; NULL: there is none.
CREATE FUNCTION find_minted(wanted uuid) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT e.log_id FROM runtime.events e
    WHERE e.log_id = runtime.find_cursor(wanted) AND e.cursor = wanted AND e.event_id IS NULL
$$;

-- Revocations, kept until no such token can be valid. kind: 0 session, 1 device, 2 token.
CREATE TABLE sync_revocations (
    kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 2),
    id text COLLATE "C" NOT NULL,
    reason text,
    revoked_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX sync_revocations_by_expiry ON sync_revocations (expires_at);

-- Tokens and nonces that were used. kind: 0 token, 1 nonce.
CREATE TABLE sync_single_uses (
    kind smallint NOT NULL CHECK (kind BETWEEN 0 AND 1),
    id text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX sync_single_uses_by_expiry ON sync_single_uses (expires_at);

-- The topics that every store has. Notifications are the events of one entity; the others have
-- journal rows.
INSERT INTO entities (ref, kind, id, created_at)
VALUES (1, 2, 'runtime.notifications', (extract(epoch FROM now()) * 1000)::bigint);

CREATE TABLE built_in_topics (
    ref bigint PRIMARY KEY,
    topic text COLLATE "C" NOT NULL,
    stream_id text COLLATE "C" NOT NULL,
    entity_ref bigint
);
INSERT INTO built_in_topics (ref, topic, stream_id, entity_ref) VALUES
    (1, 'runtime.run_summaries', 'runtime.topic.runtime.run_summaries', NULL),
    (2, 'runtime.codex_worker_summaries', 'runtime.topic.runtime.codex_worker_summaries', NULL),
    (3, 'runtime.codex_worker_events', 'runtime.codex.worker.events', NULL),
    (4, 'runtime.notifications', 'runtime.topic.runtime.notifications', 1);
