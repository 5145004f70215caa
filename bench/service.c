#include "service.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define STARTS_TRIES 1000
#define TRY_MS       10

/* ---- PostgreSQL ------------------------------------------------------------------------------ */

void bench_postgres_start(struct bench_service *service) {
    int commands[2], answers[2];
    size_t size = 0;
    if (pipe2(commands, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
        bench_fail("no pipe for PostgreSQL");
    service->pid = fork();
    if (service->pid == 0) {
        dup2(commands[0], 0);
        dup2(answers[1], 1);
        execl(BENCH_SOURCE_DIR "/tests/support/postgres", "postgres", "fsync=on",
              "full_page_writes=on", (char *)NULL);
        _exit(127);
    }
    close(commands[0]);
    close(answers[1]);
    service->control = commands[1];
    while (size < sizeof(service->url) - 1 && read(answers[0], service->url + size, 1) == 1 &&
           service->url[size] != '\n')
        size++;
    close(answers[0]);
    service->url[size] = '\0';
    if (size == 0)
        bench_fail("PostgreSQL does not start: run scripts/setup test");
}

void bench_postgres_create(const struct bench_service *service, const char *name, char url[160]) {
    char command[320];
    snprintf(command, sizeof(command), "psql -XqAt -d %s/postgres -c 'CREATE DATABASE %s'",
             service->url, name);
    if (system(command) != 0)
        bench_fail("cannot create the database %s", name);
    snprintf(url, 160, "%s/%s", service->url, name);
}

/* ---- the others ------------------------------------------------------------------------------ */

static uint16_t free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        bench_fail("no free port");
    close(fd);
    return ntohs(address.sin_port);
}

static bool accepts(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_accepted = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_accepted;
}

#define ARGUMENTS_MAX 32

struct service_program {
    const char *name;
    const char *program;
    const char *address_option;
};

static const struct service_program programs[] = {
    {"redis", "redis-server", "--bind"},
    {"nats", "nats-server", "--addr"},
    {"nats-2.15", BENCH_TOOL("nats-server"), "--addr"},
    {"durable-streams", BENCH_TOOL("durable-streams-server"), "--host"},
    {"centrifugo", BENCH_TOOL("centrifugo"), "--address"},
};

static const struct service_program *program_of(const char *name) {
    for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
        if (strcmp(programs[i].name, name) == 0)
            return &programs[i];
    bench_fail("no service %s", name);
}

static void service_exec(const struct bench_service *service, const struct service_program *program,
                         const char *const *more) {
    char port[16];
    const char *arguments[ARGUMENTS_MAX] = {program->program, program->address_option, "127.0.0.1",
                                            "--port", port};
    char *given[ARGUMENTS_MAX];
    size_t count = 5;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    snprintf(port, sizeof(port), "%u", service->port);
    while (*more && count < ARGUMENTS_MAX - 1)
        arguments[count++] = *more++;
    memcpy(given, arguments, sizeof(given));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(nothing, 1);
    dup2(nothing, 2);
    if (chdir(service->folder) == 0)
        execvp(program->program, given);
    _exit(127);
}

bool bench_program_exists(const char *program) {
    char command[600];
    snprintf(command, sizeof(command), "command -v '%s' >/dev/null 2>&1", program);
    return system(command) == 0;
}

bool bench_service_start(struct bench_service *service, const char *name,
                         const char *const *arguments) {
    const struct service_program *program = program_of(name);
    if (!bench_program_exists(program->program))
        return false;
    service->port = free_port();
    snprintf(service->url, sizeof(service->url), "%s://127.0.0.1:%u", name, service->port);
    bench_folder(service->folder);
    service->control = -1;
    service->pid = fork();
    if (service->pid == 0)
        service_exec(service, program, arguments);
    for (int tries = 0; !accepts(service->port); tries++) {
        if (tries == STARTS_TRIES)
            bench_fail("%s does not start", name);
        poll(NULL, 0, TRY_MS);
    }
    return true;
}

void bench_service_stop(struct bench_service *service) {
    if (service->control >= 0)
        close(service->control);
    else
        kill(service->pid, SIGTERM);
    waitpid(service->pid, NULL, 0);
    if (service->control < 0)
        bench_folder_remove(service->folder);
}
