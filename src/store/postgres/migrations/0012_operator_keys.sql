-- Operator keys with names and roles. A digest is the SHA-256 of a key: keys are 256 random bits, so
-- no list of likely keys can be tried against it, and a slow hash would only slow each request.
-- previous_* is the key before the last rotation, which is valid until previous_until. Without one,
-- previous_id is NULL.
CREATE TABLE operator_keys (
    name text COLLATE "C" PRIMARY KEY,
    role text COLLATE "C" NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    created_at bigint NOT NULL,
    rotated_at bigint NOT NULL,
    previous_id text COLLATE "C",
    previous_digest bytea NOT NULL,
    previous_until bigint NOT NULL
);

-- Only the server writes events of these types. A node that is not the writer leaves its own in the
-- outbox, as rows of the kind audit, which none of the functions for users makes.
CREATE FUNCTION outbox_check_type(event_type text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF event_type LIKE 'operator.%' OR event_type LIKE '%.erased' THEN
        PERFORM runtime.outbox_refuse('reserved_event_type', 403,
            'Only the server writes events of the types operator.* and *.erased.');
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION outbox_check_type(text) FROM PUBLIC;

CREATE OR REPLACE FUNCTION outbox_add(row_kind text, target text, event_type text, payload jsonb, event_id uuid,
                                      idempotency_key text, owner_user_id text, owner_guest_scope text, org_id text)
RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- A version 4 uuid, which gets the time and the version of a version 7 uuid.
    bytes bytea := uuid_send(gen_random_uuid());
    given jsonb := coalesce(nullif(payload, 'null'), '{}');
BEGIN
    IF event_type IS NULL THEN
        PERFORM runtime.outbox_refuse('invalid_request', 400, 'event_type is required.');
    END IF;
    PERFORM runtime.outbox_check_text('event_type', event_type, 128);
    PERFORM runtime.outbox_check_type(event_type);
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
