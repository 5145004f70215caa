/* What a server does with the commits of other nodes, and its beat: the row of the node, the
 * revocations and quotas of other nodes, rotated keys, and whether the database still has the
 * history that this process delivers.
 * Thread: the writer's; a sweep runs on the loops; following_end from any thread.
 * Memory: points to parts of the server, which live longer than the writer. One sweep at a time.
 * Errors: the next beat repeats what failed. Revocations that cannot be read are not fresh.
 * Invariant: after the end was set nothing of another epoch is announced. The row of a node
 * confirms a revocation only when nothing is delivered to its principals any more. */
#ifndef SERVER_FOLLOWING_H
#define SERVER_FOLLOWING_H

#include <pthread.h>

#include "authority/writer.h"
#include "cluster/follow.h"
#include "cluster/nodes.h"
#include "delivery/topic_activity.h"
#include "http/admit/operator_keys.h"
#include "http/conn_walk.h"
#include "hub/hub.h"

/* Ends the connections of principals that other nodes revoked, and of operator keys that have
 * ended.
 */
struct revoked {
    struct http *http;
    struct writer *_Atomic writer; /* set before the loops start */
    uint64_t read_serial;          /* the last revocation in memory; for the writer's thread */
    uint64_t sweep_serial;         /* the last revocation of the sweep under way */
    uint64_t sweep_boot_ms;
    pthread_mutex_t lock;   /* held while a sweep is posted */
    atomic_bool is_serving; /* all loops run */
    atomic_bool is_sweeping;
    _Atomic uint64_t swept_serial; /* the last revocation in force on this node */
    struct sweep sweep;
};

/* Before the first client: loads all revocations of the store. */
MUST_CHECK enum status revoked_load(struct revoked *revoked, struct http *http,
                                    struct store *store);
/* All loops run: they can be swept from now on. */
void revoked_serve(struct revoked *revoked);
/* On the main thread, for a store without beats, which do the same: ends the connections of
 * operator keys that have ended since the last call. */
void revoked_check_keys(struct revoked *revoked);
/* The loops have ended: after this call no sweep is posted to them. */
void revoked_stop(struct revoked *revoked);

/* Why a running server must end. */
enum following_end {
    FOLLOWING_GOES_ON,
    FOLLOWING_EPOCH_OLD,  /* the store has another epoch: the server must restart */
    FOLLOWING_SCHEMA_NEW, /* a newer build changed the schema, and this one cannot read it */
};

struct following {
    struct hub *hub;
    struct topic_activity *activity;
    struct nodes *nodes;
    struct revoked *revoked;
    struct quota_table *quotas;
    struct operator_keys *operator_keys;
    const char *folder;            /* the folder of the keys */
    struct writer *_Atomic writer; /* NULL until it has started: its thread beats before that */
    const char *epoch;             /* the epoch that this process delivers */
    uint64_t schema_version;       /* the schema that this build knows */
    uint64_t keys_read_ms; /* when the signing keys were read last, by the clock of the beat */
    bool is_schema_newer;  /* the store has a newer one; it was logged */
    _Atomic enum following_end end;
};

/* The hooks of the writer. */
struct follow_hooks following_hooks(struct following *following);
enum following_end following_end(const struct following *following);

#endif
