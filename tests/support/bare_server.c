/* The least that a server can do, for tests that ask what a busy machine takes from any server.
 *
 *     bare_server FILE
 *
 * Prints the port that it listens on, and serves one connection. Each byte received is a request:
 * "r" is answered at once, "a" once another thread has appended a page to FILE and made it durable,
 * as in every server that commits for many clients. The answer is the same byte. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGE_SIZE 4096

static int file;
static int requests[2];
static int answers[2];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *append(void *unused) {
    static const char page[PAGE_SIZE];
    for (char request; read(requests[0], &request, 1) == 1;) {
        if (write(file, page, sizeof(page)) != sizeof(page) || fdatasync(file) != 0)
            fail("append");
        if (write(answers[1], &request, 1) != 1)
            fail("answer");
    }
    return unused;
}

static int listen_anywhere(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        fail("listen");
    printf("port %d\n", ntohs(address.sin_port));
    (void)fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    pthread_t writer;
    if (count != 2)
        return 2;
    file = open(arguments[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || pipe(requests) != 0 || pipe(answers) != 0 ||
        pthread_create(&writer, NULL, append, NULL) != 0)
        fail("start");
    int client = accept(listen_anywhere(), NULL, NULL);
    if (client < 0 || setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
        fail("accept");
    for (char request; read(client, &request, 1) == 1;) {
        if (request == 'a' &&
            (write(requests[1], &request, 1) != 1 || read(answers[0], &request, 1) != 1))
            fail("append");
        if (write(client, &request, 1) != 1)
            fail("answer");
    }
    return 0;
}
