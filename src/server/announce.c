#include "server/announce.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static void write_address(const struct server *server, char text[NODE_TEXT_BYTES], const char *host,
                          uint16_t port) {
    snprintf(text, NODE_TEXT_BYTES, strchr(host, ':') ? "%s[%s]:%u" : "%s%s:%u",
             server->http.tls ? "https://" : "", host, (unsigned)port);
}

static bool is_wildcard(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

void server_announce(struct server *server) {
    const struct config *config = &server->config;
    bool is_given = *config->advertise.host != '\0';
    const char *host = is_given ? config->advertise.host : config->bind.host;
    uint16_t port = is_given ? config->advertise.port : server->port;
    char address[NODE_TEXT_BYTES];
    char operator_address[NODE_TEXT_BYTES] = "";
    write_address(server, address, host, port);
    if (server->operator_port > 0)
        write_address(server, operator_address, is_given ? host : config->operator_bind.host,
                      server->operator_port);
    if (store_is_shared(server->store) && is_wildcard(host))
        log_event(LOG_WARN, "nodes.address_unknown", log_str("address", address),
                  log_str("effect", "other nodes cannot reach this one; set KHALA_ADVERTISE_ADDR"));
    nodes_set_address(server->nodes, address, operator_address);
    revoked_serve(&server->revoked);
    writer_beat_post(server->writer);
}
