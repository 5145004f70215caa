-- Where the epochs of the log part: fork_log_id in meta is the lowest end of the log at which a later
-- epoch began. A log with one epoch has none. An epoch is a UUIDv7. One that is younger than the first
-- event is not the first epoch of this log, and the place where it began is not known.
INSERT OR IGNORE INTO meta (name, value)
SELECT 'fork_log_id', '0'
FROM meta m JOIN events e ON e.log_id = (SELECT min(log_id) FROM events)
WHERE m.name = 'epoch'
  AND hex(substr(e.cursor, 1, 6)) < upper(substr(m.value, 1, 8) || substr(m.value, 10, 4));
