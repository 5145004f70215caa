#include "server/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "test.h"

static char folder[] = "/tmp/khala-notify-XXXXXX";
static char path[sizeof(folder) + 8];

static int listen_at(const char *name, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    memcpy(address.sun_path, name, size);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    return fd;
}

static void heard(int fd, const char *lines) {
    char text[256] = "";
    assert_int_equal(recv(fd, text, sizeof(text), 0), strlen(lines));
    assert_string_equal(text, lines);
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/socket", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void a_socket_with_a_path_receives_the_message(void **state) {
    (void)state;
    int fd = listen_at(path, strlen(path) + 1);
    setenv("NOTIFY_SOCKET", path, 1);
    assert_true(notify_send("READY=1\nSTATUS=Serves"));
    heard(fd, "READY=1\nSTATUS=Serves");
    close(fd);
}

static void an_abstract_socket_receives_the_message(void **state) {
    (void)state;
    char name[64] = "";
    int size = snprintf(name + 1, sizeof(name) - 1, "khala-notify-%ld", (long)getpid()) + 1;
    int fd = listen_at(name, (size_t)size);
    name[0] = '@';
    setenv("NOTIFY_SOCKET", name, 1);
    assert_true(notify_send("STOPPING=1"));
    heard(fd, "STOPPING=1");
    close(fd);
}

static void without_a_listener_sending_returns_false(void **state) {
    (void)state;
    char long_name[200];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[0] = '/';
    long_name[sizeof(long_name) - 1] = '\0';
    const char *names[] = {"", "/", "@", "relative", "vsock:2:1", "/nonexistent/socket", long_name};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        setenv("NOTIFY_SOCKET", names[i], 1);
        assert_false(notify_send("READY=1"));
    }
    unsetenv("NOTIFY_SOCKET");
    assert_false(notify_send("READY=1"));
}

static void the_watchdog_applies_only_to_the_named_process(void **state) {
    (void)state;
    char pid[24];
    snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    assert_int_equal(notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(notify_watchdog_ms(), 30000);
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(notify_watchdog_ms(), 30000);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(notify_watchdog_ms(), 0);
    setenv("WATCHDOG_PID", pid, 1);
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_int_equal(notify_watchdog_ms(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_with_a_path_receives_the_message),
        cmocka_unit_test(an_abstract_socket_receives_the_message),
        cmocka_unit_test(without_a_listener_sending_returns_false),
        cmocka_unit_test(the_watchdog_applies_only_to_the_named_process),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
