/* The statements. Names have no schema: a session's search path is runtime alone. */
#include "store/postgres/postgres.h"

#define HEAD_OF(entity_ref)                                                                        \
    "(SELECT x.seq FROM events x WHERE x.entity_ref = " entity_ref " ORDER BY x.seq DESC LIMIT 1)"

/* Lists of columns with the alias of their table. */
#define OF_D(name, ...)      "d." #name
#define NEXT_OF_D(name, ...) ", d." #name
#define OF_E(name, ...)      "e." #name
#define NEXT_OF_E(name, ...) ", e." #name
#define OF_J(name, ...)      "j." #name
#define NEXT_OF_J(name, ...) ", j." #name
#define OF_N(name, ...)      "n." #name
#define NEXT_OF_N(name, ...) ", n." #name
#define OF_T(name, ...)      "t." #name
#define NEXT_OF_T(name, ...) ", t." #name
#define OF_U(name, ...)      "u." #name
#define NEXT_OF_U(name, ...) ", u." #name

/* The parameters are arrays, one for each column of the list. skipped: columns of the layout before
 * it. */
#define ROWS(layout_name, skipped, LIST)                                                           \
    .layout = &store_##layout_name##_layout, .first_column = (skipped),                            \
    .column_count = STORE_COUNT(LIST)
/* All rows of the parameters; the last one of those with the same key. */
#define ALL_ROWS(LIST) "(" STORE_NAMES(LIST) ") SELECT * FROM unnest(@) "
#define LAST_ROWS(LIST, KEY)                                                                       \
    "(" STORE_NAMES(LIST) ") SELECT DISTINCT ON (" STORE_NAMES(KEY) ") " STORE_NAMES(              \
        LIST) " FROM unnest(@) WITH ORDINALITY u(" STORE_NAMES(LIST) ", o) ORDER BY " STORE_NAMES(KEY) ", o DESC ON CONFLICT (" STORE_NAMES(KEY) ") "

/* The entity, and its last event where head is true. */
#define ENTITY_COLUMNS STORE_ENTITIES(OF_N, NEXT_OF_N) ", h.seq, h.chain_hash "
#define HEAD(condition)                                                                            \
    "LEFT JOIN LATERAL (SELECT x.seq, x.chain_hash FROM events x WHERE x.entity_ref = n.ref "      \
    "ORDER BY x.seq DESC LIMIT 1) h ON " condition " "
#define ENTITY_SELECT "SELECT " ENTITY_COLUMNS "FROM entities n " HEAD("true")

/* Left joins: a row without its partner is damage, which must be reported and not skipped. */
#define EVENT_COLUMNS STORE_EVENTS(OF_E, NEXT_OF_E)
#define ENTITY_NAME   ", n.kind, n.id" STORE_ENTITY_OWNER(NEXT_OF_N, NEXT_OF_N) " "
#define EVENT_SELECT                                                                               \
    "SELECT " EVENT_COLUMNS ENTITY_NAME "FROM events e LEFT JOIN entities n ON n.ref = "           \
    "e.entity_ref "

/* Rows of a table for a page of a walk. Sizes are known without reading the texts, so the server
 * reads and sends no more than PAGE_FITS allows, whatever the number of rows. */
#define PAGE_OF(table, bytes, condition, order, limit)                                             \
    "(SELECT x.*, sum(" bytes ") OVER (ORDER BY x." order " ROWS UNBOUNDED PRECEDING) - " bytes    \
    " AS bytes_before FROM " table " x WHERE " condition " ORDER BY x." order " LIMIT " limit ") "
/* The row that exceeds the size is the last one of its page. */
#define PAGE_FITS(row) "WHERE " row ".bytes_before < 1048576 "
_Static_assert(POSTGRES_WALK_PAGE_BYTES == 1048576, "the size in PAGE_FITS");
#define EVENT_PAGE(condition, order, limit)                                                        \
    "SELECT " EVENT_COLUMNS ENTITY_NAME                                                            \
    "FROM " PAGE_OF("events", "octet_length(x.payload)", condition, order,                         \
                    limit) "e LEFT JOIN entities n ON n.ref = "                                    \
                           "e.entity_ref " PAGE_FITS("e") "ORDER BY e." order
#define ENTITY_PAGE(condition, order)                                                              \
    "SELECT " ENTITY_COLUMNS "FROM " PAGE_OF("entities", "coalesce(octet_length(x.metadata), 0)",  \
                                             condition, order, "$3::bigint") "n " HEAD("true")     \
        PAGE_FITS("n") "ORDER BY n." order

#define TOPIC_COLUMNS                                                                              \
    "SELECT " STORE_TOPIC_KEY(OF_T, NEXT_OF_T) STORE_TOPIC_VALUES(                                 \
        NEXT_OF_T, NEXT_OF_T) ", CASE WHEN t.entity_ref IS NULL THEN t.head_seq "                  \
                              "ELSE " HEAD_OF("t.entity_ref") " END" STORE_TOPIC_REPAIRS(          \
                                  NEXT_OF_T, NEXT_OF_T) " "
#define TOPIC_SELECT TOPIC_COLUMNS "FROM topics t "

/* Whether nodes of a release before cut payloads read the journal. */
#define OLD_READERS                                                                                \
    "(EXISTS (SELECT FROM nodes WHERE schema_version < 13 AND seen_at > clock_timestamp() - "      \
    "interval '1 minute'))::int::bigint"

/* The transaction does not wait for the disk. */
#define ASYNCHRONOUS "set_config('synchronous_commit', 'off', true) IS NOT NULL"

/* The payload of a row. One that was cut gets its metadata back; a version that is missing leaves
 * the cut payload, which has another hash. */
#define METADATA_OF(value, row, ref)                                                               \
    "coalesce((SELECT " value " FROM summary_metadata v WHERE v.entity_ref = " ref                 \
    " AND v.metadata_hash = " row ".metadata_hash), "
