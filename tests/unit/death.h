/* For tests of assertions: runs a function in a child process and returns whether it aborted. */
#ifndef DEATH_H
#define DEATH_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static inline bool aborts(void (*act)(void *user), void *user) {
    pid_t child = fork();
    if (child == 0) {
        /* The assertion's text and a core file would look like a failure in the results. */
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        act(user);
        _exit(0);
    }
    int result = 0;
    return child > 0 && waitpid(child, &result, 0) == child && WIFSIGNALED(result) &&
           WTERMSIG(result) == SIGABRT;
}

#endif
