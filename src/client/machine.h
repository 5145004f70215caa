/* Runs a machine of spec/client_states.json: the connection of a client, or one of its topics.
 * Thread: that of the client's loop.
 * Memory: none; the data of an input must live until machine_give returns.
 * Errors: more waiting inputs than MACHINE_WAITING_MAX is a mistake of the code, and asserts.
 * Invariant: an input that an action gives is handled after all actions of the step that runs. */
#ifndef CLIENT_MACHINE_H
#define CLIENT_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "spec/client_states.h"

#define MACHINE_WAITING_MAX 8

struct machine_input {
    unsigned number;
    const void *data;
};

struct machine {
    const struct machine_table *table;
    unsigned state;
    bool is_running;
    unsigned waiting_count;
    struct machine_input waiting[MACHINE_WAITING_MAX];
    void *user;
    void (*act)(void *user, unsigned action, const void *data);
    void (*changed)(void *user); /* after the actions of a step into another state */
};

const struct machine_cell *machine_step(const struct machine_table *table, unsigned state,
                                        unsigned input);
void machine_give(struct machine *machine, unsigned input, const void *data);

/* The wait before an attempt. It doubles from base_ms to max_ms, and half of it is random: random
 * is of 0 to 1. A hint of the server is the least wait; -1 is none. */
uint64_t back_off_ms(unsigned attempt, int64_t hint_ms, double random, uint64_t base_ms,
                     uint64_t max_ms);

/* The random of a real wait. */
double back_off_chance(void);

#endif
