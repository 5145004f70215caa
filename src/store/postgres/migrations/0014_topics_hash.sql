-- The SHA-256 of the topics file that a node has in force, in hexadecimal digits; empty without a
-- file. NULL: a node of a build without topics files.
ALTER TABLE nodes ADD COLUMN topics_hash text COLLATE "C";
