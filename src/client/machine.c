#include "client/machine.h"

#include <assert.h>
#include <sys/random.h>

#define DOUBLINGS_MAX 20

const struct machine_cell *machine_step(const struct machine_table *table, unsigned state,
                                        unsigned input) {
    assert(state < table->state_count && input < table->input_count);
    return &table->cells[state * table->input_count + input];
}

void machine_give(struct machine *machine, unsigned input, const void *data) {
    assert(machine->waiting_count < MACHINE_WAITING_MAX);
    machine->waiting[machine->waiting_count++] = (struct machine_input){input, data};
    if (machine->is_running)
        return;
    machine->is_running = true;
    while (machine->waiting_count > 0) {
        struct machine_input first = machine->waiting[0];
        machine->waiting_count--;
        for (unsigned i = 0; i < machine->waiting_count; i++)
            machine->waiting[i] = machine->waiting[i + 1];
        const struct machine_cell *cell =
            machine_step(machine->table, machine->state, first.number);
        bool is_change = cell->next != machine->state;
        machine->state = cell->next;
        for (unsigned i = 0; i < cell->action_count; i++)
            machine->act(machine->user, cell->actions[i], first.data);
        if (is_change)
            machine->changed(machine->user);
    }
    machine->is_running = false;
}

uint64_t back_off_ms(unsigned attempt, int64_t hint_ms, double random, uint64_t base_ms,
                     uint64_t max_ms) {
    uint64_t whole = base_ms << (attempt < DOUBLINGS_MAX ? attempt : DOUBLINGS_MAX);
    if (hint_ms >= 0) {
        uint64_t hint = (uint64_t)hint_ms;
        uint64_t spread = hint / 4 > base_ms ? hint / 4 : base_ms;
        return hint + (uint64_t)(random * (double)spread);
    }
    if (whole > max_ms)
        whole = max_ms;
    return whole / 2 + (uint64_t)(random * (double)whole / 2);
}

double back_off_chance(void) {
    uint32_t number = 0;
    /* Without random bytes the wait is the shortest. */
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        number = 0;
    return (double)number / 4294967296.0;
}
