-- The writer role is the row of writer, which only the owner of the schema can touch. The term is its
-- safety: every commit locks the row and checks the term. The other columns name the database session
-- that writes, so that another node takes the role when that session is gone or silent. backend_start
-- NULL: the session is a pooler's and outlives the node. seen_at 'infinity': a verb has the role, which
-- is not seen each second. wanted_by: the session that asks for the role, its process and its start.
-- Releases up to 0.2.0 set taken_at when they take the role. Without it they cannot raise the term of a
-- schema that they do not know.
ALTER TABLE writer
    DROP COLUMN taken_at,
    ADD COLUMN node_id text COLLATE "C",
    ADD COLUMN backend_pid integer,
    ADD COLUMN backend_start timestamptz,
    ADD COLUMN seen_at timestamptz,
    ADD COLUMN wanted_by text COLLATE "C";
-- The row is updated each second: room for its versions in one page.
ALTER TABLE writer SET (fillfactor = 10);

-- Sessions that must not do the same at the same time lock a row. One row for each purpose.
CREATE TABLE locks (name text COLLATE "C" PRIMARY KEY);
INSERT INTO locks (name) VALUES ('revocations'), ('secrets');

-- Serials of revocations rise in the order of the commits. The trigger holds for each program that
-- writes revocations, also for nodes of a release that does not know this table.
CREATE FUNCTION lock_revocations() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM runtime.locks WHERE name = 'revocations' FOR UPDATE;
    RETURN NULL;
END
$$;
CREATE TRIGGER lock_revocations BEFORE INSERT ON sync_revocations
FOR EACH STATEMENT EXECUTE FUNCTION lock_revocations();
