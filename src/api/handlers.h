/* The handlers behind the routes, one file for each subject.
 * Thread: each handler runs on its connection's loop, with the whole body; a stream's handler with
 * the head.
 * Memory: the exchange owns the handler's state (exchange->work).
 * Errors: a handler answers its own errors.
 * Invariant: each handler answers its exchange once, at once or in a later turn of the same
 * loop. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

struct deadline;
struct exchange;

/* health.c */
void handle_live(struct exchange *exchange);
void handle_ready(struct exchange *exchange);

/* append.c */
void handle_run_create(struct exchange *exchange);
void handle_run_append(struct exchange *exchange);
void handle_worker_create(struct exchange *exchange);
void handle_worker_heartbeat(struct exchange *exchange);
void handle_worker_status(struct exchange *exchange);
void handle_worker_append(struct exchange *exchange);
void handle_topic_append(struct exchange *exchange);
void handle_notification(struct exchange *exchange);
void handle_event_ingest(struct exchange *exchange);
void handle_event_import(struct exchange *exchange);

/* audit.c */
void handle_audit_list(struct exchange *exchange);
/* export.c */
void handle_audit_export(struct exchange *exchange);

/* cursors.c */
void handle_cursors_plan(struct exchange *exchange);

/* batch.c; takes the body in pieces */
void handle_batch(struct exchange *exchange);
/* The callback of DEADLINE_BATCH, whose delay is the request timeout. */
void batch_expired(struct deadline *deadline);
/* The callback of DEADLINE_BATCH_PEER. */
#define BATCH_PEER_MS 1000
void batch_peer_check(struct deadline *deadline);

/* entities.c */
void handle_run(struct exchange *exchange);
void handle_run_receipt(struct exchange *exchange);
void handle_worker(struct exchange *exchange);

/* entity_lists.c; own: of the token */
void handle_runs(struct exchange *exchange);
void handle_workers(struct exchange *exchange);
void handle_own_runs(struct exchange *exchange);
void handle_own_workers(struct exchange *exchange);
/* tree.c */
void handle_run_tree(struct exchange *exchange);

/* lists.c */
void handle_topics(struct exchange *exchange);
void handle_topic_policy(struct exchange *exchange);
void handle_topic(struct exchange *exchange);
/* connections.c */
void handle_connections(struct exchange *exchange);
void handle_principals(struct exchange *exchange);

/* events.c */
void handle_run_events(struct exchange *exchange);
void handle_run_replay(struct exchange *exchange);
void handle_worker_events(struct exchange *exchange);
void handle_topic_events(struct exchange *exchange);

/* projectors.c */
void handle_checkpoint(struct exchange *exchange);
void handle_run_summary(struct exchange *exchange);
void handle_worker_summary(struct exchange *exchange);
void handle_drift(struct exchange *exchange);

/* reproject.c; sends its answer in pieces */
void handle_reproject(struct exchange *exchange);

/* retention.c; its answer may take long */
void handle_retention_run(struct exchange *exchange);

/* token.c */
void handle_token(struct exchange *exchange);

/* snapshot.c; sends its answer in pieces */
void handle_snapshot(struct exchange *exchange);
/* snapshots.c */
void handle_nodes(struct exchange *exchange);
void handle_snapshots(struct exchange *exchange);
/* metrics.c */
void handle_metrics(struct exchange *exchange);
/* fanout.c */
void handle_fanout_hooks(struct exchange *exchange);
void handle_fanout_metrics(struct exchange *exchange);
/* why.c */
void handle_why(struct exchange *exchange);
/* quotas.c */
void handle_quota_get(struct exchange *exchange);
void handle_quota_put(struct exchange *exchange);
void handle_quota_delete(struct exchange *exchange);
void handle_keys(struct exchange *exchange);
void handle_key_add(struct exchange *exchange);
void handle_key_rotate(struct exchange *exchange);
void handle_key_remove(struct exchange *exchange);
void handle_quotas(struct exchange *exchange);
void handle_usage(struct exchange *exchange);
/* revoke.c */
void handle_revoke(struct exchange *exchange);

#endif
