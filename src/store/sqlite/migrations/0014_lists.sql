-- What lists of runs and workers are ordered and filtered by. The columns of the documents follow from
-- their payloads; parent_run_id, title and tags are JSON. Entities have the rest, which seldom changes.
ALTER TABLE run_documents ADD COLUMN owner TEXT;
ALTER TABLE run_documents ADD COLUMN state TEXT;
ALTER TABLE run_documents ADD COLUMN updated_at INTEGER;
ALTER TABLE run_documents ADD COLUMN parent_run_id TEXT;
ALTER TABLE run_documents ADD COLUMN title TEXT;
ALTER TABLE run_documents ADD COLUMN tags TEXT;
ALTER TABLE worker_documents ADD COLUMN owner TEXT;
ALTER TABLE worker_documents ADD COLUMN state TEXT;
ALTER TABLE worker_documents ADD COLUMN updated_at INTEGER;
ALTER TABLE worker_documents ADD COLUMN parent_run_id TEXT;
ALTER TABLE worker_documents ADD COLUMN title TEXT;
ALTER TABLE worker_documents ADD COLUMN tags TEXT;

-- Documents of this schema have no parent, title or tags yet. A damaged one is repaired later.
UPDATE run_documents SET
    owner = (SELECT coalesce('u' || n.owner_user_id, 'g' || n.owner_guest_scope, 'o' || n.org_id)
             FROM entities n WHERE n.ref = entity_ref),
    state = (SELECT n.status FROM entities n WHERE n.ref = entity_ref),
    updated_at = (SELECT iif(json_valid(s.payload) AND json_type(s.payload, '$.updated_at') = 'integer',
                      json_extract(s.payload, '$.updated_at'), 0)
                  FROM sync_run_summaries s WHERE s.entity_ref = run_documents.entity_ref);
UPDATE worker_documents SET
    owner = (SELECT coalesce('u' || n.owner_user_id, 'g' || n.owner_guest_scope, 'o' || n.org_id)
             FROM entities n WHERE n.ref = entity_ref),
    state = (SELECT n.status FROM entities n WHERE n.ref = entity_ref),
    updated_at = (SELECT iif(json_valid(s.payload) AND json_type(s.payload, '$.updated_at') = 'integer',
                      json_extract(s.payload, '$.updated_at'), 0)
                  FROM sync_codex_worker_summaries s WHERE s.entity_ref = worker_documents.entity_ref);

-- A list of all states merges those of each state, so that one index serves both.
CREATE INDEX run_documents_by_update ON run_documents (state, updated_at, entity_ref);
CREATE INDEX run_documents_by_owner ON run_documents (owner, state, updated_at, entity_ref);
CREATE INDEX run_documents_by_parent ON run_documents (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX worker_documents_by_update ON worker_documents (state, updated_at, entity_ref);
CREATE INDEX worker_documents_by_owner ON worker_documents (owner, state, updated_at, entity_ref);

CREATE INDEX entities_by_creation ON entities (kind, status, created_at, ref);
CREATE INDEX entities_by_owner
ON entities (kind, coalesce('u' || owner_user_id, 'g' || owner_guest_scope, 'o' || org_id), status, created_at, ref);
CREATE INDEX entities_by_owner_id
ON entities (kind, coalesce('u' || owner_user_id, 'g' || owner_guest_scope, 'o' || org_id), id);
CREATE INDEX entities_by_worker ON entities (worker_id, ref) WHERE worker_id IS NOT NULL;
