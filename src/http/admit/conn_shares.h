/* Shares: how many connections each principal and each address has, over all loops.
 * Thread: any; a lock guards the table. A share belongs to its connection's loop.
 * Memory: one entry for each principal or address that has a connection. A share is a member of
 * its connection, and must be all zeroes before its first use.
 * Errors: STATUS_TOO_MANY_CONNECTIONS at the limit, STATUS_OUT_OF_MEMORY. Both change nothing.
 * Invariant: a share near the end of its token no longer counts, so that a client can renew its
 * connections at the limit. Counted or not, a principal has at most twice as many as the limit. */
#ifndef HTTP_ADMIT_CONN_SHARES_H
#define HTTP_ADMIT_CONN_SHARES_H

#include <sys/socket.h>
#include <uv.h>

#include "auth/principal.h"
#include "base/list.h"
#include "base/map.h"

struct share_holder;

struct conn_shares {
    bool is_open;
    uv_mutex_t lock;
    struct map holders;
    size_t principal_max;
    size_t address_max; /* 0: no limit */
};

struct conn_share {
    struct share_holder *holder; /* NULL: none */
};

/* A share of a principal stops to count before its token ends. */
struct principal_share {
    struct conn_share share;
    struct list_node node; /* in the holder's shares */
    uint64_t counts_until_ms;
};

MUST_CHECK enum status conn_shares_init(struct conn_shares *shares);
/* Also for shares that could not be initialised. */
void conn_shares_release(struct conn_shares *shares);

/* The address of a peer: of IPv6 its network of 64 bits, which usually has one owner. */
#define ADDRESS_KEY_BYTES_MAX 9
struct slice address_key(const struct sockaddr *address, char key[ADDRESS_KEY_BYTES_MAX]);

/* The connection is the principal's from now on, and no longer that of an earlier one. */
MUST_CHECK enum status conn_share_take_principal(struct conn_shares *shares,
                                                 struct principal_share *share,
                                                 const struct principal *principal,
                                                 uint64_t now_ms);
/* The same for the address of the peer. */
MUST_CHECK enum status conn_share_take_address(struct conn_shares *shares, struct conn_share *share,
                                               const struct sockaddr *address);
void conn_share_return(struct conn_shares *shares, struct conn_share *share);
void conn_share_return_principal(struct conn_shares *shares, struct principal_share *share);

#endif
