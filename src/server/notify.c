#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/decimal.h"

/* The size of the address; 0: the text is not an address. */
static socklen_t address_of(const char *text, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t size = text ? strlen(text) : 0;
    if (size < 2 || size >= sizeof(address->sun_path) || (text[0] != '/' && text[0] != '@'))
        return 0;
    memcpy(address->sun_path, text, size);
    bool is_abstract = text[0] == '@';
    if (is_abstract)
        address->sun_path[0] = '\0';
    /* The size must not include a NUL at the end of an abstract name: it would be part of the name.
     */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + !is_abstract);
}

bool notify_send(const char *lines) {
    struct sockaddr_un address;
    socklen_t address_size = address_of(getenv("NOTIFY_SOCKET"), &address);
    if (address_size == 0)
        return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    ssize_t sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                          address_size);
    close(fd);
    return sent == (ssize_t)strlen(lines);
}

uint64_t notify_watchdog_ms(void) {
    const char *interval = getenv("WATCHDOG_USEC");
    const char *wanted_pid = getenv("WATCHDOG_PID");
    uint64_t interval_us = 0;
    uint64_t pid = (uint64_t)getpid();
    if (!interval || !decimal_parse_u64(slice_of(interval), &interval_us))
        return 0;
    if (wanted_pid && (!decimal_parse_u64(slice_of(wanted_pid), &pid) || pid != (uint64_t)getpid()))
        return 0;
    return interval_us / 1000;
}
