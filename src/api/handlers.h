/* The handlers behind the routes, a file a subject. Each runs on its connection's loop with the
 * whole body read (a stream's with the head), and answers its exchange once, now or later from a
 * task on the same loop. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

struct exchange;

void handle_live(struct exchange *exchange);
void handle_ready(struct exchange *exchange);

/* handle_append.c */
void handle_run_create(struct exchange *exchange);
void handle_run_append(struct exchange *exchange);
void handle_worker_create(struct exchange *exchange);
void handle_worker_heartbeat(struct exchange *exchange);
void handle_worker_status(struct exchange *exchange);
void handle_worker_append(struct exchange *exchange);
void handle_topic_append(struct exchange *exchange);
void handle_notification(struct exchange *exchange);
void handle_event_ingest(struct exchange *exchange);

/* handle_audit.c */
void handle_audit_list(struct exchange *exchange);
/* handle_export.c */
void handle_audit_export(struct exchange *exchange);

/* handle_cursors.c */
#define CURSORS_PLAN_BYTES_MAX (1u << 20)
void handle_cursors_plan(struct exchange *exchange);

/* handle_batch.c; a stream */
void handle_batch(struct exchange *exchange);

/* handle_entities.c */
void handle_run(struct exchange *exchange);
void handle_run_receipt(struct exchange *exchange);
void handle_worker(struct exchange *exchange);

/* handle_events.c */
void handle_run_events(struct exchange *exchange);
void handle_run_replay(struct exchange *exchange);
void handle_worker_events(struct exchange *exchange);
void handle_topic_events(struct exchange *exchange);

/* handle_projectors.c */
void handle_checkpoint(struct exchange *exchange);
void handle_run_summary(struct exchange *exchange);
void handle_worker_summary(struct exchange *exchange);
void handle_drift(struct exchange *exchange);

/* handle_reproject.c; its answer comes in pieces */
void handle_reproject(struct exchange *exchange);

/* handle_retention.c; its answer may be long in coming */
void handle_retention_run(struct exchange *exchange);

/* handle_token.c */
void handle_token(struct exchange *exchange);

/* handle_snapshot.c; its answer comes in pieces */
void handle_snapshot(struct exchange *exchange);
/* handle_snapshots.c */
void handle_snapshots(struct exchange *exchange);
/* handle_metrics.c */
void handle_metrics(struct exchange *exchange);
/* handle_fanout.c */
void handle_fanout_hooks(struct exchange *exchange);
void handle_fanout_metrics(struct exchange *exchange);
/* handle_why.c */
void handle_why(struct exchange *exchange);
/* handle_revoke.c */
void handle_revoke(struct exchange *exchange);

#endif