#define WHOLE_PAYLOAD(row, ref)                                                                    \
    "CASE WHEN " row ".metadata_at IS NULL THEN " row ".payload ELSE substr(" row                  \
    ".payload, 1, " row                                                                            \
    ".metadata_at::int) || " METADATA_OF("v.metadata", row, ref) "'') || substr(" row              \
                                                                 ".payload, " row                  \
                                                                 ".metadata_at::int + 1) END"
#define PAYLOAD_BYTES(row, ref)                                                                    \
    "(coalesce(octet_length(" row ".payload), 0) + CASE WHEN " row ".metadata_at IS NULL THEN 0 "  \
    "ELSE " METADATA_OF("octet_length(v.metadata)", row, ref) "0) END)"

#define DOCUMENT_PUT(kind, name, table, ...)                                                       \
    [STATEMENT_PUT_DOCUMENTS + (kind)] = {                                                         \
        "INSERT INTO " table                                                                       \
        " " LAST_ROWS(STORE_DOCUMENTS, STORE_DOCUMENT_KEY) "DO UPDATE SET " STORE_UPDATES(         \
            STORE_DOCUMENT_VALUES) STORE_DOCUMENT_PAYLOAD(STORE_NEXT_UPDATE, STORE_NEXT_UPDATE)    \
            STORE_DOCUMENT_LISTED(STORE_NEXT_UPDATE, STORE_NEXT_UPDATE),                           \
        ROWS(document, 0, STORE_DOCUMENTS)},
#define DOCUMENT_PAYLOAD WHOLE_PAYLOAD("d", "d.entity_ref")
#define DOCUMENT_VALUES                                                                            \
    STORE_DOCUMENT_KEY(OF_D, NEXT_OF_D) STORE_DOCUMENT_VALUES(NEXT_OF_D, NEXT_OF_D) ", "
#define DOCUMENT_SELECT(kind, name, table, ...)                                                    \
    [STATEMENT_DOCUMENT + (kind)] = {"SELECT " DOCUMENT_VALUES DOCUMENT_PAYLOAD " FROM " table     \
                                     " d WHERE d.entity_ref = $1::bigint",                         \
                                     .parameters = "n"},
/* The second condition of the join keeps a page from reading the table from its beginning. */
#define DOCUMENT_ROWS(table)                                                                       \
    "(SELECT n.ref, n.kind" STORE_ENTITY_OWNER(NEXT_OF_N, NEXT_OF_N)                               \
        STORE_DOCUMENTS(NEXT_OF_T, NEXT_OF_T) " FROM entities n LEFT JOIN " table                  \
                                              " t ON t.entity_ref = n.ref AND t.entity_ref > "     \
                                              "$2::bigint)"
#define DOCUMENT_PAGE(table)                                                                       \
    PAGE_OF(DOCUMENT_ROWS(table), PAYLOAD_BYTES("x", "x.ref"),                                     \
            "x.kind = $1::bigint AND x.ref > $2::bigint", "ref", "$3::bigint")                     \
    "d " PAGE_FITS("d")
#define WALKED_PAYLOAD WHOLE_PAYLOAD("d", "d.ref")
#define DOCUMENT_WALK(kind, name, table, ...)                                                      \
    [STATEMENT_WALK_DOCUMENTS + (kind)] = {                                                        \
        "SELECT " DOCUMENT_VALUES WALKED_PAYLOAD ", d.ref" STORE_ENTITY_OWNER(                     \
            NEXT_OF_D, NEXT_OF_D) " FROM " DOCUMENT_PAGE(table) "ORDER BY d.ref",                  \
        .parameters = "nnn"},
#define JOURNAL_PAYLOAD_BYTES PAYLOAD_BYTES("j", "j.entity_ref")
#define JOURNAL_PAYLOAD       WHOLE_PAYLOAD("j", "j.entity_ref")
#define JOURNAL_PAGE                                                                               \
    PAGE_OF(                                                                                       \
        "journal",                                                                                 \
        "(" PAYLOAD_BYTES("x", "x.entity_ref") " + coalesce((SELECT octet_length(y.payload) "      \
                                               "FROM events y WHERE y.log_id = x.log_id), 0) + "   \
                                               "coalesce(octet_length(x.fields_before), 0))",      \
        "x.topic_ref = $1::bigint AND x.seq > $2::bigint", "seq", "$3::bigint")
/* A drift for each entity with a row that is not as the writer left it. */
#define DOCUMENT_COMPARE(kind, name, table, ...)                                                   \
    [STATEMENT_COMPARE_SUMMARIES + (kind)] = {                                                     \
        "WITH found AS (INSERT INTO khala_projection_drifts (projection_name, entity_ref, "        \
        "reason, expected_seq, actual_seq, seen_at) SELECT '" name "', u.ref, CASE WHEN "          \
        "c.last_runtime_seq > u.seq THEN 'checkpoint_ahead' WHEN c.last_runtime_seq IS DISTINCT "  \
        "FROM u.seq THEN 'sequence_gap' ELSE 'summary_hash_mismatch' END, u.seq, "                 \
        "coalesce(c.last_runtime_seq, 0), u.at FROM unnest(@) u(ref, seq, summary, version, "      \
        "document, at) LEFT JOIN checkpoints c ON c.entity_ref = u.ref AND c.projection_name = "   \
        "'" name "' LEFT JOIN " table " d ON d.entity_ref = u.ref WHERE c.last_runtime_seq IS "    \
        "DISTINCT FROM u.seq OR c.summary_hash IS DISTINCT FROM u.summary OR d.doc_version IS "    \
        "DISTINCT FROM u.version OR d.payload_hash IS DISTINCT FROM "                              \
        "u.document " STORE_DOCUMENT_LACKS_METADATA                                                \
        "RETURNING *), old AS (DELETE FROM khala_projection_drifts WHERE id <= (SELECT max(id) "   \
        "FROM found) "                                                                             \
        "- " POSTGRES_TEXT_OF(POSTGRES_DRIFTS_MAX) ") SELECT " STORE_NAMES(                        \
            STORE_DRIFTS) ", NULL::text FROM found",                                               \
        .layout = &store_replaced_layout, .column_count = 6},

