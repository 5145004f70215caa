/* Records every call and return of the server's functions, for tools/walk.mjs. The file that
 * KHALA_TRACE_FILE names is mapped and shared with that program, which turns the recording on and
 * off by its first word. Calls of all threads are in one order. A full file drops what follows.
 * That program links it into a khala that is compiled with -finstrument-functions. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CALLS_MAX ((size_t)1 << 20)
#define IS_RETURN ((uint64_t)1 << 63) /* a bit of the word of the thread */

struct trace {
    _Atomic uint64_t is_on;
    _Atomic uint64_t count;
    struct {
        uint64_t function;
        uint64_t thread;
    } calls[CALLS_MAX];
};

void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

static struct trace *trace;

__attribute__((constructor, no_instrument_function)) static void trace_open(void) {
    const char *path = getenv("KHALA_TRACE_FILE");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0)
        return;
    if (ftruncate(file, sizeof(struct trace)) == 0) {
        void *memory = mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        trace = memory == MAP_FAILED ? NULL : memory;
    }
    close(file);
}

__attribute__((no_instrument_function)) static void note(void *function, uint64_t mark) {
    if (!trace || !atomic_load_explicit(&trace->is_on, memory_order_relaxed))
        return;
    uint64_t index = atomic_fetch_add(&trace->count, 1);
    if (index >= CALLS_MAX)
        return;
    trace->calls[index].thread = (uint64_t)gettid() | mark;
    trace->calls[index].function = (uint64_t)function;
}

__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function,
                                                                      void *caller) {
    (void)caller;
    note(function, 0);
}

__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *caller) {
    (void)caller;
    note(function, IS_RETURN);
}
