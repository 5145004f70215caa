/* What a server does with the commits of other nodes, and its beat: the row of the node, the
 * revocations, and whether the database still has the history that this process delivers.
 * The writer's thread; following_end from any thread. Memory: points to parts of the server, which
 * live longer than the writer. Errors: a beat that fails is counted and repeated by the next one.
 * After the end was set nothing of another epoch is announced.
 */
#ifndef SERVER_FOLLOWING_H
#define SERVER_FOLLOWING_H

#include "authority/follow/follow.h"
#include "cluster/nodes.h"
#include "delivery/topic_activity.h"
#include "http/admit/operator_keys.h"
#include "hub/hub.h"
#include "server/revoked.h"

/* Why a running server must end. */
enum following_end {
    FOLLOWING_GOES_ON,
    FOLLOWING_EPOCH_OLD,  /* the store has another epoch: the server must start again */
    FOLLOWING_SCHEMA_NEW, /* a newer build changed the schema, and this one cannot read it */
};

struct following {
    struct hub *hub;
    struct topic_activity *activity;
    struct nodes *nodes;
    struct revoked *revoked;
    struct quota_table *quotas;
    struct operator_keys *operator_keys;
    const char *folder;            /* of the keys */
    struct writer *_Atomic writer; /* NULL until it has started: its thread beats before that */
    const char *epoch;             /* that this process delivers */
    uint64_t schema_version;       /* that this build knows */
    uint64_t keys_read_ms; /* when the signing keys were read last, by the clock of the beat */
    bool is_schema_newer;  /* the store has a newer one; it was logged */
    _Atomic enum following_end end;
};

/* The hooks of the writer. */
struct follow_hooks following_hooks(struct following *following);
enum following_end following_end(const struct following *following);

#endif
