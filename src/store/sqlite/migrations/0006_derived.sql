-- How often the journal of a topic was made anew: the epoch of such a topic is the epoch of the log,
-- a dot and this number. Frames up to damaged_seq may have been lost by damage.
ALTER TABLE sync_topic_sequences ADD COLUMN journal_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sync_topic_sequences ADD COLUMN damaged_seq INTEGER NOT NULL DEFAULT 0;
-- The topic or the table of a drift that concerns no entity.
ALTER TABLE khala_projection_drifts ADD COLUMN subject TEXT;
