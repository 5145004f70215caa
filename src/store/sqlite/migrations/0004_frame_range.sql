-- The first event of the entity that a frame covers; NULL where it covers the event log_id alone.
-- A document is the same at one version wherever it is read, so the range cannot be part of it.
ALTER TABLE sync_stream_events ADD COLUMN first_entity_seq INTEGER;
