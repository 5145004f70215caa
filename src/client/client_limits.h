/* The bounds of the client library on memory and time. The application sets the sizes of its own
 * queues in the options of khala_open. docs/clients.md explains the values that all libraries
 * share. */
#ifndef CLIENT_CLIENT_LIMITS_H
#define CLIENT_CLIENT_LIMITS_H

#define CLIENT_MESSAGE_BYTES_MAX   (64u << 20)  /* one message of the server */
#define CLIENT_SNAPSHOT_BYTES_MAX  (256u << 20) /* the documents of one snapshot */
#define CLIENT_OUT_BYTES_MAX       (16u << 20)  /* bytes on their way to the server */
#define CLIENT_ANSWER_BYTES_MAX    (16u << 20)  /* the body of one HTTP answer */
#define CLIENT_TOKEN_BYTES_MAX     (16u << 10)
#define CLIENT_TOPIC_BYTES_MAX     512
#define CLIENT_WHERE_BYTES_MAX     4096 /* the filter of a summary topic */
#define CLIENT_CONFLATE_MS_MAX     5000
#define CLIENT_PATH_BYTES_MAX      (16u << 10) /* path of one request */
#define CLIENT_TOPICS_MAX          100000
#define CLIENT_TOPICS_PER_PUSH_MAX 100
#define CLIENT_PUSHES_MAX          4096 /* requests without a reply */
#define CLIENT_READ_BYTES          65536

#define CLIENT_QUEUE_FRAMES_MAX 1000
#define CLIENT_QUEUE_BYTES_MAX  (8u << 20)
#define CLIENT_RECENT_IDS_MAX   320000 /* five minutes of 1 000 events a second, and some more */
#define CLIENT_RECENT_MAX       8192   /* documents */
#define CLIENT_RECENT_MS        300000
#define CLIENT_FAULTS_MAX       5 /* within CLIENT_FAULTS_MS the breaker trips */
#define CLIENT_FAULTS_MS        60000

#define CLIENT_TICK_MS          1000
#define CLIENT_SLEEP_MS         10000 /* a tick that late means that the machine slept */
#define CLIENT_PROBE_MS         5000
#define CLIENT_STABLE_MS        10000 /* a connection that lived so long restarts the back-off */
#define CLIENT_REFUSALS_MAX     4     /* new tokens in a row */
#define CLIENT_HEARTBEAT_MS     15000
#define CLIENT_HEARTBEAT_MS_MAX 3600000
#define CLIENT_REPLY_MS         20000
#define CLIENT_HINT_MS_MAX      300000
#define CLIENT_TOKEN_MS         15000
#define CLIENT_CONNECT_MS       15000
#define CLIENT_REQUEST_MS       30000
#define CLIENT_CLOSE_MS         10000
#define CLIENT_BACK_OFF_BASE_MS 300
#define CLIENT_BACK_OFF_MAX_MS  30000
#define CLIENT_TOPIC_BASE_MS    1000
#define CLIENT_PENDING_MAX_MS   5000 /* between attempts for a topic that does not exist yet */
#define CLIENT_RENEW_MAX_MS     10000
#define CLIENT_LOG_SILENCE_MS   60000 /* silence of the log's stream, which has heartbeats */

#define CLIENT_APPEND_ITEMS_MAX       1000
#define CLIENT_APPEND_BYTES_MAX       (8u << 20)
#define CLIENT_BATCH_ITEMS_MAX        200
#define CLIENT_BATCH_BYTES_MAX        (1u << 20)
#define CLIENT_BATCH_MS               5
#define CLIENT_APPEND_REFUSALS_MAX    3
#define CLIENT_APPEND_REQUESTS_MAX    4 /* at once */
#define CLIENT_EVENT_BYTES_MAX        (4u << 20)
#define CLIENT_ENTITY_BYTES_MAX       1024 /* the topic of an entity that events go to */
#define CLIENT_OUTBOX_LINES_BYTES_MAX (256u << 20)

#endif
