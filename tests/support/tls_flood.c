/* Clients that flood a server with TLS records, for tests.
 *
 *     tls_flood HOST PORT CONNECTIONS KIND RECORDS
 *
 * KIND is "updates", "requests" (KeyUpdates that ask for one in return) or "bytes" (HTTP requests
 * in records of one byte). Each connection shakes hands and encrypts its records in memory, so that
 * the flood costs this program less than the server. "ready" is printed then. After a line of
 * standard input all connections send what they have, and "sent N ended M" is printed: the
 * connections whose records all left, and those that the server ended before or within a second
 * after. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1000
#define SETTLE_MS       1000

struct flooder {
    SSL *ssl;
    int fd;
    char *bytes;
    long left;
};

static struct flooder flooders[CONNECTIONS_MAX];
static struct pollfd polled[CONNECTIONS_MAX];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void open_one(struct flooder *one, SSL_CTX *rules, const struct sockaddr_in *address) {
    one->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one->fd < 0 || connect(one->fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
        fail("connect");
    one->ssl = SSL_new(rules);
    if (!one->ssl || SSL_set_fd(one->ssl, one->fd) != 1 || SSL_connect(one->ssl) != 1)
        fail("handshake");
}

static void encrypt(struct flooder *one, const char *kind, int records) {
    static const char request[] = "GET /healthz/live HTTP/1.1\r\nHost: khala\r\n\r\n";
    BIO *memory = BIO_new(BIO_s_mem());
    if (!memory)
        fail("memory");
    SSL_set0_wbio(one->ssl, memory);
    for (int i = 0; i < records; i++) {
        if (strcmp(kind, "bytes") == 0) {
            if (SSL_write(one->ssl, request + (unsigned)i % strlen(request), 1) != 1)
                fail("record");
        } else if (SSL_key_update(one->ssl, strcmp(kind, "requests") == 0
                                                ? SSL_KEY_UPDATE_REQUESTED
                                                : SSL_KEY_UPDATE_NOT_REQUESTED) != 1 ||
                   SSL_do_handshake(one->ssl) != 1) {
            fail("KeyUpdate");
        }
    }
    one->left = BIO_get_mem_data(memory, &one->bytes);
    if (fcntl(one->fd, F_SETFL, O_NONBLOCK) != 0)
        fail("fcntl");
}

/* Returns whether the server has ended the connection. */
static int step(struct flooder *one, short events) {
    char answer[4096];
    if (events & (POLLERR | POLLHUP))
        return 1;
    if (events & POLLIN) {
        ssize_t size = recv(one->fd, answer, sizeof(answer), 0);
        if (size == 0 || (size < 0 && errno != EAGAIN))
            return 1;
    }
    if (events & POLLOUT && one->left > 0) {
        ssize_t size = send(one->fd, one->bytes, (size_t)one->left, MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN)
            return 1;
        one->bytes += size > 0 ? size : 0;
        one->left -= size > 0 ? size : 0;
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 6)
        return 2;
    int connections = atoi(arguments[3]);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(arguments[2]))};
    SSL_CTX *rules = SSL_CTX_new(TLS_client_method());
    if (connections > CONNECTIONS_MAX || inet_pton(AF_INET, arguments[1], &address.sin_addr) != 1)
        return 2;
    (void)signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < connections; i++) {
        open_one(&flooders[i], rules, &address);
        encrypt(&flooders[i], arguments[4], atoi(arguments[5]));
    }
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    int ended = 0;
    int sent = 0;
    int left = connections;
    while (left > 0) {
        left = 0;
        for (int i = 0; i < connections; i++) {
            short wanted = flooders[i].left > 0 ? POLLIN | POLLOUT : POLLIN;
            polled[i] = (struct pollfd){.fd = flooders[i].fd, .events = wanted};
            left += flooders[i].fd >= 0 && flooders[i].left > 0;
        }
        /* Those that sent everything are watched for a while: the server may end them yet. */
        int ready = poll(polled, (nfds_t)connections, SETTLE_MS);
        if (ready == 0)
            break;
        for (int i = 0; i < connections; i++) {
            if (flooders[i].fd < 0 || polled[i].revents == 0)
                continue;
            if (step(&flooders[i], polled[i].revents)) {
                close(flooders[i].fd);
                flooders[i].fd = -1;
                ended++;
            }
        }
        left += ready > 0;
    }
    for (int i = 0; i < connections; i++)
        sent += flooders[i].left == 0;
    printf("sent %d ended %d\n", sent, ended);
    return 0;
}
