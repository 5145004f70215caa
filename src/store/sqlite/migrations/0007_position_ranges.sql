-- A position covers event_count events of its entity, which follow each other in the log too: event
-- seq + i has the log_id + i. Positions that exist cover one event each.
ALTER TABLE event_positions ADD COLUMN event_count INTEGER NOT NULL DEFAULT 1;
ALTER TABLE event_positions_recent ADD COLUMN event_count INTEGER NOT NULL DEFAULT 1;
