-- The schema step of the upgrade test. Nodes of before can still read this schema, so reader_version stays.
ALTER TABLE nodes ADD COLUMN zone text COLLATE "C";
