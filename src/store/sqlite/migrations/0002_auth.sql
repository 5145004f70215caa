-- What was revoked, until no such token can be valid. kind: 0 session, 1 device, 2 token.
CREATE TABLE sync_revocations (
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 2),
    id TEXT NOT NULL,
    reason TEXT,
    revoked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_revocations_by_expiry ON sync_revocations (expires_at);

-- What may be used once, and was. kind: 0 token, 1 nonce.
CREATE TABLE sync_single_uses (
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 1),
    id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_single_uses_by_expiry ON sync_single_uses (expires_at);
