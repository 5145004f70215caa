/* Linked with --wrap=malloc, --wrap=calloc and --wrap=realloc: the allocation with the number
 * FAIL_ALLOCATION fails. At its end the program prints how many there were. Allocations of
 * libraries that are linked dynamically do not count. It also prints how often it synced a file. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static atomic_ulong allocations;
static atomic_ulong syncs;
static unsigned long failing;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAIL_ALLOCATION");
    failing = text ? strtoul(text, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void) {
    printf("{\"allocations\":%lu,\"syncs\":%lu}\n", atomic_load(&allocations), atomic_load(&syncs));
}

static bool fails(void) {
    return atomic_fetch_add(&allocations, 1) + 1 == failing;
}

/* Found before the one of the C library, also by libuv. */
int fdatasync(int fd) {
    atomic_fetch_add(&syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}
