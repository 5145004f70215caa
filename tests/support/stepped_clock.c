/* Loaded before the binary (LD_PRELOAD), so that a test can step the wall clock while it runs: the
 * file that STEPPED_CLOCK_FILE names holds by how many milliseconds, a signed number of eight
 * bytes, and is looked at with every reading. Monotonic time is the system's. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS_PER_S  1000
#define NS_PER_MS 1000000
#define NS_PER_S  1000000000

static const _Atomic int64_t *step_ms;

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("STEPPED_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *memory = mmap(NULL, sizeof(*step_ms), PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        abort();
    step_ms = memory;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, id, now);
    if (failed || id != CLOCK_REALTIME || !step_ms)
        return (int)failed;
    int64_t moved_ms = atomic_load(step_ms);
    now->tv_sec += moved_ms / MS_PER_S;
    now->tv_nsec += moved_ms % MS_PER_S * NS_PER_MS;
    if (now->tv_nsec < 0 || now->tv_nsec >= NS_PER_S) {
        int carry = now->tv_nsec < 0 ? -1 : 1;
        now->tv_sec += carry;
        now->tv_nsec -= (long)carry * NS_PER_S;
    }
    return 0;
}
