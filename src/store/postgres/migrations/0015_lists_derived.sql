-- What lists of runs and workers are ordered and filtered by. The columns of the documents follow from
-- their payloads; parent_run_id, title and tags are JSON. Entities have the rest, which seldom changes.
-- Indexes first: they let reads of entities go on, and what follows locks the documents.
CREATE INDEX IF NOT EXISTS entities_by_creation ON entities (kind, status, created_at, ref);
CREATE INDEX IF NOT EXISTS entities_by_owner
ON entities (kind, coalesce('u' || owner_user_id, 'g' || owner_guest_scope, 'o' || org_id), status, created_at, ref);
CREATE INDEX IF NOT EXISTS entities_by_owner_id
ON entities (kind, coalesce('u' || owner_user_id, 'g' || owner_guest_scope, 'o' || org_id), id);
CREATE INDEX IF NOT EXISTS entities_by_worker ON entities (worker_id, ref) WHERE worker_id IS NOT NULL;

ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS owner text COLLATE "C";
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS state text COLLATE "C";
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS updated_at bigint;
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS parent_run_id text COLLATE "C";
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS title text COLLATE "C";
ALTER TABLE run_documents ADD COLUMN IF NOT EXISTS tags text COLLATE "C";
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS owner text COLLATE "C";
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS state text COLLATE "C";
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS updated_at bigint;
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS parent_run_id text COLLATE "C";
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS title text COLLATE "C";
ALTER TABLE worker_documents ADD COLUMN IF NOT EXISTS tags text COLLATE "C";

-- Documents of the schema before have no parent, title or tags yet. Metadata, which stands before
-- updated_at, may have a member of that name.
UPDATE run_documents d SET
    owner = (SELECT coalesce('u' || n.owner_user_id, 'g' || n.owner_guest_scope, 'o' || n.org_id)
             FROM entities n WHERE n.ref = d.entity_ref),
    state = (SELECT n.status FROM entities n WHERE n.ref = d.entity_ref),
    updated_at = coalesce(substring(d.payload from '.*"updated_at":([0-9]{1,18})')::bigint, 0)
WHERE d.updated_at IS NULL;
UPDATE worker_documents d SET
    owner = (SELECT coalesce('u' || n.owner_user_id, 'g' || n.owner_guest_scope, 'o' || n.org_id)
             FROM entities n WHERE n.ref = d.entity_ref),
    state = (SELECT n.status FROM entities n WHERE n.ref = d.entity_ref),
    updated_at = coalesce(substring(d.payload from '.*"updated_at":([0-9]{1,18})')::bigint, 0)
WHERE d.updated_at IS NULL;

-- A list of all states merges those of each state, so that one index serves both.
CREATE INDEX IF NOT EXISTS run_documents_by_update ON run_documents (state, updated_at, entity_ref);
CREATE INDEX IF NOT EXISTS run_documents_by_owner ON run_documents (owner, state, updated_at, entity_ref);
CREATE INDEX IF NOT EXISTS run_documents_by_parent ON run_documents (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS worker_documents_by_update ON worker_documents (state, updated_at, entity_ref);
CREATE INDEX IF NOT EXISTS worker_documents_by_owner ON worker_documents (owner, state, updated_at, entity_ref);
