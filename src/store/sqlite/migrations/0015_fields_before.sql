-- Each frame of a summary records how the fields that `where` of a subscription reads were in the frame
-- of the same document before it: {} as they are now, {"was":{...}} or, for the first frame,
-- {"was":null} (src/topic/where.h). NULL: not known. A reader with `where` then gets
-- the document whole or as removed.
ALTER TABLE journal ADD COLUMN fields_before TEXT;
