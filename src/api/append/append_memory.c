#include "api/append/append_memory.h"

#include <stdlib.h>

#include "api/append/append_answer.h"
#include "base/limits.h"

void append_memory_init(struct append_memory *memory, size_t body_bytes_max) {
    *memory = (struct append_memory){.kept = NULL};
    append_parser_init(&memory->parser, body_bytes_max);
    buffer_init(&memory->answer, APPEND_ANSWER_BYTES_MAX);
}

static void work_free(struct append_work *work) {
    arena_release(&work->group.arena);
    free(work);
}

void append_memory_release(struct append_memory *memory) {
    while (memory->kept) {
        struct append_work *work = memory->kept;
        memory->kept = work->next;
        work_free(work);
    }
    buffer_release(&memory->answer);
    append_parser_release(&memory->parser);
}

struct append_work *append_work_take(struct append_memory *memory) {
    struct append_work *work = memory->kept;
    if (!work) {
        work = malloc(sizeof(*work));
        if (work)
            arena_init(&work->group.arena, APPEND_ARENA_BYTES_MAX);
    } else {
        memory->kept = work->next;
        memory->kept_count--;
    }
    if (!work)
        return NULL;
    work->call = (struct exchange_call){.exchange = NULL};
    work->group = (struct append_group){.arena = work->group.arena};
    return work;
}

void append_work_give(struct append_memory *memory, struct append_work *work) {
    arena_reset(&work->group.arena);
    if (memory->kept_count == APPEND_WORKS_KEPT ||
        work->group.arena.bytes_held > APPEND_WORK_KEPT_BYTES) {
        work_free(work);
        return;
    }
    work->next = memory->kept;
    memory->kept = work;
    memory->kept_count++;
}
