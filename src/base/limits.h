/* The one table of limits: every bound of the server on memory and queues that is no setting. Its
 * constants are enum values of the rows' names. A module names its row; it has no bound of its own.
 * Limits of formats and protocols, and of the command line, stay with their code.
 * A row: name, value, unit, how many exist at once (scope, times), and what it bounds. ITEMS are
 * counts and WITHIN is part of another row or of a setting: neither adds to the sums.
 * The sums of the rows, by the settings, are in server/limits_report.h. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* One row a line. */
/* clang-format off */
#define LIMITS_TABLE(X)                                                                                                                                      \
    /* Process: the writer's thread. */                                                                                                                      \
    X(LEDGER_CACHE_BYTES_MAX,             64 << 20,  BYTES, PROCESS,      1, "entities the writer keeps between batches")                                    \
    X(LEDGER_ENTITIES_DEFAULT,            65536,     ITEMS, PROCESS,      1, "entities the writer keeps between batches")                                    \
    X(PUBLISH_BUCKETS_MAX,                65536,     ITEMS, PROCESS,      1, "principals of the last second whose publish rate in a topic is counted")         \
    X(PUBLISH_BUCKETS_BYTES,              16 << 20,  BYTES, PROCESS,      1, "those rates")                                                                    \
    X(USAGE_OWNERS_KEPT_MAX,              16384,     ITEMS, PROCESS,      1, "owners whose usage the writer keeps between batches")                           \
    X(USAGE_OWNERS_BYTES,                 24 << 20,  BYTES, PROCESS,      1, "that usage, and the usage of one commit")                                       \
    X(QUOTA_OWNERS_MAX,                   16384,     ITEMS, PROCESS,      1, "owners with quotas of their own")                                               \
    X(QUOTA_OWNERS_BYTES,                 16 << 20,  BYTES, PROCESS,      1, "those quotas")                                                                  \
    X(LEDGER_TEXT_BYTES_MAX,              64 << 20,  BYTES, PROCESS,      1, "payloads that the rules make, and merged metadata")                            \
    X(METADATA_NAME_BYTES_MAX,            64 << 20,  BYTES, PROCESS,      2, "one decoded member name while two documents are merged")                       \
    X(BATCH_ARENA_BYTES_MAX,              256 << 20, BYTES, PROCESS,      1, "keys of one commit, and a document for each of its entities")                  \
    X(BATCH_REQUESTS_MAX,                 8192,      ITEMS, PROCESS,      1, "requests of one commit")                                                       \
    X(BATCH_PAYLOAD_BYTES_MAX,            16 << 20,  BYTES, WITHIN,       1, "payloads of one commit, part of the writer's queue")                           \
    X(APPEND_GROUP_REQUESTS_MAX,          1024,      ITEMS, WITHIN,       1, "appends posted to the writer as one group")                                    \
    X(APPEND_SLICE_REQUESTS_MAX,           256,       ITEMS, WITHIN,       1, "appends of a batch that wait for their turn together")                        \
    X(APPEND_SLICE_BYTES_MAX,              512 << 10, BYTES, WITHIN,       1, "items of such a slice, and one more")                                         \
    X(APPEND_EVENT_COST,                   4096,      ITEMS, WITHIN,       1, "cost of an append in its turn, besides the bytes of its texts")               \
    X(RECENT_IDS_MAX,                     65536,     ITEMS, PROCESS,      1, "event ids the writer recognises without a query; a power of two")              \
    X(RECENT_IDS_BYTES,                   2 << 20,   BYTES, PROCESS,      1, "those ids, and their hash slots")                                              \
    X(OUTBOX_ROWS_MAX,                   1024,      ITEMS, WITHIN,       1, "rows of the outbox in one commit")                                              \
    X(OUTBOX_BATCH_BYTES,                4 << 20,   BYTES, WITHIN,       1, "texts of those rows; one larger row is read alone")                             \
    X(OUTBOX_ARENA_BYTES_MAX,            128 << 20, BYTES, PROCESS,      1, "appends made of those rows")                                                    \
    /* Process: topic policies. */                                                                                                                           \
    X(TOPICS_FILE_BYTES_MAX,              256 << 10, BYTES, PROCESS,      2, "the topics file in force, and the one that replaces it")                       \
    X(TOPIC_RULES_MAX,                    256,       ITEMS, PROCESS,      2, "rules of a topics file")                                                       \
    X(POLICIES_KEPT_MAX,                  4096,      ITEMS, PROCESS,      1, "different policies of all topics files since the start")                       \
    X(POLICIES_BYTES,                     1 << 20,   BYTES, PROCESS,      1, "those policies, and the rules")                                                \
    /* Process: the projector's thread. */                                                                                                                   \
    X(SQLITE_HEAL_TEXT_BYTES_MAX,         64 << 10,  BYTES, PROCESS,      2, "schema texts and names during the repair of derived tables")                  \
    X(PROJECTOR_CACHE_BYTES_DEFAULT,      32 << 20,  BYTES, PROCESS,      1, "summaries kept between batches")                                               \
    X(PROJECTOR_TURN_BYTES_MAX,           512 << 20, BYTES, PROCESS,      1, "summaries changed by one batch")                                               \
    X(PROJECTOR_SHARED_EVENTS_BYTES_MAX,  64 << 20,  BYTES, PROCESS,      1, "events that several summaries of one batch share")                             \
    X(PROJECTOR_RETRY_MAX,                8192,      ITEMS, PROCESS,      1, "summaries to retry; beyond it their next event brings them back")              \
    X(RELAY_MESSAGE_BYTES_MAX,            64 << 20,  BYTES, PROCESS,      2, "one document on its way to a sink outside the store")                          \
    X(RELAY_PAGE_BYTES_MAX,               128 << 20, BYTES, PROCESS,      2, "documents read at once for such a sink")                                       \
    X(RELAY_FRAMES_MAX,                   64,        ITEMS, PROCESS,      2, "frames or documents read at once for such a sink")                             \
    X(RELAY_HELD_MAX,                     1000,      ITEMS, PROCESS,      2, "documents that the target of such a sink refuses; beyond it the sink stops")   \
    X(RELAY_STATE_BYTES_MAX,              1 << 20,   BYTES, PROCESS,      2, "those documents' keys and times, and their text while it is stored")           \
    X(RELAY_RESEND_BYTES_MAX,             128 << 20, BYTES, PROCESS,      2, "one of those documents while it is sent again")                                \
    X(REBUILD_PAGE_BYTES_MAX,             4 << 20,   BYTES, PROCESS,      1, "names and checkpoints of entities while summaries get a new version")          \
    X(REBUILD_ENTITIES_MAX,               64,        ITEMS, PROCESS,      1, "such entities, read at once")                                                  \
    X(FANOUT_QUEUE_MAX,                   1024,      ITEMS, PROCESS,      1, "messages of other nodes that the client of a fan-out driver holds")            \
    X(FANOUT_QUEUE_BYTES_MAX,             64 << 10,  BYTES, PROCESS,      1, "those messages; a larger one is dropped")                                      \
    X(SUMMARY_BYTES_MAX,                  64 << 20,  BYTES, PROCESS,      5, "one summary: two texts of the largest payload; also while it is merged")       \
    /* Process: jobs, of each at most one at a time. */                                                                                                      \
    X(FOLD_ARENA_BYTES_MAX,               256 << 20, BYTES, PROCESS,      2, "a summary with the texts of the events of one turn")                           \
    X(FOLD_PAGE_EVENTS_MAX,               4096,      ITEMS, PROCESS,      1, "events a fold reads at once; a longer read would pin the write-ahead log")     \
    X(FOLD_MOVE_BYTES,                    1 << 20,   BYTES, WITHIN,       1, "texts of a fold after which the summary moves to the other arena")             \
    X(REPROJECT_STORED_BYTES_MAX,         256 << 20, BYTES, PROCESS,      1, "the stored summary a reprojection compares with")                              \
    X(REPROJECT_REPAIRS_BYTES_MAX,        256 << 20, BYTES, PROCESS,      2, "repairs not yet written")                                                      \
    X(REPROJECT_REPAIRS_BYTES,            8 << 20,   BYTES, WITHIN,       1, "size at which repairs are written")                                            \
    X(REPROJECT_REPAIRS_MAX,              256,       ITEMS, PROCESS,      1, "repairs not yet written")                                                      \
    X(MEND_JOURNAL_BYTES_MAX,             256 << 20, BYTES, PROCESS,      1, "altered rows of a journal, as they are and as they should be")                 \
    X(VERIFY_ENTITY_BYTES_MAX,            64 << 20,  BYTES, PROCESS,      1, "one entity while it is verified, with metadata of the largest payload")        \
    X(VERIFY_PAGE_EVENTS_MAX,             4096,      ITEMS, PROCESS,      1, "events a verification reads at once")                                          \
    X(RETENTION_CYCLE_NAMES_BYTES_MAX,    2 << 20,   BYTES, PROCESS,      1, "names of the topics in one pruning batch")                                     \
    X(RETENTION_REPORT_NAMES_BYTES_MAX,   4 << 20,   BYTES, PROCESS,      1, "names of the topics in a pruning report")                                      \
    X(RETENTION_REPORT_TOPICS_MAX,        1000,      ITEMS, PROCESS,      1, "topics in a pruning report")                                                   \
    X(RETENTION_DUE_BYTES_MAX,            512 << 20, BYTES, PROCESS,      2, "when each topic is due, 8 bytes a topic; also while the table grows")          \
    X(PRUNE_BATCH_TOPICS_MAX,             256,       ITEMS, PROCESS,      1, "topics in one pruning batch")                                                  \
    X(PRUNE_BATCH_WORK_MAX,               5000,      ITEMS, PROCESS,      1, "work of one pruning batch: a removed row is 1, a topic is 1")                  \
    X(IMPORT_PART_ENTITIES_MAX,           262144,    ITEMS, PROCESS,      1, "entities whose links an import follows in one pass")                           \
    X(IMPORT_PART_BYTES_MAX,              64 << 20,  BYTES, PROCESS,      1, "links that an import follows in one pass")                                     \
    X(IMPORT_PART_IDS_MAX,                1 << 20,   ITEMS, PROCESS,      1, "event ids of an import that are compared in one pass")                         \
    X(IMPORT_STEP_BYTES,                  1 << 20,   BYTES, PROCESS,      2, "bytes of an import read or checked at once; one import at a time")             \
    X(IMPORT_LINE_ARENA_BYTES_MAX,        64 << 20,  BYTES, PROCESS,      1, "the texts of one line of an import")                                           \
    X(IMPORT_GROUP_BYTES,                 4 << 20,   BYTES, WITHIN,       1, "texts of the events of an import that are appended at once")                   \
    /* Process: shared tables. */                                                                                                                            \
    X(STORE_POOL_TASKS_MAX,               100000,    ITEMS, PROCESS,      1, "reads that wait for a thread of the store pool")                               \
    X(STORE_TASK_ROWS,                    1024,      ITEMS, WITHIN,       1, "rows that a slice of a long read looks at; then other principals have a turn") \
    X(OPENING_SLICE_TOPICS,               64,        ITEMS, WITHIN,       1, "topics that a slice of a subscription or of a plan looks up")                 \
    X(JOB_GROUPS_MAX,                     8,         ITEMS, LOOP,         1, "principals whose sessions of one turn read the store together")                \
    X(STORE_POOL_DEBTORS_MAX,             4096,      ITEMS, PROCESS,      1, "principals without a read whose long reads are remembered")                    \
    X(GATE_REVOCATIONS_MAX,               1000000,   ITEMS, PROCESS,      1, "revocations that have not expired")                                            \
    X(OPERATOR_KEYS_MAX,                  256,       ITEMS, PROCESS,      1, "operator keys with names; twice as many while all are being rotated")           \
    X(RATE_PRINCIPALS_MAX,                16384,     ITEMS, PROCESS,      2, "principals whose single uses of the last seconds are counted")                 \
    X(RATE_ADDRESSES_MAX,                 65536,     ITEMS, PROCESS,      1, "addresses whose wrong keys and tokens of the last minutes are counted")        \
    X(GATE_REVOCATIONS_BYTES_MAX,         700000000, BYTES, PROCESS,      1, "those revocations, each with the longest id")                                  \
    X(HUB_REPLAY_PLACES_MAX,              16,        ITEMS, WITHIN,       1, "places of a topic whose replays share frames, within KHALA_WINDOWS_BYTES_MAX") \
    X(HUB_FOLDED_FRAMES_MAX,              4096,      ITEMS, WITHIN,       1, "folded frames of a topic that its readers share, within KHALA_WINDOWS_BYTES_MAX") \
    X(HUB_NAMES_BYTES_MAX,                65536,     BYTES, PROCESS,      1, "names of the topics in one publication")                                       \
    X(OWNER_MAP_BLOCKS_MAX,               4096,      ITEMS, PROCESS,      1, "blocks of 1024 frames whose owners are known, each 4 KiB")                      \
    X(TOPIC_ACTIVITY_NAMES_BYTES_MAX,     4096,      BYTES, PROCESS,      1, "names looked up while activity is counted")                                    \
    X(SNAPSHOTS_ARENA_BYTES_MAX,          64 << 10,  BYTES, PROCESS,      1, "snapshot headers read at start")                                               \
    X(SNAPSHOT_GZIPS_MAX,                 256,       ITEMS, PROCESS,      1, "snapshots compressed at once")                                                 \
    X(KEY_SET_BYTES_MAX,                  262144,    BYTES, PROCESS,      1, "a file of token keys while it is read")                                        \
    X(JWS_BYTES_MAX,                      65536,     BYTES, PROCESS,      1, "a token while the server signs it")                                            \
    X(CAUSES_KEPT_MAX,                    1024,      ITEMS, PROCESS,      1, "causes of evictions kept for the operator")                                    \
    X(TOPICS_KEPT_MAX,                    1024,      ITEMS, PROCESS,      1, "topics whose activity is kept for the operator")                               \
    /* Turn: one for each thread of the store pool. */                                                                                                       \
    X(SNAPSHOT_TEXT_BYTES_MAX,            256 << 20, BYTES, THREAD,       1, "documents of a snapshot part while it is built")                               \
    X(SNAPSHOT_OWNERS_BYTES_MAX,          64 << 20,  BYTES, THREAD,       1, "owners of those documents")                                                    \
    X(SNAPSHOT_BUILD_ARENA_BYTES_MAX,     1 << 20,   BYTES, THREAD,       1, "rows of those documents")                                                      \
    X(JOURNAL_READ_ARENA_BYTES_MAX,       64 << 10,  BYTES, THREAD,       1, "topic rows of one journal read")                                               \
    X(JOURNAL_BOOTSTRAPS_MAX,             16,        ITEMS, THREAD,       1, "attempts of a bootstrap while pruning raises its floor")                       \
    X(REPLAY_COUNT_ROWS_MAX,              1 << 18,   ITEMS, THREAD,       1, "frames examined to count those of one reader behind its cursor")               \
    X(REPLAY_LAG_ROWS_MAX,                4096,      ITEMS, THREAD,       1, "frames examined to count those of one poll behind its page")                   \
    X(REPLAY_BOOTSTRAP_ROWS_MAX,          16384,     ITEMS, THREAD,       1, "frames examined to find where the bootstrap of one reader begins")             \
    X(OWNERS_ARENA_BYTES_MAX,             1280 << 10, BYTES, THREAD,       1, "owners of the entities in one read, and one entity of any size")              \
    X(OWNERS_MAX,                         64,        ITEMS, THREAD,       1, "owners kept between reads of one page")                                        \
    X(OWNERS_KEPT_BYTES,                  256 << 10, BYTES, WITHIN,       1, "owners kept between reads of one page")                                        \
    X(SQLITE_WALK_ARENA_BYTES_MAX,        64 << 20,  BYTES, THREAD,       2, "the largest row of a walk of the store, which may be inside another")          \
    X(SQLITE_WALK_SERVICE_BYTES_MAX,      64 << 20,  BYTES, PROCESS,      4, "the same for the sessions of the writer and of retention")                     \
    X(SQLITE_WALK_PAGE_BYTES,             256 << 10, BYTES, WITHIN,       1, "size at which a page of a walk ends")                                          \
    X(POSTGRES_SESSIONS_MAX,              64,        ITEMS, PROCESS,      1, "sessions of a database")                                                       \
    X(POSTGRES_PARAMETERS_MAX,            20,        ITEMS, WITHIN,       1, "parameters of a statement")                                                    \
    X(POSTGRES_PIPELINE_MAX,              64,        ITEMS, WITHIN,       1, "statements sent to a database before their results are read")                  \
    X(POSTGRES_PARAMETER_BYTES_MAX,       512 << 20, BYTES, WITHIN,       1, "one column of a commit, a copy of the batch")                                  \
    X(POSTGRES_WALK_PAGE_BYTES,           1 << 20,   BYTES, WITHIN,       1, "size at which a page of a walk ends")                                              \
    X(POSTGRES_WALK_PAGE_ROWS_MAX,        256,       ITEMS, WITHIN,       1, "rows in a page of a walk")                                                     \
    X(POSTGRES_TIMES_PAGE_ROWS_MAX,       1024,      ITEMS, WITHIN,       1, "times of frames in a page, while the first that has not expired is looked for") \
    X(POSTGRES_OWNERS_PAGE_ROWS_MAX,      1024,      ITEMS, WITHIN,       1, "owners of frames in a page, while those of a topic are learned")                \
    X(SHARED_KEY_BYTES_MAX,               16 << 10,  BYTES, PROCESS,      2, "one generated key, in its file and in the store")                              \
    X(POSTGRES_HEAL_TEXT_BYTES_MAX,       64 << 10,  BYTES, PROCESS,      1, "names during the repair of derived tables")                                    \
    X(SQLITE_WALK_PAGE_ROWS_MAX,          64,        ITEMS, WITHIN,       1, "rows in a page of a walk")                                                     \
    /* Turn: for each io loop. */                                                                                                                            \
    X(LOOP_TASKS_MAX,                     1000000,   ITEMS, LOOP,         1, "tasks posted to a loop and not yet run")                                       \
    X(LOOP_READ_BYTES,                    65536,     BYTES, LOOP,         2, "bytes of one read, as received and decrypted")                                 \
    X(APPEND_WORKS_KEPT,                  64,        ITEMS, LOOP,         1, "ended appends whose memory the next ones use")                                 \
    X(APPEND_WORK_KEPT_BYTES,             8 << 10,   BYTES, LOOP,         64, "texts of such an append; each of them also has about 1 KiB")                  \
    X(SESSION_TURNS_MAX,                  512,       ITEMS, LOOP,         1, "turns of subscribers between two polls of the sockets")                        \
    X(FEED_PAGES_BYTES,                   4 << 20,   BYTES, LOOP,         1, "encoded pages of topics, for clients that come to their positions")          \
    X(FEED_PAGES_MAX,                     8,         ITEMS, LOOP,         1, "such pages of one topic")                                                    \
    X(EVENT_STREAM_BYTES_MAX,             128 << 20, BYTES, LOOP,         2, "events encoded for one server-sent-events push")                               \
    X(TOPIC_WS_PUSH_BYTES_MAX,            128 << 20, BYTES, LOOP,         2, "messages encoded for one topic WebSocket push")                                \
    X(AUDIT_WS_PUSH_BYTES_MAX,            128 << 20, BYTES, LOOP,         1, "messages encoded for one audit WebSocket push")                                \
    X(PHOENIX_BATCH_BYTES_MAX,            128 << 20, BYTES, LOOP,         2, "messages encoded for one Phoenix push")                                        \
    X(PHOENIX_PAYLOAD_BYTES_MAX,          160 << 20, BYTES, LOOP,         2, "a Phoenix push: a snapshot part, which may be one large document")             \
    X(PHOENIX_REPLY_BYTES_MAX,            32 << 20,  BYTES, LOOP,         4, "a Phoenix reply that names all topics of a session")                           \
    X(PHOENIX_WELCOME_ARENA_BYTES_MAX,    65536,     BYTES, LOOP,         1, "rows a Phoenix welcome is made of")                                            \
    X(APPEND_ANSWER_BYTES_MAX,            48 << 20,  BYTES, LOOP,         1, "answer to one append")                                                         \
    X(WHY_ANSWER_BYTES_MAX,               16 << 20,  BYTES, LOOP,         1, "answer that explains an entitlement")                                          \
    X(CENSUS_ANSWER_BYTES_MAX,           4 << 20,  BYTES, LOOP,         1, "a page of the connections or principals")                                        \
    X(RETENTION_ANSWER_BYTES_MAX,         16 << 20,  BYTES, LOOP,         1, "a pruning report as an answer")                                                \
    X(SNAPSHOTS_ANSWER_BYTES_MAX,         16384,     BYTES, LOOP,         1, "answer that lists the snapshots")                                              \
    X(EXPOSITION_BYTES_MAX,               2 << 20,   BYTES, LOOP,         1, "the metrics as text")                                                          \
    X(EXCHANGE_ERROR_BYTES_MAX,           65536,     BYTES, LOOP,         1, "one error answer")                                                             \
    X(APPEND_DETAILS_BYTES_MAX,          8192,      BYTES, LOOP,         1, "details of a refused append")                                                   \
    X(POLL_DETAILS_BYTES_MAX,            32768,     BYTES, LOOP,         1, "details of a refused poll")                                                     \
    X(NOTICE_BYTES_MAX,                  65536,     BYTES, LOOP,         1, "a notice of a dialect that names topics or positions")                          \
    X(SHORT_NOTICE_BYTES_MAX,            4096,      BYTES, LOOP,         2, "a short message of a dialect: a heartbeat, an acknowledgement, an error")       \
    X(UPGRADE_HEAD_BYTES_MAX,            2048,      BYTES, LOOP,         1, "head of the answer that opens a WebSocket or an event stream")                  \
    X(LAST_EVENT_ID_BYTES_MAX,           128,       BYTES, LOOP,         1, "decoded Last-Event-ID of a request")                                            \
    X(PHOENIX_ENVELOPE_BYTES_MAX,        4096,      BYTES, LOOP,         2, "event and channel around a Phoenix payload")                                    \
    X(FORWARD_CONNECTIONS_MAX,             64,        ITEMS, LOOP,         1, "connections to the writer")                                                   \
    X(FORWARD_STREAMS_MAX,                 48,        ITEMS, LOOP,         1, "those that batches and imports may use, so that single appends find one")     \
    X(FORWARD_WAITING_MAX,                 2048,      ITEMS, LOOP,         1, "those that wait for one, of both kinds; an eighth, if one principal has all") \
    X(FORWARD_REQUESTS_BYTES_MAX,          128 << 20, BYTES, LOOP,         1, "single appends on their way to the writer")                                   \
    X(FORWARD_OUT_BYTES_MAX,               192 << 10, BYTES, LOOP,        64, "head, or a piece of the body, of a request to the writer")                    \
    X(FORWARD_ANSWER_BYTES_MAX,            512 << 10, BYTES, LOOP,        64, "a piece of the writer's answer, and the line that it begins")                 \
    X(HTTP1_ANSWER_HEAD_BYTES_MAX,         16 << 10,  BYTES, LOOP,        64, "head of an answer of the writer")                                             \
    /* Connection: whatever it serves. */                                                                                                                    \
    X(CONN_OUT_BYTES_MAX,                 64 << 20,  BYTES, CONNECTION,   1, "one page of a streamed answer, or the largest event")                          \
    X(CONN_UNSENT_BYTES_MAX,              256 << 10, BYTES, CONNECTION,   1, "unsent bytes in the kernel; more would delay a quiet topic behind a busy one") \
    X(CONN_ASKED_MAX,                     16,        ITEMS, PROCESS,      1, "connections over a limit that other loops were asked to close")                \
    X(CONN_HANDED_MAX,                    32,        ITEMS, PROCESS,      1, "accepted sockets that are on their way to another loop")                       \
    X(CONN_BODY_BYTES_MIN,                8192,      BYTES, WITHIN,       1, "least bytes of a streamed body in KHALA_REQUEST_TIMEOUT_MS")                   \
    X(ANSWER_UNSENT_BYTES_MAX,            64 << 10,  BYTES, WITHIN,       1, "the same for answers, which a client may never read")                          \
    X(UNREAD_ANSWER_BYTES_MIN,            64 << 10,  BYTES, WITHIN,       1, "smaller answers do not count as unread: the kernel takes them")                \
    X(UNREAD_PROGRESS_BYTES_MIN,          16 << 10,  BYTES, WITHIN,       1, "bytes to read within the request timeout, to keep an answer")                  \
    X(UNREAD_PROGRESS_PART,               8,        ITEMS, WITHIN,       1, "part of what it holds that an answer must lose in that time while memory is short")\
    X(UNREAD_SHORT_PRINCIPALS,            4,        ITEMS, WITHIN,       1, "principals with all unread bytes they may have; at more bytes memory is short")  \
    X(CONN_LINGER_BYTES_MAX,              4 << 20,   BYTES, WITHIN,       1, "request bytes read and dropped after an early answer")                         \
    X(TLS_OUT_BYTES_MAX,                  256 << 10, BYTES, CONNECTION,   2, "records to send: a batch, or the longest chain of certificates")               \
    X(TLS_BATCH_BYTES_MAX,                64 << 10,  BYTES, WITHIN,       1, "plaintext encrypted at once; more would run ahead of the network")             \
    X(HTTP1_SKIPPED_BYTES_MAX,            8192,      BYTES, WITHIN,       1, "extensions of one chunk, or of the last chunk with the trailers; not kept")    \
    X(WS_EMPTY_FRAGMENTS_MAX,             1024,      ITEMS, CONNECTION,   1, "empty fragments of a message; its size bounds the others")                     \
    X(ENTITLE_ARENA_BYTES_MAX,            1 << 20,   BYTES, CONNECTION,   1, "rows that decide an entitlement")                                              \
    X(EXCHANGE_BODY_BYTES_MAX,            64 << 20,  BYTES, CONNECTION,   1, "the body of the request")                                                      \
    X(EXCHANGE_PARAMETER_BYTES_MAX,       4096,      BYTES, CONNECTION,   1, "decoded parameters of the request")                                            \
    X(CURSORS_PLAN_BYTES_MAX,            1 << 20,   BYTES, WITHIN,       1, "body of a request for a cursor plan")                                           \
    X(CURSORS_PLAN_CURSORS_MAX,          1000,      ITEMS, WITHIN,       1, "cursors of such a request")                                                     \
    X(CURSORS_PLAN_ROWS_MAX,             1 << 17,   ITEMS, WITHIN,       1, "rows that a cursor plan looks at before it stops to measure")                   \
    X(CURSORS_PLAN_CURSOR_ROWS_MAX,      1 << 16,   ITEMS, WITHIN,       1, "rows that a cursor plan looks at for one of its cursors")                       \
    X(CURSORS_PLAN_KEYS_BYTES_MAX,       2 << 20,   BYTES, READ,         1, "cursors of a plan, so that a repeated one is planned once")                     \
    X(REVOKE_BYTES_MAX,                  1 << 20,   BYTES, WITHIN,       1, "body of a revocation")                                                          \
    X(RECORD_BYTES_MAX,                  16 << 20,  BYTES, WITHIN,       1, "events that record one request of an operator")                                  \
    X(RECORD_EVENT_BYTES_MAX,            64 << 10,  BYTES, WITHIN,       1, "one of them")                                                                   \
    X(REVOKE_IDS_MAX,                    1000,      ITEMS, WITHIN,       1, "ids of a revocation")                                                           \
    X(REVOKE_REASON_BYTES_MAX,           512,       BYTES, WITHIN,       1, "reason of a revocation")                                                        \
    /* Connection: a request of one kind at a time. */                                                                                                       \
    X(STORE_READ_OUT_BYTES_MAX,           48 << 20,  BYTES, READ,         1, "answer of a read of the store")                                                \
    X(AUDIT_PAGE_BYTES,                  1 << 20,   BYTES, WITHIN,       1, "size at which a page of the log ends")                                          \
    X(AUDIT_PAGE_EVENTS_MAX,             200,       ITEMS, WITHIN,       1, "events in a page of the log")                                                   \
    X(AUDIT_PAGE_READS_MAX,              20000,     ITEMS, WITHIN,       1, "events read for such a page, whether the principal may read them or not")       \
    X(EXPORT_PAGE_BYTES,                 64 << 10,  BYTES, WITHIN,       1, "size at which a page of an export is sent")                                     \
    X(EXPORT_PAGE_EVENTS_MAX,            256,       ITEMS, WITHIN,       1, "events in a page of an export")                                                 \
    X(EVENTS_PAGE_BYTES,                 1 << 20,   BYTES, WITHIN,       1, "size at which a page of events of an entity ends")                              \
    X(EVENTS_PAGE_EVENTS_MAX,            1000,      ITEMS, WITHIN,       1, "events in a page of an entity")                                                 \
    X(LIST_PAGE_BYTES,                   1 << 20,  BYTES, WITHIN,       1, "size at which a page of runs, workers or topics ends")                           \
    X(LIST_PAGE_ITEMS_MAX,               1000,     ITEMS, WITHIN,       1, "items in a page of a list")                                                      \
    X(LIST_PAGE_READS_MAX,               10000,    ITEMS, WITHIN,       1, "rows read for such a page, whether they match its filters or not")               \
    X(TREE_PAGE_EVENTS_MAX,               10000,   ITEMS, WITHIN,       1, "events read for a page of the tree of a run")                                    \
    X(TREE_PAGE_BYTES,                    16 << 20, BYTES, WITHIN,       1, "payloads read for such a page, after which it ends")                            \
    X(REPLAY_PAGE_BYTES,                 256 << 10, BYTES, WITHIN,       1, "size at which a page of a replay is sent")                                      \
    X(REPLAY_PAGE_EVENTS_MAX,            1024,      ITEMS, WITHIN,       1, "events in a page of a replay")                                                  \
    X(SNAPSHOT_PAGE_BYTES,               64 << 10,  BYTES, WITHIN,       1, "size at which a page of a snapshot is sent")                                    \
    X(SNAPSHOT_PAGE_PARTS_MAX,           64,        ITEMS, WITHIN,       1, "parts read for such a page, whether the principal may read them or not")        \
    X(STORE_READ_ARENA_BYTES_MAX,         64 << 20,  BYTES, READ,         1, "rows of a read of the store")                                                  \
    X(SNAPSHOT_PLAIN_BYTES_MAX,           256 << 20, BYTES, READ,         1, "a snapshot part before it is compressed")                                      \
    X(APPEND_ARENA_BYTES_MAX,             128 << 20, BYTES, APPEND,       1, "one append while the writer holds it")                                         \
    X(REPROJECT_ARENA_BYTES_MAX,          64 << 20,  BYTES, REPROJECT,    1, "scope and result of a reprojection")                                           \
    X(REPROJECT_ANSWER_BYTES_MAX,         1 << 20,   BYTES, REPROJECT,    1, "answer of a reprojection")                                                     \
    X(POLL_PAGE_BYTES_MAX,                160 << 20, BYTES, POLL,         2, "messages of one poll, and its answer")                                         \
    X(POLL_ENVELOPE_BYTES_MAX,           65536,     BYTES, POLL,         1, "members of the answer around the messages")                                     \
    X(POLL_PAGE_BYTES,                    1 << 20,   BYTES, WITHIN,       1, "size at which a poll ends; its next_cursor says where to continue")            \
    X(BATCH_GROUPS_MAX,                   8,         ITEMS, WITHIN,       1, "slices of one batch posted and not answered")                                  \
    X(BATCH_SHARE_BYTES_MIN,              1 << 20,  BYTES, WITHIN,       1, "batches of one principal that may grow when memory is nearly used up")           \
    X(BATCH_HELD_BYTES_MIN,               64 << 10, BYTES, WITHIN,       1, "batches that hold less need not move a part of it")                              \
    X(BATCH_GROUP_ARENA_BYTES_MAX,        256 << 20, BYTES, WITHIN,       1, "one group of a batch; KHALA_BATCHES_BYTES_MAX bounds all")                     \
    X(BATCH_BLOCKED_ENTITIES_MAX,         512,       ITEMS, WITHIN,       1, "refused entities of one batch; beyond, no later item is attempted")             \
    X(BATCH_BLOCKED_BYTES_MAX,            256 << 10, BYTES, APPEND,       1, "ids of those entities")                                                        \
    X(BATCH_RENEWALS_MAX,                 8,         ITEMS, WITHIN,       1, "times that items prolong the deadline of a batch while none is stored")        \
    X(BATCH_PAGE_BYTES,                   256 << 10, BYTES, WITHIN,       1, "answers of a batch after which a page is sent")                                \
    X(SPOOL_MEMORY_BYTES,                 256 << 10, BYTES, APPEND,       1, "unread answers of a batch in memory; the others are in a file")                \
    X(SPOOL_DISK_FREE_BYTES_MIN,          256 << 20, BYTES, WITHIN,       1, "free disk space below which answers of batches take none")                     \
    X(BATCH_PAGE_BYTES_MAX,               48 << 20,  BYTES, WITHIN,       1, "one page of a batch's answers; KHALA_BATCHES_BYTES_MAX bounds all")            \
    X(SESSION_REPLIES_BYTES_MAX,          200 << 20, BYTES, SESSION,      1, "replies to the largest message")                                               \
    X(SESSION_REPLIES_UNREAD_BYTES,      64 << 10,  BYTES, WITHIN,       1, "unread replies at which no further message is handled")                         \
    X(SESSION_PUSH_BYTES,                 64 << 10,  BYTES, SESSION,      1, "frames gathered for one push")                                                 \
    X(SESSION_PART_BYTES_MAX,             160 << 20, BYTES, SESSION,      1, "the snapshot part a session is sending")                                       \
    X(PHOENIX_SUBSCRIBE_ARENA_BYTES_MAX,  64 << 20,  BYTES, SESSION,      1, "one subscribe request")                                                        \
    /* Connection: for each topic it subscribes to. */                                                                                                       \
    X(JOURNAL_READ_BYTES,                 128 << 10, BYTES, SUBSCRIPTION, 1, "frames read ahead of the session")                                             \
    X(JOURNAL_READ_FRAMES_MAX,            1000,      ITEMS, SUBSCRIPTION, 1, "frames read ahead of the session")                                             \
    /* Frame: held by windows, which KHALA_WINDOWS_BYTES_MAX bounds, and by snapshots on disk. */                                                            \
    X(FRAME_HEAD_BYTES_MAX,               8192,      BYTES, WITHIN,       1, "names of a frame before its payload, escaped")                                 \
    X(FRAME_TAIL_BYTES_MAX,               8192,      BYTES, WITHIN,       1, "names of a frame behind its payload, escaped")                                 \
    X(FRAME_FORM_BYTES_MAX,               16,        BYTES, WITHIN,       1, "name of the form of frames in a request")                                      \
    X(WHERE_JSON_BYTES_MAX,               8192,      BYTES, WITHIN,       1, "text of a where in a request")                                                  \
    X(WHERE_VALUES_MAX,                   32,        ITEMS, WITHIN,       1, "values of a where")                                                             \
    X(WHERE_VALUE_BYTES_MAX,              256,       BYTES, WITHIN,       1, "one of those values")                                                           \
    X(WHERE_TEXT_BYTES_MAX,               2048,      BYTES, SUBSCRIPTION, 1, "all of those values")                                                           \
    X(WHERE_RECORD_BYTES_MAX,             64 << 10,  BYTES, WITHIN,       1, "fields for where that a frame of a summary records")                            \
    X(FRAME_BLOCK_BYTES,                  16 << 10,  BYTES, WITHIN,       1, "memory that frames of one read share; freed with the last of them")             \
    X(SNAPSHOT_PART_BYTES,                64 << 10,  BYTES, WITHIN,       1, "size at which a snapshot part ends; a larger document is a part of its own")   \
    X(SNAPSHOT_PART_DOCUMENTS_MAX,        256,       ITEMS, WITHIN,       1, "documents of a snapshot part")
/* clang-format on */

enum {
#define LIMIT_CONSTANT(name, value, unit, scope, times, bounds) name = (value),
    LIMITS_TABLE(LIMIT_CONSTANT)
#undef LIMIT_CONSTANT
};

/* A node delivers for so long after it read the revocations of all nodes. */
#define REVOCATIONS_AGE_MS_MAX 5000
/* Rows of the table of nodes that are kept in memory. */
#define NODES_MAX              64
#define NODES_ANSWER_BYTES_MAX (128u << 10)
/* A node that is more events behind announces only the heads of topics. */
#define FOLLOW_EVENTS_MAX 8192

#endif
