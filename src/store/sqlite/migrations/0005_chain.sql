-- The link of an event in its entity's hash chain, in the words of the protocol. Links that exist
-- keep version 1. recorded_at is the wall clock's time at the append; NULL where it equals the
-- cursor's, which is the usual case. Both columns stand behind the payload: reading a NULL follows
-- no overflow page.
ALTER TABLE events RENAME COLUMN prev_hash TO prev_chain_hash;
ALTER TABLE events RENAME COLUMN event_hash TO chain_hash;
ALTER TABLE events ADD COLUMN recorded_at INTEGER;
ALTER TABLE events ADD COLUMN chain_version INTEGER NOT NULL DEFAULT 1;
