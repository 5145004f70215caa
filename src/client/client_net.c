#include "client/client_net.h"

#include <assert.h>

#include "client/client_limits.h"

static void on_sockets_closed(void *user) {
    struct client_net *net = user;
    net->emptied(net->user);
}

void client_net_hold(struct client_net *net) {
    net->hold_count++;
}

void client_net_let_go(struct client_net *net) {
    assert(net->hold_count > 0);
    if (--net->hold_count == 0)
        uv_sockets_close(&net->sockets, on_sockets_closed, net);
}

static void on_freed(void *user) {
    client_net_let_go(user);
}

enum status client_net_open(struct client_net *net, uv_loop_t *loop, const char *ca_file) {
    net->loop = loop;
    outbound_group_init(&net->group,
                        &(struct outbound_group){.set = &net->sockets.set,
                                                 .ca_file = ca_file,
                                                 .unsent_bytes_max = CLIENT_OUT_BYTES_MAX,
                                                 .user = net,
                                                 .freed = on_freed});
    return uv_sockets_open(&net->sockets, loop);
}

enum status client_net_connect(struct client_net *net, struct outbound **outbound,
                               const struct outbound_events *events, void *user) {
    enum status status = outbound_open(outbound, &net->group, &net->target, events, user);
    if (status == STATUS_OK)
        client_net_hold(net);
    return status;
}