/* The ref of the entity that a lookup names by its ref or by kind and id. */
#define LOOKUP_REF                                                                                 \
    "coalesce(k.number, (SELECT x.ref FROM entities x WHERE x.kind = k.kind AND x.id = "           \
    "k.entity_id))"

/* In milliseconds. Users who may insert rows themselves may insert any time. */
#define OUTBOX_AGE(row)                                                                            \
    "CASE WHEN isfinite(" row ".inserted_at) THEN greatest(0, extract(epoch FROM "                 \
    "clock_timestamp() - " row ".inserted_at) * 1000)::bigint ELSE 0 END"

const struct postgres_statement postgres_statements[STATEMENT_COUNT] = {
    [STATEMENT_BEGIN] = {"BEGIN ISOLATION LEVEL READ COMMITTED", .parameters = ""},
    [STATEMENT_ROLLBACK] = {"ROLLBACK", .parameters = ""},
    [STATEMENT_READ_BEGIN] = {"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", .parameters = ""},
    /* A time that is lost in a crash of the database is that of a session that is gone. */
    [STATEMENT_KEEP_ROLE] =
        {"UPDATE writer w SET seen_at = clock_timestamp(), node_id = coalesce($4::text, w.node_id) "
         "WHERE w.id = 1 AND w.term = $1::bigint AND w.tableoid::bigint = $2::bigint "
         "AND " ASYNCHRONOUS " RETURNING (EXISTS (SELECT FROM pg_stat_activity x WHERE w.wanted_by "
         "= " POSTGRES_SESSION_OF(
             "x") ") OR NOT EXISTS (SELECT FROM meta WHERE name = "
                  "'schema_version' AND value = $3::text))::int::bigint, " OLD_READERS,
         .parameters = "nntt"},
    [STATEMENT_LOCK_TERM] = {"SELECT term, tableoid::bigint FROM writer WHERE id = 1 FOR UPDATE",
                             .parameters = ""},
    [STATEMENT_COUNT_POSITIONS] = {"SELECT count(*) FROM unnest($1::bigint[], $2::bigint[]) u(r, "
                                   "s) WHERE EXISTS (SELECT 1 FROM events e WHERE e.entity_ref = "
                                   "u.r AND e.seq = u.s)",
                                   .parameters = "NN"},
    [STATEMENT_PUT_ENTITIES] = {"INSERT INTO entities " ALL_ROWS(
                                    STORE_ENTITIES) "ON CONFLICT (ref) DO UPDATE "
                                                    "SET " STORE_UPDATES(
                                                        STORE_ENTITY_VALUES) ", metadata = "
                                                                             "coalesce("
                                                                             "excluded."
                                                                             "metadata, "
                                                                             "entities."
                                                                             "metadata) "
                                                                             "WHERE "
                                                                             "entities.kind "
                                                                             "= "
                                                                             "excluded.kind "
                                                                             "AND "
                                                                             "entities.id = "
                                                                             "excluded.id",
                                ROWS(entity, 0, STORE_ENTITIES)},
    /* unnest in the list of values gives a row at a time; in FROM it first stores all of them,
     * which costs the server a sixth more. */
    [STATEMENT_ADD_EVENTS] = {"INSERT INTO events (" STORE_NAMES(STORE_EVENTS) ") SELECT #",
                              ROWS(event, 0, STORE_EVENTS)},
    [STATEMENT_ADD_EVENT_IDS] = {"INSERT INTO event_ids " ALL_ROWS(STORE_EVENT_IDS),
                                 ROWS(event_id, 0, STORE_EVENT_IDS)},
    [STATEMENT_FIND_SUPPLIED] = {"SELECT i.log_id FROM event_ids i WHERE i.event_id = "
                                 "ANY($1::uuid[]) LIMIT 1",
                                 .parameters = "U"},
    [STATEMENT_FIND_MINTED] = {"SELECT find_minted(u) FROM unnest($1::uuid[]) u WHERE "
                               "find_minted(u) IS NOT NULL LIMIT 1",
                               .parameters = "U"},
    [STATEMENT_ADD_KEYS] = {"INSERT INTO idempotency_keys " ALL_ROWS(STORE_IDEMPOTENCY_KEYS),
                            ROWS(key, 0, STORE_IDEMPOTENCY_KEYS)},
    /* oldest_seq never falls, even if the caller does not know of a prune yet. */
    [STATEMENT_PUT_TOPICS] = {"INSERT INTO topics " ALL_ROWS(
                                  STORE_TOPICS_WRITTEN) "ON CONFLICT (ref) DO UPDATE SET "
                                                        "entity_ref = excluded.entity_ref, "
                                                        "oldest_seq = greatest(topics.oldest_seq, "
                                                        "excluded.oldest_seq), head_seq = "
                                                        "excluded.head_seq WHERE topics.topic = "
                                                        "excluded.topic AND topics.stream_id = "
                                                        "excluded.stream_id",
                              ROWS(topic, 0, STORE_TOPICS_WRITTEN)},
    DOCUMENT_KINDS(DOCUMENT_COMPARE) DOCUMENT_KINDS(DOCUMENT_PUT)[STATEMENT_PUT_CHECKPOINTS] =
        {"INSERT INTO checkpoints " LAST_ROWS(
             STORE_CHECKPOINTS,
             STORE_CHECKPOINT_KEY) "DO UPDATE SET " STORE_UPDATES(STORE_CHECKPOINT_VALUES),
         ROWS(checkpoint, 0, STORE_CHECKPOINTS)},
    [STATEMENT_ADD_JOURNAL] = {"INSERT INTO journal " ALL_ROWS(STORE_JOURNAL),
                               ROWS(journal, 0, STORE_JOURNAL)},
    [STATEMENT_PUT_METADATA] =
        {"INSERT INTO summary_metadata (" STORE_NAMES(
             STORE_SUMMARY_METADATA) ") SELECT DISTINCT ON (entity_ref, metadata_hash) * FROM "
                                     "unnest(@) "
                                     "u(" STORE_NAMES(
                                         STORE_SUMMARY_METADATA) ") ON CONFLICT "
                                                                 "(entity_ref, metadata_hash) DO "
                                                                 "UPDATE SET metadata = "
                                                                 "excluded.metadata WHERE "
                                                                 "summary_metadata.metadata <> "
                                                                 "excluded.metadata",
         ROWS(metadata, 0, STORE_SUMMARY_METADATA)},
    [STATEMENT_OLD_READERS] = {"SELECT " OLD_READERS, .parameters = ""},
    [STATEMENT_ADD_DRIFTS] = {"INSERT INTO khala_projection_drifts " ALL_ROWS(STORE_DRIFT_VALUES),
                              ROWS(drift, 1, STORE_DRIFT_VALUES)},
    [STATEMENT_DROP_OLD_DRIFTS] = {"DELETE FROM khala_projection_drifts WHERE id <= (SELECT "
                                   "max(id) FROM khala_projection_drifts) - $1::bigint",
                                   .parameters = "n"},
    [STATEMENT_SET_UNPROJECTED] =
        {"INSERT INTO meta (name, value) VALUES ('unprojected_from', ($1::bigint)::text) ON "
         "CONFLICT (name) DO UPDATE SET value = least(meta.value::bigint, "
         "excluded.value::bigint)::text",
         .parameters = "n"},
    [STATEMENT_CLEAR_UNPROJECTED] = {"DELETE FROM meta WHERE name = 'unprojected_from'",
                                     .parameters = ""},
    /* How many frames go follows from the numbers, because frames have no gaps. */
    [STATEMENT_PRUNE_TOPICS] =
        {"WITH asked AS (SELECT u.o, t.ref, t.entity_ref, t.oldest_seq AS before, s.head, "
         "least(greatest(least(u.below, s.head + 1) - t.oldest_seq, 0), u.most) AS gone FROM "
         "unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY u(r, below, most, o) "
         "JOIN topics t ON t.ref = u.r CROSS JOIN LATERAL (SELECT coalesce(CASE WHEN t.entity_ref "
         "IS NULL THEN t.head_seq ELSE " HEAD_OF(
             "t.entity_ref") " END, 0) AS head) s), "
                             "removed AS (DELETE FROM journal j USING asked a WHERE a.gone > 0 AND "
                             "a.entity_ref IS "
                             "NULL AND j.topic_ref = a.ref AND j.seq < a.before + a.gone RETURNING "
                             "j.entity_ref), dropped AS (DELETE FROM summary_metadata v WHERE "
                             "EXISTS (SELECT FROM summary_metadata) AND v.entity_ref IN (SELECT "
                             "entity_ref FROM removed) AND NOT EXISTS (SELECT FROM journal j WHERE "
                             "j.entity_ref = v.entity_ref AND j.metadata_hash = v.metadata_hash "
                             "AND NOT EXISTS (SELECT FROM asked a WHERE a.gone > 0 AND "
                             "a.entity_ref IS NULL AND j.topic_ref = a.ref AND j.seq < a.before + "
                             "a.gone))" STORE_NO_DOCUMENT_HAS
                             "), raised AS (UPDATE topics t SET oldest_seq = a.before + a.gone "
                             "FROM asked a WHERE a.gone > 0 AND t.ref = a.ref) SELECT o, gone, "
                             "before + gone, head FROM asked ORDER BY o",
         .parameters = "NNN"},
    [STATEMENT_PUT_USAGES] =
        {"INSERT INTO owner_usage " ALL_ROWS(
             STORE_USAGES) "ON CONFLICT (owner) DO UPDATE SET " STORE_UPDATES(STORE_USAGE_VALUES),
         ROWS(usage, 0, STORE_USAGES)},
    [STATEMENT_LOAD_USAGE] = {"SELECT " STORE_USAGES(
                                  OF_U,
                                  NEXT_OF_U) ", k.o FROM unnest($1::text[]) WITH ORDINALITY "
                                             "k(owner, o) JOIN owner_usage u ON u.owner = k.owner",
                              .parameters = "T"},
    [STATEMENT_WALK_USAGES] =
        {"SELECT " STORE_NAMES(
             STORE_USAGES) " FROM owner_usage WHERE owner > $1::text ORDER BY owner LIMIT "
                           "$2::bigint",
         .parameters = "tn"},
    [STATEMENT_CHECK_USAGES] = {STORE_CHECK_USAGES "$1::bigint", .parameters = "n"},
    /* Only the writer makes serials. */
    [STATEMENT_PUT_QUOTA] =
        {"INSERT INTO owner_quotas (" STORE_NAMES(STORE_QUOTAS) ") SELECT " STORE_QUOTAS_WRITTEN(
             OF_U,
             NEXT_OF_U) ", "
                        "(SELECT coalesce(max(serial), 0) FROM owner_quotas) + u.o FROM unnest(@) "
                        "WITH ORDINALITY "
                        "u(" STORE_NAMES(
                            STORE_QUOTAS_WRITTEN) ", o) ON CONFLICT (owner, quota) DO UPDATE SET "
                                                  "value = excluded.value, serial = "
                                                  "excluded.serial",
         ROWS(quota, 0, STORE_QUOTAS_WRITTEN)},
    [STATEMENT_WALK_QUOTAS] =
        {"SELECT " STORE_NAMES(
             STORE_QUOTAS) " FROM owner_quotas WHERE serial > $1::bigint ORDER BY serial",
         .parameters = "n"},
    [STATEMENT_PUT_OPERATOR_KEY] = {"INSERT INTO operator_keys " ALL_ROWS(
                                        STORE_OPERATOR_KEYS) "ON CONFLICT (name) DO UPDATE "
                                                             "SET " STORE_UPDATES(
                                                                 STORE_OPERATOR_KEY_VALUES),
                                    ROWS(operator_key, 0, STORE_OPERATOR_KEYS)},
    [STATEMENT_DROP_OPERATOR_KEY] = {"DELETE FROM operator_keys WHERE name = $1::text",
                                     .parameters = "t"},
    [STATEMENT_WALK_OPERATOR_KEYS] = {"SELECT " STORE_NAMES(
                                          STORE_OPERATOR_KEYS) " FROM operator_keys ORDER BY name",
                                      .parameters = ""},
    [STATEMENT_LEAVE_AUDIT_EVENT] =
        {"INSERT INTO outbox (kind, event_type, payload) VALUES ('audit', $1::text, $2::text)",
         .parameters = "tt"},
    [STATEMENT_PUT_REVOCATIONS] =
        {"INSERT INTO sync_revocations (" STORE_NAMES(
             STORE_REVOCATIONS) ", serial) SELECT one.*, "
                                "nextval('revocation_serials') FROM (SELECT DISTINCT ON (kind, id) "
                                "* FROM unnest(@) "
                                "u(" STORE_NAMES(
                                    STORE_REVOCATIONS) ") ORDER BY kind, id, expires_at DESC) one "
                                                       "ON CONFLICT "
                                                       "(kind, id) DO UPDATE SET expires_at = "
                                                       "greatest(sync_revocations.expires_at, "
                                                       "excluded.expires_at), serial = "
                                                       "excluded.serial",
         ROWS(revocation, 0, STORE_REVOCATIONS)},
    [STATEMENT_DROP_REVOCATIONS] = {"DELETE FROM sync_revocations WHERE (kind, id) IN (SELECT "
                                    "kind, id FROM sync_revocations WHERE expires_at <= "
                                    "$1::bigint LIMIT 1000)",
                                    .parameters = "n"},
    /* In one order on all nodes, so that no two wait for each other. */
    [STATEMENT_ADD_SINGLE_USES] =
        {"INSERT INTO sync_single_uses (" STORE_NAMES(
             STORE_SINGLE_USES) ") SELECT * FROM unnest(@) "
                                "u(" STORE_NAMES(
                                    STORE_SINGLE_USES) ") ORDER BY kind, id, expires_at DESC ON "
                                                       "CONFLICT DO NOTHING RETURNING kind, id",
         ROWS(single_use, 0, STORE_SINGLE_USES)},
    [STATEMENT_DROP_SINGLE_USES] = {"DELETE FROM sync_single_uses WHERE (kind, id) IN (SELECT "
                                    "kind, id FROM sync_single_uses WHERE expires_at <= "
                                    "$1::bigint LIMIT 1000 FOR UPDATE SKIP LOCKED)",
                                    .parameters = "n"},
    [STATEMENT_KEEP_SECRET] = {"INSERT INTO secrets (name, value) VALUES ($1::text, $2::text) ON "
                               "CONFLICT (name) DO UPDATE SET value = excluded.value WHERE "
                               "$3::bigint = 1",
                               .parameters = "ttn"},
    [STATEMENT_SECRET] = {"SELECT value FROM secrets WHERE name = $1::text", .parameters = "t"},
    [STATEMENT_STATE] =
        {"SELECT (SELECT value FROM meta WHERE name = 'epoch'), (SELECT max(log_id) FROM events), "
         "(SELECT max(ref) FROM entities), (SELECT max(ref) FROM topics), (SELECT cursor FROM "
         "events ORDER BY log_id DESC LIMIT 1), (SELECT event_id FROM event_ids ORDER BY event_id "
         "DESC LIMIT 1), mark, unmarked_max, (SELECT value::bigint FROM meta WHERE name = "
         "'unprojected_from'), (SELECT min(value::bigint) FROM meta WHERE name IN ('fork_log_id', "
         "'import_log_id')) FROM minted_ids",
         .parameters = ""},
    [STATEMENT_PREFETCH_ENTITIES] =
        {"SELECT " ENTITY_COLUMNS ", k.o FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY "
         "k(kind, id, o) JOIN entities n ON n.kind = k.kind AND n.id = k.id " HEAD(
             "true") "ORDER BY k.o",
         .parameters = "NT"},
    [STATEMENT_PREFETCH_EVENTS] =
        {"SELECT " EVENT_COLUMNS ENTITY_NAME ", " ENTITY_COLUMNS
         ", k.o, l.log_id FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], "
         "$5::text[], $6::text[], $7::bigint[]) WITH ORDINALITY k(by, number, event_id, kind, "
         "entity_id, key, holder, o) CROSS JOIN LATERAL (SELECT CASE k.by WHEN 0 THEN k.number "
         "WHEN 1 THEN coalesce((SELECT i.log_id FROM event_ids i WHERE i.event_id = k.event_id), "
         "CASE WHEN k.number = 1 THEN find_minted(k.event_id) END) WHEN 2 THEN (SELECT y.log_id "
         "FROM idempotency_keys y WHERE y.entity_ref = " LOOKUP_REF " AND y.key = k.key) WHEN 3 "
         "THEN (SELECT x.log_id FROM events x WHERE x.entity_ref = " LOOKUP_REF
         " AND x.seq = 1) END AS log_id) l LEFT JOIN events e ON e.log_id = l.log_id LEFT JOIN "
         "entities n ON n.ref = e.entity_ref " HEAD(
             "k.holder = 1") "WHERE l.log_id IS NOT NULL ORDER BY k.o",
         .parameters = "NNUNTTN"},
    [STATEMENT_PREFETCH_STREAMS] = {"SELECT k.o FROM unnest($1::text[]) WITH ORDINALITY k(s, o) "
                                    "JOIN topics t ON t.stream_id = k.s",
                                    .parameters = "T"},
    [STATEMENT_ENTITY_BY_ID] = {ENTITY_SELECT "WHERE n.kind = $1::bigint AND n.id = $2::text",
                                .parameters = "nt"},
    [STATEMENT_ENTITY_BY_REF] = {ENTITY_SELECT "WHERE n.ref = $1::bigint", .parameters = "n"},
    [STATEMENT_EVENT] = {EVENT_SELECT "WHERE e.log_id = $1::bigint", .parameters = "n"},
    [STATEMENT_FIND_CURSOR] = {"SELECT find_cursor($1::uuid)", .parameters = "u"},
    [STATEMENT_TOPIC_BY_NAME] = {TOPIC_SELECT "WHERE t.topic = $1::text", .parameters = "t"},
    [STATEMENT_TOPIC_BY_STREAM] = {TOPIC_SELECT "WHERE t.stream_id = $1::text", .parameters = "t"},
    [STATEMENT_MEASURE_EVENTS] = {"SELECT count(*), sum(octet_length(p.payload))::bigint FROM "
                                  "(SELECT payload FROM events WHERE entity_ref = $1::bigint AND "
                                  "seq > $2::bigint ORDER BY seq LIMIT $3::bigint) p",
                                  .parameters = "nnn"},
    [STATEMENT_MEASURE_JOURNAL] =
        {"SELECT count(*), sum(CASE WHEN j.payload IS NULL THEN (SELECT octet_length(e.payload) "
         "FROM events e WHERE e.log_id = j.log_id) ELSE " JOURNAL_PAYLOAD_BYTES " END)::bigint "
         "FROM (SELECT * FROM journal WHERE topic_ref = $1::bigint AND seq > $2::bigint ORDER BY "
         "seq LIMIT $3::bigint) j",
         .parameters = "nnn"},
    [STATEMENT_EVENT_TIME] = {"SELECT cursor FROM events WHERE entity_ref = $1::bigint AND seq = "
                              "$2::bigint",
                              .parameters = "nn"},
    [STATEMENT_EVENT_TIMES] = {"SELECT seq, cursor, recorded_at FROM events WHERE entity_ref = "
                               "$1::bigint AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint",
                               .parameters = "nnn"},
    [STATEMENT_ROW_TIMES] = {"SELECT seq, published_at FROM journal WHERE topic_ref = $1::bigint "
                             "AND seq > $2::bigint ORDER BY seq LIMIT $3::bigint",
                             .parameters = "nnn"},
    DOCUMENT_KINDS(DOCUMENT_SELECT)[STATEMENT_CHECKPOINT] =
        {"SELECT " STORE_NAMES(
             STORE_CHECKPOINTS) " FROM checkpoints WHERE entity_ref = $1::bigint AND "
                                "projection_name = $2::text",
         .parameters = "nt"},
    [STATEMENT_WALK_ENTITY_EVENTS] = {EVENT_PAGE("x.entity_ref = $1::bigint AND x.seq > $2::bigint",
                                                 "seq", "$3::bigint"),
                                      .parameters = "nnn"},
    [STATEMENT_WALK_LOG] = {EVENT_PAGE("x.log_id > $1::bigint", "log_id", "$2::bigint"),
                            .parameters = "nn"},
    [STATEMENT_WALK_ENTITIES] = {ENTITY_PAGE("x.kind = $1::bigint AND x.ref > $2::bigint", "ref"),
                                 .parameters = "nnn"},
    [STATEMENT_WALK_TOPICS] = {TOPIC_SELECT "WHERE t.ref > $1::bigint ORDER BY t.ref LIMIT "
                                            "$2::bigint",
                               .parameters = "nn"},
    [STATEMENT_LIST_ENTITIES] = {ENTITY_PAGE("x.kind = $1::bigint AND x.id > $2::text", "id"),
                                 .parameters = "ntn"},
    [STATEMENT_LIST_TOPICS] = {TOPIC_SELECT "WHERE t.topic >= $1::text AND t.topic > $2::text "
                                            "ORDER BY t.topic LIMIT $3::bigint",
                               .parameters = "ttn"},
    DOCUMENT_KINDS(DOCUMENT_WALK)[STATEMENT_WALK_JOURNAL] =
        {"SELECT " STORE_JOURNAL_VALUES(
             OF_J, NEXT_OF_J) ", " JOURNAL_PAYLOAD ", j.fields_before, " EVENT_COLUMNS ENTITY_NAME
                              "FROM " JOURNAL_PAGE "j LEFT JOIN events e ON e.log_id = j.log_id "
                              "LEFT JOIN entities n ON n.ref = e.entity_ref " PAGE_FITS(
                                  "j") "ORDER BY j.seq",
         .parameters = "nnn"},
    [STATEMENT_WALK_OWNERS] = {"SELECT j.seq, n.ref" STORE_ENTITY_OWNER(
                                   NEXT_OF_N,
                                   NEXT_OF_N) " FROM journal j LEFT "
                                              "JOIN entities n ON n.ref = j.entity_ref WHERE "
                                              "j.topic_ref = $1::bigint AND j.seq > "
                                              "$2::bigint ORDER BY j.seq LIMIT $3::bigint",
                               .parameters = "nnn"},
    [STATEMENT_WALK_DRIFTS] =
        {"SELECT " STORE_DRIFTS(
             OF_D, NEXT_OF_D) ", n.id FROM khala_projection_drifts d LEFT JOIN entities "
                              "n ON n.ref = d.entity_ref WHERE d.id < $1::bigint ORDER BY d.id "
                              "DESC LIMIT $2::bigint",
         .parameters = "nn"},
    [STATEMENT_WALK_REVOCATIONS] =
        {"SELECT " STORE_NAMES(
             STORE_REVOCATIONS) ", (kind + 1)::bigint FROM sync_revocations WHERE "
                                "expires_at > $1::bigint AND (kind, id) > (($2::bigint - "
                                "1)::smallint, $3::text) ORDER BY "
                                "kind, id LIMIT $4::bigint",
         .parameters = "nntn"},
    [STATEMENT_FIND_STRAY] =
        {"WITH RECURSIVE refs(r) AS (SELECT min(topic_ref) FROM journal UNION ALL SELECT (SELECT "
         "min(topic_ref) FROM journal WHERE topic_ref > r) FROM refs WHERE r IS NOT NULL) SELECT "
         "r, (SELECT min(seq) FROM journal WHERE topic_ref = r) FROM refs WHERE r IS NOT NULL AND "
         "NOT EXISTS (SELECT 1 FROM topics t WHERE t.ref = r AND t.entity_ref IS NULL) LIMIT 1",
         .parameters = ""},
    /* A row that another session has locked must not stop the writer. */
    [STATEMENT_PUT_OUTBOX_LIMITS] =
        {"UPDATE outbox_limits l SET max_payload_bytes = u.bytes FROM unnest($1::text[], "
         "$2::bigint[]) u(kind, bytes) WHERE l.kind = u.kind AND l.max_payload_bytes <> u.bytes "
         "AND "
         "l.kind = ANY(ARRAY(SELECT x.kind FROM outbox_limits x FOR UPDATE SKIP LOCKED))",
         .parameters = "TN"},
    /* Sizes are known without reading the texts. A larger row is shown without them. The number of
     * rows is counted only where there is one. */
    [STATEMENT_READ_OUTBOX] =
        {"SELECT o.id, CASE WHEN o.fits THEN o.kind END, CASE WHEN o.fits THEN o.target END, CASE "
         "WHEN o.fits THEN o.event_type END, CASE WHEN o.fits THEN o.payload END, "
         "o.event_id::text, CASE WHEN o.fits THEN o.idempotency_key END, CASE WHEN o.fits THEN "
         "o.owner_user_id END, CASE WHEN o.fits THEN o.owner_guest_scope END, CASE WHEN o.fits "
         "THEN o.org_id END, o.fits::int::bigint, " OUTBOX_AGE(
             "o") ", (SELECT count(*) FROM "
                  "(SELECT FROM outbox LIMIT $4::bigint) w) FROM (SELECT p.*, sum(CASE WHEN p.fits "
                  "THEN "
                  "p.bytes ELSE 0 END) OVER (ORDER BY p.id) AS total FROM (SELECT q.*, q.bytes <= "
                  "$2::bigint AS fits FROM (SELECT x.*, coalesce(octet_length(x.kind), 0)::bigint "
                  "+ "
                  "coalesce(octet_length(x.target), 0) + coalesce(octet_length(x.event_type), 0) + "
                  "coalesce(octet_length(x.payload), 0) + "
                  "coalesce(octet_length(x.idempotency_key), 0) + "
                  "coalesce(octet_length(x.owner_user_id), 0) + "
                  "coalesce(octet_length(x.owner_guest_scope), "
                  "0) + coalesce(octet_length(x.org_id), 0) AS bytes FROM outbox x ORDER BY x.id "
                  "LIMIT "
                  "$1::bigint) q) p) o WHERE o.total <= $3::bigint ORDER BY o.id",
         .parameters = "nnnn"},
    [STATEMENT_REJECT_OUTBOX] =
        {"INSERT INTO outbox_rejected (outbox_id, reason, message, kind, target, event_type, "
         "payload, event_id, idempotency_key, owner_user_id, owner_guest_scope, org_id, "
         "inserted_at) SELECT x.id, u.code, u.message, left(x.kind, 64), left(x.target, 1024), "
         "left(x.event_type, 1024), CASE WHEN octet_length(x.payload) <= 1048576 THEN x.payload "
         "END, x.event_id, left(x.idempotency_key, 1024), left(x.owner_user_id, 1024), "
         "left(x.owner_guest_scope, 1024), left(x.org_id, 1024), x.inserted_at FROM "
         "unnest($1::bigint[], $2::text[], $3::text[]) u(id, code, message) JOIN outbox x ON x.id "
         "= u.id ORDER BY x.id",
         .parameters = "NTT"},
    [STATEMENT_DROP_OLD_REJECTED] = {"DELETE FROM outbox_rejected WHERE id <= (SELECT max(id) FROM "
                                     "outbox_rejected) - $1::bigint",
                                     .parameters = "n"},
    /* A row that another session has locked must not stop the writer. */
    [STATEMENT_DELETE_OUTBOX] = {"DELETE FROM outbox WHERE id = ANY(ARRAY(SELECT x.id FROM outbox "
                                 "x WHERE x.id = ANY($1::bigint[]) FOR UPDATE SKIP LOCKED))",
                                 .parameters = "N"},
    [STATEMENT_OUTBOX_STATE] =
        {"SELECT (SELECT count(*) FROM (SELECT FROM outbox LIMIT $1::bigint) w), "
         "(SELECT " OUTBOX_AGE(
             "x") " FROM outbox x ORDER BY x.id LIMIT 1), (SELECT count(*) FROM "
                  "outbox_rejected), r.reason, r.message, (EXISTS (SELECT FROM pg_roles WHERE "
                  "rolname = "
                  "'khala_producer'))::int::bigint FROM (SELECT 1) one LEFT JOIN LATERAL (SELECT "
                  "reason, "
                  "message FROM outbox_rejected ORDER BY id DESC LIMIT 1) r ON true",
         .parameters = "n"},
    [STATEMENT_MEASURE] = {"SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE "
                           "relnamespace = 'runtime'::regnamespace AND relkind = 'r'",
                           .parameters = ""},
    [STATEMENT_ADD_COMMIT] = {"INSERT INTO commits (topic_refs) SELECT array_agg(DISTINCT r) FROM "
                              "unnest($1::bigint[]) r",
                              .parameters = "N"},
    /* A row that is lost in a crash of the database is written again after a second. */
    [STATEMENT_PUT_NODE] =
        {"INSERT INTO nodes (node_id, address, operator_address, version, schema_version, role, "
         "term, log_id, cursor, revocations_seen, topics_hash) VALUES ($1::text, $2::text, "
         "$3::text, $4::text, $5::bigint, $6::text, $7::bigint, $8::bigint, $9::uuid, $10::bigint, "
         "$11::text) ON CONFLICT "
         "(node_id) DO UPDATE SET address = excluded.address, operator_address = "
         "excluded.operator_address, version = excluded.version, schema_version = "
         "excluded.schema_version, role = excluded.role, term = excluded.term, log_id = "
         "excluded.log_id, cursor = excluded.cursor, revocations_seen = "
         "excluded.revocations_seen, topics_hash = excluded.topics_hash, seen_at = "
         "clock_timestamp() WHERE " ASYNCHRONOUS,
         .parameters = "ttttntnnunt"},
    [STATEMENT_DROP_NODE] = {"DELETE FROM nodes WHERE node_id = $1::text", .parameters = "t"},
    /* A node that is missing after a change of the database must be known until that is judged. */
    [STATEMENT_DROP_OLD_NODES] = {"DELETE FROM nodes WHERE seen_at < clock_timestamp() - interval "
                                  "'60 s' AND (SELECT value FROM meta WHERE name = "
                                  "'database_history') = " POSTGRES_HISTORY " AND " ASYNCHRONOUS,
                                  .parameters = ""},
    [STATEMENT_DROP_OLD_COMMITS] = {"DELETE FROM commits WHERE commit_id <= (SELECT "
                                    "max(commit_id) FROM commits) - $1::bigint AND " ASYNCHRONOUS,
                                    .parameters = "n"},
    /* Rows of meta, named by what they are about, so that a row is reported once however many
     * readers meet it. */
    [STATEMENT_REPORT_DAMAGE] = {"INSERT INTO meta (name, value) SELECT 'damage ' || $1::bigint || "
                                 "' ' || $2::bigint || ' ' || $3::bigint || ' ' || $4::text, '' "
                                 "WHERE (SELECT count(*) FROM meta WHERE name ^@ 'damage ') < "
                                 "$5::bigint AND " ASYNCHRONOUS " ON CONFLICT (name) DO NOTHING",
                                 .parameters = "nnntn"},
    /* A row that is no report was put there by hand, and only goes. */
    [STATEMENT_TAKE_DAMAGES] = {"WITH taken AS (DELETE FROM meta WHERE name ^@ 'damage ' RETURNING "
                                "regexp_match(name, '^damage ([0-9]) ([0-9]{1,18}) ([0-9]{1,18}) "
                                "(.*)$') AS part) SELECT part[1]::bigint, part[2]::bigint, "
                                "part[3]::bigint, part[4] FROM taken WHERE part IS NOT NULL",
                                .parameters = ""},
    [STATEMENT_WALK_NODES] =
        {"SELECT node_id, address, operator_address, version, schema_version, (role = "
         "'writer')::int::bigint, term, log_id, cursor, revocations_seen, (extract(epoch FROM "
         "started_at) * 1000)::bigint, greatest(0, extract(epoch FROM clock_timestamp() - seen_at) "
         "* 1000)::bigint, topics_hash FROM nodes ORDER BY node_id LIMIT $1::bigint",
         .parameters = "n"},
    [STATEMENT_PROGRESS] =
        {"SELECT (SELECT value FROM meta WHERE name = 'epoch'), (SELECT max(log_id) FROM events), "
         "(SELECT cursor FROM events ORDER BY log_id DESC LIMIT 1), (SELECT max(commit_id) FROM "
         "commits), (SELECT min(commit_id) FROM commits), (EXISTS (SELECT FROM commits WHERE "
         "commit_id > $1::bigint AND topic_refs IS NULL))::int::bigint, (SELECT max(serial) FROM "
         "sync_revocations), (SELECT term FROM writer WHERE id = 1), (SELECT value::bigint FROM "
         "meta WHERE name = 'schema_version'), (SELECT value::bigint FROM meta WHERE name = "
         "'reader_version'), (SELECT count(*) FROM (VALUES ($2::bigint, $3::uuid), ($4::bigint, "
         "$5::uuid)) p (log_id, cursor) WHERE p.log_id > 0 AND NOT EXISTS (SELECT FROM events e "
         "WHERE e.log_id = p.log_id AND e.cursor = p.cursor))",
         .parameters = "nnunu"},
    [STATEMENT_WALK_CHANGED_TOPICS] =
        {TOPIC_COLUMNS "FROM (SELECT DISTINCT unnest(c.topic_refs) AS ref FROM commits c WHERE "
                       "c.commit_id > $1::bigint) x JOIN topics t ON t.ref = x.ref WHERE t.ref > "
                       "$2::bigint ORDER BY t.ref LIMIT $3::bigint",
         .parameters = "nnn"},
    [STATEMENT_WALK_NEW_REVOCATIONS] =
        {"SELECT " STORE_NAMES(
             STORE_REVOCATIONS) ", serial FROM sync_revocations "
                                "WHERE serial > $1::bigint ORDER BY serial LIMIT $2::bigint",
         .parameters = "nn"},
    [STATEMENT_LOCK_REVOCATIONS] = {"SELECT FROM locks WHERE name = 'revocations' FOR UPDATE",
                                    .parameters = ""},
    /* A server that stops while it has the lock delays others only for this time. */
    [STATEMENT_LOCK_SECRETS] = {"SELECT set_config('idle_in_transaction_session_timeout', '30s', "
                                "true) FROM locks WHERE name = 'secrets' FOR UPDATE",
                                .parameters = ""},
    [STATEMENT_DROP_FORKS] = {"DELETE FROM meta WHERE " POSTGRES_FORKS, .parameters = ""},
    [STATEMENT_PROPERTY] = {"SELECT value FROM meta WHERE name = $1::text", .parameters = "t"},
    [STATEMENT_PUT_PROPERTY] = {"INSERT INTO meta (name, value) VALUES ($1::text, $2::text) ON "
                                "CONFLICT (name) DO UPDATE SET value = excluded.value",
                                .parameters = "tt"},
    [STATEMENT_REMOVE_PROPERTY] = {"DELETE FROM meta WHERE name = $1::text", .parameters = "t"},
};
