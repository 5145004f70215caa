-- Operator keys with names and roles. A digest is the SHA-256 of a key: keys are 256 random bits, so
-- no list of likely keys can be tried against it, and a slow hash would only slow each request.
-- previous_* is the key before the last rotation, which is valid until previous_until. Without one,
-- previous_id is NULL.
CREATE TABLE operator_keys (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    key_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    rotated_at INTEGER NOT NULL,
    previous_id TEXT,
    previous_digest BLOB NOT NULL,
    previous_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
