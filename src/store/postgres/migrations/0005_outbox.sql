-- The outbox: events that users append in their own transactions. A row becomes visible with the
-- user's commit. The writer sequences all rows that it sees and removes them, in one commit. The
-- table is a queue and not a log, so a row that commits late is only sequenced later.

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text COLLATE "C" NOT NULL, -- topic, run, worker or notification
    target text COLLATE "C",        -- the name of the topic, or the id of the run or worker
    event_type text COLLATE "C",
    payload text COLLATE "C",
    event_id uuid,
    idempotency_key text COLLATE "C",
    owner_user_id text COLLATE "C",
    owner_guest_scope text COLLATE "C",
    org_id text COLLATE "C",
    inserted_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0);

-- Rows that only the writer could refuse. The latest 10 000 are kept. payload is NULL where it was
-- larger than any payload that the server takes.
CREATE TABLE outbox_rejected (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox_id bigint NOT NULL,
    reason text COLLATE "C" NOT NULL, -- a code of the API, such as invalid_transition
    message text,
    kind text COLLATE "C",
    target text COLLATE "C",
    event_type text COLLATE "C",
    payload text COLLATE "C",
    event_id uuid,
    idempotency_key text COLLATE "C",
    owner_user_id text COLLATE "C",
    owner_guest_scope text COLLATE "C",
    org_id text COLLATE "C",
    inserted_at timestamptz,
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The largest payload that the functions below accept. The writer checks its own settings as well.
CREATE TABLE outbox_limits (
    kind text COLLATE "C" PRIMARY KEY,
    max_payload_bytes integer NOT NULL
);
INSERT INTO outbox_limits (kind, max_payload_bytes)
VALUES ('topic', 65536), ('run', 262144), ('worker', 65536), ('notification', 65536);

-- Refuses the row, and so fails the user's transaction. The SQLSTATE is KH and the status of HTTP.
CREATE FUNCTION outbox_refuse(code text, http integer, message text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%: %', code, message USING ERRCODE = 'KH' || http;
END
$$;

CREATE FUNCTION outbox_check_text(field text, given text, bytes_max integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF octet_length(given) NOT BETWEEN 1 AND bytes_max OR given ~ '[\u0001-\u001f\u007f-\u009f]'
       OR given ~ '^[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]'
       OR given ~ '[ \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$' THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, format(
            '%s must be 1 to %s bytes without control characters or outer white space.', field, bytes_max));
    END IF;
END
$$;

-- jsonb has no \u0000 and no half of a surrogate pair: PostgreSQL refuses both when it reads them.
CREATE FUNCTION outbox_check_payload(row_kind text, payload jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes_max integer := (SELECT l.max_payload_bytes FROM runtime.outbox_limits l WHERE l.kind = row_kind);
    spaced text := payload::text;
    bytes integer := octet_length(spaced);
BEGIN
    IF jsonb_typeof(payload) <> 'object' THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, 'payload must be an object.');
    END IF;
    IF jsonb_path_exists(payload, 'strict $.**{127 to last} ? (@.type() == "object" || @.type() == "array")') THEN
        PERFORM runtime.outbox_refuse('json_too_deep', 400, 'payload has too many levels.');
    END IF;
    -- jsonb is shown with a space behind each comma and colon; the log has none.
    IF bytes > bytes_max THEN
        spaced := regexp_replace(spaced, '"(\\.|[^"\\])*"', '', 'g');
        bytes := bytes - (length(spaced) - length(replace(spaced, ' ', '')));
    END IF;
    IF bytes > bytes_max THEN
        PERFORM runtime.outbox_refuse('khala_frame_payload_too_large', 413, format(
            'payload has %s bytes, and at most %s are allowed.', bytes, bytes_max));
    END IF;
END
$$;

CREATE FUNCTION outbox_add(row_kind text, target text, event_type text, payload jsonb, event_id uuid,
                           idempotency_key text, owner_user_id text, owner_guest_scope text, org_id text)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A version 4 uuid, which gets the time and the version of a version 7 uuid.
    bytes bytea := uuid_send(gen_random_uuid());
    given jsonb := coalesce(payload, '{}');
BEGIN
    IF event_type IS NULL THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, 'event_type is required.');
    END IF;
    PERFORM runtime.outbox_check_text('event_type', event_type, 128);
    PERFORM runtime.outbox_check_payload(row_kind, given);
    IF idempotency_key IS NOT NULL THEN
        PERFORM runtime.outbox_check_text('idempotency_key', idempotency_key, 256);
    END IF;
    IF owner_user_id IS NOT NULL AND owner_guest_scope IS NOT NULL THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400,
                                      'owner_user_id and owner_guest_scope exclude each other.');
    END IF;
    PERFORM runtime.outbox_check_text(o.field, o.given, 256)
    FROM (VALUES ('owner_user_id', owner_user_id), ('owner_guest_scope', owner_guest_scope),
                 ('org_id', org_id)) o(field, given)
    WHERE o.given IS NOT NULL;
    IF event_id IS NULL THEN
        bytes := overlay(bytes PLACING substring(int8send((extract(epoch FROM clock_timestamp())
                                                           * 1000)::bigint) FROM 3) FROM 1 FOR 6);
        bytes := set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112);
        event_id := encode(bytes, 'hex')::uuid;
    ELSIF event_id::text !~ '^.{14}7.{4}[89ab]' THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, 'event_id must be a lower-case UUIDv7.');
    END IF;
    INSERT INTO runtime.outbox (kind, target, event_type, payload, event_id, idempotency_key,
                                owner_user_id, owner_guest_scope, org_id)
    VALUES (row_kind, target, event_type, given::text, event_id, idempotency_key, owner_user_id,
            owner_guest_scope, org_id);
    RETURN event_id;
