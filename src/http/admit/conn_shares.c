#include "http/admit/conn_shares.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>

/* A connection whose token ends sooner does not count. */
#define RENEWAL_MS 60000
/* Of an IPv6 network; the kind of the address comes before it. */
#define NETWORK_BYTES (ADDRESS_KEY_BYTES_MAX - 1)

struct share_holder {
    struct list shares; /* the shares of a principal */
    size_t count;
    size_t key_size;
    char key[];
};

struct share_request {
    struct slice key;
    size_t count_max;
    struct principal_share *principal; /* NULL: a share of an address, which always counts */
    uint64_t now_ms;
};

enum status conn_shares_init(struct conn_shares *shares) {
    map_init(&shares->holders, MAP_COUNT_MAX);
    shares->is_open = uv_mutex_init(&shares->lock) == 0;
    return shares->is_open ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

void conn_shares_release(struct conn_shares *shares) {
    if (!shares->is_open)
        return;
    assert(shares->holders.count == 0);
    map_release(&shares->holders);
    uv_mutex_destroy(&shares->lock);
}

static struct slice key_of(const struct share_holder *holder) {
    return (struct slice){holder->key, holder->key_size};
}

/* The shares are walked only at the limit, and are at most twice as many. */
static bool has_room(const struct share_holder *holder, const struct share_request *request) {
    size_t counted = 0;
    if (holder->count < request->count_max)
        return true;
    if (!request->principal || holder->count >= 2 * request->count_max)
        return false;
    for (struct list_node *node = list_first(&holder->shares); node;
         node = list_next(&holder->shares, node))
        counted +=
            container_of(node, struct principal_share, node)->counts_until_ms > request->now_ms;
    return counted < request->count_max;
}

static void detach(struct conn_shares *shares, struct conn_share *share,
                   struct principal_share *principal) {
    struct share_holder *holder = share->holder;
    if (!holder)
        return;
    if (principal)
        list_remove(&principal->node);
    share->holder = NULL;
    if (--holder->count > 0)
        return;
    (void)map_remove(&shares->holders, key_of(holder));
    free(holder);
}

static enum status holder_new(struct conn_shares *shares, struct slice key,
                              struct share_holder **made) {
    struct share_holder *holder = malloc(sizeof(*holder) + key.size);
    if (!holder)
        return STATUS_OUT_OF_MEMORY;
    list_init(&holder->shares);
    holder->count = 0;
    holder->key_size = key.size;
    memcpy(holder->key, key.data, key.size);
    enum status status = map_insert(&shares->holders, key_of(holder), holder);
    if (status != STATUS_OK)
        free(holder);
    else
        *made = holder;
    return status;
}

static enum status take_locked(struct conn_shares *shares, struct conn_share *share,
                               const struct share_request *request) {
    struct share_holder *holder = map_find(&shares->holders, request->key);
    enum status status = STATUS_OK;
    if (holder && !has_room(holder, request))
        return STATUS_TOO_MANY_CONNECTIONS;
    if (!holder)
        status = holder_new(shares, request->key, &holder);
    if (status != STATUS_OK)
        return status;
    detach(shares, share, request->principal);
    if (request->principal)
        list_push_back(&holder->shares, &request->principal->node);
    holder->count++;
    share->holder = holder;
    return STATUS_OK;
}

/* The key of a holder does not change while the share is its own, so it is read without the lock.
 */
static bool is_held(const struct conn_share *share, struct slice key) {
    return share->holder && slice_equal(key_of(share->holder), key);
}

enum status conn_share_take_principal(struct conn_shares *shares, struct principal_share *share,
                                      const struct principal *principal, uint64_t now_ms) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    uint64_t end_ms = principal->expires_at_ms;
    uint64_t until_ms = end_ms > RENEWAL_MS ? end_ms - RENEWAL_MS : UINT64_MAX;
    enum status status = STATUS_OK;
    const struct share_request request = {
        .key = principal_key(principal, key),
        .count_max = shares->principal_max,
        .principal = share,
        .now_ms = now_ms,
    };
    bool is_same = is_held(&share->share, request.key);
    if (is_same && share->counts_until_ms == until_ms)
        return STATUS_OK;
    uv_mutex_lock(&shares->lock);
    if (!is_same)
        status = take_locked(shares, &share->share, &request);
    if (status == STATUS_OK)
        share->counts_until_ms = until_ms;
    uv_mutex_unlock(&shares->lock);
    return status;
}

struct slice address_key(const struct sockaddr *address, char key[ADDRESS_KEY_BYTES_MAX]) {
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    const uint8_t *bytes = six->s6_addr;
    size_t size = NETWORK_BYTES;
    key[0] = '6';
    if (address->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr;
        size = sizeof(struct in_addr);
    } else if (IN6_IS_ADDR_V4MAPPED(six)) {
        bytes += sizeof(*six) - sizeof(struct in_addr);
        size = sizeof(struct in_addr);
    }
    if (size == sizeof(struct in_addr))
        key[0] = '4';
    memcpy(key + 1, bytes, size);
    return (struct slice){key, 1 + size};
}

enum status conn_share_take_address(struct conn_shares *shares, struct conn_share *share,
                                    const struct sockaddr *address) {
    char key[ADDRESS_KEY_BYTES_MAX];
    if (shares->address_max == 0)
        return STATUS_OK;
    const struct share_request request = {.key = address_key(address, key),
                                          .count_max = shares->address_max};
    if (is_held(share, request.key))
        return STATUS_OK;
    uv_mutex_lock(&shares->lock);
    enum status status = take_locked(shares, share, &request);
    uv_mutex_unlock(&shares->lock);
    return status;
}

static void give_back(struct conn_shares *shares, struct conn_share *share,
                      struct principal_share *principal) {
    if (!share->holder)
        return;
    uv_mutex_lock(&shares->lock);
    detach(shares, share, principal);
    uv_mutex_unlock(&shares->lock);
}

void conn_share_return(struct conn_shares *shares, struct conn_share *share) {
    give_back(shares, share, NULL);
}

void conn_share_return_principal(struct conn_shares *shares, struct principal_share *share) {
    give_back(shares, &share->share, share);
}
