INSERT INTO topics (ref, topic, stream_id, entity_ref, oldest_seq, head_seq)
SELECT ref, topic, stream_id, entity_ref, 1, CASE WHEN entity_ref IS NULL THEN 0 END
FROM built_in_topics;