END
$$;

-- ---- the functions that users call: each returns the id of the event --------------------------

CREATE FUNCTION append_event(topic text, event_type text, payload jsonb DEFAULT '{}',
                             event_id uuid DEFAULT NULL, idempotency_key text DEFAULT NULL,
                             owner_user_id text DEFAULT NULL, owner_guest_scope text DEFAULT NULL,
                             org_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF topic IS NULL OR octet_length(topic) NOT BETWEEN 1 AND 512 OR topic IN ('.', '..')
       OR topic ~ '[*\u0001-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]'
       OR topic ~ '^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]'
       OR topic ~ '[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]$' THEN
        PERFORM runtime.outbox_refuse('invalid_topic', 400,
            'The topic name is empty, too long, a wildcard, or contains characters that are not allowed.');
    END IF;
    IF topic ~ '^(run:|worker:|fleet:|runtime\.)' THEN
        PERFORM runtime.outbox_refuse('projection_owned_topic', 403, 'Only the projector writes this topic.');
    END IF;
    RETURN runtime.outbox_add('topic', topic, event_type, payload, event_id, idempotency_key,
                              owner_user_id, owner_guest_scope, org_id);
END
$$;

CREATE FUNCTION append_run_event(run_id text, event_type text, payload jsonb DEFAULT '{}',
                                 event_id uuid DEFAULT NULL, idempotency_key text DEFAULT NULL,
                                 owner_user_id text DEFAULT NULL, owner_guest_scope text DEFAULT NULL,
                                 org_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM runtime.outbox_check_text('run_id', coalesce(run_id, ''), 256);
    IF event_type = 'run.finished'
       AND coalesce(payload->>'status', '') NOT IN ('succeeded', 'failed', 'canceled', 'cancelled') THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400,
            'payload of run.finished needs a status: succeeded, failed or canceled.');
    END IF;
    RETURN runtime.outbox_add('run', run_id, event_type, payload, event_id, idempotency_key,
                              owner_user_id, owner_guest_scope, org_id);
END
$$;

CREATE FUNCTION append_worker_event(worker_id text, event_type text, payload jsonb DEFAULT '{}',
                                    event_id uuid DEFAULT NULL, idempotency_key text DEFAULT NULL,
                                    owner_user_id text DEFAULT NULL, owner_guest_scope text DEFAULT NULL,
                                    org_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM runtime.outbox_check_text('worker_id', coalesce(worker_id, ''), 256);
    IF event_type !~ '^worker\..' THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, 'event_type must begin with "worker.".');
    END IF;
    IF event_type IN ('worker.registered', 'worker.heartbeat', 'worker.status_changed') THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400,
            'event_type is reserved: use the worker''s own endpoint for it.');
    END IF;
    RETURN runtime.outbox_add('worker', worker_id, event_type, payload, event_id, idempotency_key,
                              owner_user_id, owner_guest_scope, org_id);
END
$$;

CREATE FUNCTION append_notification(payload jsonb, event_type text DEFAULT 'notification',
                                    event_id uuid DEFAULT NULL, idempotency_key text DEFAULT NULL,
                                    owner_user_id text DEFAULT NULL, owner_guest_scope text DEFAULT NULL,
                                    org_id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN runtime.outbox_add('notification', NULL, event_type, payload, event_id, idempotency_key,
                              owner_user_id, owner_guest_scope, org_id);
END
$$;

-- ---- rights -----------------------------------------------------------------------------------

-- Lets a role call these functions and nothing else of the schema.
CREATE FUNCTION grant_producer(role name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    called regprocedure;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA runtime TO %I', role);
    FOR called IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'runtime'::regnamespace
        AND p.proname IN ('append_event', 'append_run_event', 'append_worker_event', 'append_notification')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', called, role);
    END LOOP;
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runtime FROM PUBLIC;

DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'khala_producer') THEN
        CREATE ROLE khala_producer NOLOGIN;
    END IF;
    PERFORM runtime.grant_producer('khala_producer');
EXCEPTION
    -- Another database of the server may make the role at the same time.
    WHEN duplicate_object OR unique_violation THEN
        PERFORM runtime.grant_producer('khala_producer');
    WHEN insufficient_privilege THEN
        RAISE WARNING 'the role khala_producer does not exist, and this role may not create it: run "CREATE ROLE khala_producer NOLOGIN" as an administrator, then "SELECT runtime.grant_producer(''khala_producer'')" as the role of DB_URL';
END
$$;
