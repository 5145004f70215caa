-- Ids that the server mints end with a mark of this store, so that an id given by a client without
-- the mark needs no search of the log. Ids minted before this migration lack the mark; none of them
-- is above unmarked_max, which is NULL where the log was empty. One row.
CREATE TABLE minted_ids (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    mark BLOB NOT NULL,
    unmarked_max BLOB
) STRICT;
INSERT INTO minted_ids (id, mark, unmarked_max)
VALUES (1, randomblob(3), (SELECT cursor FROM events ORDER BY log_id DESC LIMIT 1));
