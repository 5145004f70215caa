/* Every event of the channel, of the token callback and of time is an input of the connection's
 * machine (spec/client_states.json), whose actions open and drop the channel, ask for tokens and
 * wait. Followers live in a list, and in another one after their end until their last call was
 * made. connection_tick runs what is due and asks for the next wake-up. */
#include "client/connection.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/client_options.h"
#include "topic/stream_id.h"

static bool is_live(const struct connection *connection) {
    return connection->machine.state == CONNECTION_STATE_LIVE ||
           connection->machine.state == CONNECTION_STATE_REAUTHENTICATING;
}

static void wait_until(struct connection *connection, uint64_t at_ms) {
    connection->hooks->wait(connection->hooks->user, at_ms);
}

static void give_error(struct connection *connection, enum connection_input input,
                       const struct client_error *error) {
    connection->error = *error;
    connection->has_error = true;
    machine_give(&connection->machine, input, &connection->error);
}

static void lose(struct connection *connection, const char *code, const char *message) {
    struct client_error error = client_error_make(CLIENT_POLICY_RETRY, code, message);
    give_error(connection, CONNECTION_INPUT_LOST, &error);
}

static void check_memory(struct connection *connection, enum status status) {
    if (status != STATUS_OK)
        lose(connection, "out_of_memory", "There is no memory for a message.");
}

static void warn(const struct connection *connection, const struct client_error *error,
                 const char *topic) {
    const struct khala_error shown = client_error_shown(error, topic);
    if (connection->options->warned)
        connection->options->warned(connection->options->user, &shown);
}

/* ---- followers ---------------------------------------------------------------------------- */

static void give_each(struct connection *connection, enum topic_input input,
                      const struct client_error *error) {
    struct list_node *node = list_first(&connection->followers), *next;
    for (; node; node = next) {
        next = list_next(&connection->followers, node);
        follower_give(container_of(node, struct follower, node), input, error);
    }
}

static void on_subscribe(void *user, struct follower *follower) {
    struct connection *connection = user;
    if (connection->channel)
        channel_want(connection->channel, follower);
}

static void on_unsubscribe(void *user, struct follower *follower) {
    struct connection *connection = user;
    if (connection->channel && is_live(connection))
        check_memory(connection, channel_unsubscribe(connection->channel, follower));
}

static void on_warn(void *user, const struct client_error *error, const char *topic) {
    warn(user, error, topic);
}

static void on_done(void *user, struct follower *follower) {
    struct connection *connection = user;
    if (map_find(&connection->by_name, slice_of(follower->follow.topic)) == follower)
        map_remove(&connection->by_name, slice_of(follower->follow.topic));
    if (list_node_is_linked(&follower->wanted_node))
        list_remove(&follower->wanted_node);
    list_remove(&follower->node);
    list_push_back(&connection->over, &follower->node);
    if (list_is_empty(&connection->followers))
        machine_give(&connection->machine, CONNECTION_INPUT_UNUSED, NULL);
}

static void on_finished(void *user, struct follower *follower) {
    struct connection *connection = user;
    (void)follower;
    connection->hooks->finished(connection->hooks->user);
}

static void on_wait(void *user, uint64_t at_ms) {
    wait_until(user, at_ms);
}

struct follower *connection_find(struct connection *connection, uint64_t number) {
    const struct list *lists[] = {&connection->followers, &connection->over};
    for (size_t i = 0; i < 2; i++) {
        struct list_node *node = list_first(lists[i]);
        for (; node; node = list_next(lists[i], node))
            if (container_of(node, struct follower, node)->number == number)
                return container_of(node, struct follower, node);
    }
    return NULL;
}

void connection_add(struct connection *connection, struct follower *follower) {
    struct client_error error =
        client_error_make(CLIENT_POLICY_TOPIC_FINAL, "closed", "The client is closed.");
    list_push_back(&connection->followers, &follower->node);
    if (connection->machine.state == CONNECTION_STATE_CLOSED) {
        follower_give(follower, TOPIC_INPUT_FINAL,
                      connection->has_error ? &connection->error : &error);
        return;
    }
    enum status status =
        map_insert(&connection->by_name, slice_of(follower->follow.topic), follower);
    if (status != STATUS_OK) {
        bool is_second = status == STATUS_ALREADY_EXISTS;
        error = client_error_make(
            CLIENT_POLICY_TOPIC_FINAL, is_second ? "already_followed" : status_code(status),
            is_second ? "The topic is followed already." : "The topic cannot be followed.");
        follower_give(follower, TOPIC_INPUT_FINAL, &error);
        return;
    }
    machine_give(&connection->machine, CONNECTION_INPUT_START, NULL);
    follower_load(follower, is_live(connection));
}

/* ---- tokens ------------------------------------------------------------------------------- */

static void renew_in(struct connection *connection, uint64_t after_ms) {
    struct clock_reading clock = clock_now();
    connection->renew_set_ms = clock.mono_ns / CLOCK_NS_PER_MS;
    connection->renew_wall_ms = clock.wall_ms;
    connection->renew_after_ms = after_ms;
    connection->renew_at_ms = connection->renew_set_ms + after_ms + 1;
    wait_until(connection, connection->renew_at_ms);
}

/* The clock that has advanced further decides: one may stand still while the machine sleeps. */
static void renew_if_due(struct connection *connection) {
    struct clock_reading clock = clock_now();
    uint64_t mono_ms = clock.mono_ns / CLOCK_NS_PER_MS;
    if (connection->renew_at_ms == 0 || connection->machine.state != CONNECTION_STATE_LIVE)
        return;
    bool is_due = mono_ms - connection->renew_set_ms >= connection->renew_after_ms ||
                  (clock.wall_ms > connection->renew_wall_ms &&
                   clock.wall_ms - connection->renew_wall_ms >= connection->renew_after_ms);
    if (!is_due)
        return;
    connection->renew_at_ms = 0;
    machine_give(&connection->machine, CONNECTION_INPUT_EXPIRING, NULL);
}

static void ask_token(struct connection *connection) {
    connection->asks++;
    connection->is_asking = true;
    connection->ask_until_ms = clock_mono_now_ms() + connection->options->token_timeout_ms;
    wait_until(connection, connection->ask_until_ms);
    connection->hooks->ask_token(connection->hooks->user, connection->asks);
}

static void token_failed(struct connection *connection, const struct client_error *error) {
    connection->is_asking = false;
    warn(connection, error, NULL);
    give_error(connection,
               error->policy == CLIENT_POLICY_FINAL ? CONNECTION_INPUT_FINAL
                                                    : CONNECTION_INPUT_TOKEN_FAILED,
               error);
}

static void forget_ask(struct connection *connection) {
    connection->asks++;
    connection->is_asking = false;
}

void connection_token(struct connection *connection, uint64_t ask, const char *text,
                      const struct client_error *error) {
    struct client_error own;
    uint64_t life_ms;
    if (!connection->is_asking || ask != connection->asks)
        return;
    buffer_clear(&connection->token);
    enum status status = text ? buffer_append_slice(&connection->token, slice_of(text)) : STATUS_OK;
    if (text && (!*text || status != STATUS_OK)) {
        own = client_error_make(CLIENT_POLICY_RETRY, "token_missing",
                                "The token callback did not answer a token.");
        error = &own;
    }
    if (error) {
        token_failed(connection, error);
        return;
    }
    connection->is_asking = false;
    connection->renew_at_ms = 0;
    if (token_life_ms(buffer_slice(&connection->token), clock_now().wall_ms, &life_ms))
        renew_in(connection, life_ms / 4 * 3);
    machine_give(&connection->machine, CONNECTION_INPUT_TOKEN, NULL);
}

/* ---- events of the channel ---------------------------------------------------------------- */

static void on_opened(void *user) {
    struct connection *connection = user;
    machine_give(&connection->machine, CONNECTION_INPUT_OPENED, NULL);
}

static void on_joined(void *user, uint64_t heartbeat_ms) {
    struct connection *connection = user;
    bool is_interval = heartbeat_ms >= 10 && heartbeat_ms <= CLIENT_HEARTBEAT_MS_MAX;
    connection->beat_ms = is_interval ? heartbeat_ms : CLIENT_HEARTBEAT_MS;
    connection->silence_ms = 2 * connection->beat_ms + CLIENT_PROBE_MS;
    connection->live_since_ms = connection->beat_at_ms = connection->heard_at_ms =
        clock_mono_now_ms();
    machine_give(&connection->machine, CONNECTION_INPUT_JOINED, NULL);
}

static void on_heard(void *user) {
    struct connection *connection = user;
    connection->heard_at_ms = clock_mono_now_ms();
}

static void on_expiring(void *user) {
    struct connection *connection = user;
    machine_give(&connection->machine, CONNECTION_INPUT_EXPIRING, NULL);
}

static void on_refreshed(void *user) {
    struct connection *connection = user;
    machine_give(&connection->machine, CONNECTION_INPUT_REFRESHED, NULL);
}

static void on_closed(void *user, const struct client_error *error) {
    give_error(user,
               error->policy == CLIENT_POLICY_FINAL            ? CONNECTION_INPUT_FINAL
               : error->policy == CLIENT_POLICY_REAUTHENTICATE ? CONNECTION_INPUT_REFUSED
                                                               : CONNECTION_INPUT_LOST,
               error);
}

/* A server names the topic, also to a client that named its stream id. */
static struct follower *on_find(void *user, struct slice topic) {
    struct connection *connection = user;
    char text[STREAM_ID_BYTES_MAX];
    struct buffer stream = buffer_over(text, sizeof(text));
    struct follower *found = map_find(&connection->by_name, topic);
    if (found || topic_to_stream(topic, &stream) != STATUS_OK)
        return found;
    return map_find(&connection->by_name, buffer_slice(&stream));
}

static struct follower *on_find_number(void *user, uint64_t number) {
    struct follower *found = connection_find(user, number);
    return found && !found->is_over ? found : NULL;
}

static void on_settle(void *user) {
    connection_settle(user);
}

static const struct channel_events channel_events = {on_opened,   on_joined,      on_heard,
                                                     on_expiring, on_refreshed,   on_closed,
                                                     on_find,     on_find_number, on_settle};

/* ---- actions ------------------------------------------------------------------------------ */

static void open_channel(struct connection *connection) {
    const struct channel_options options = {.net = connection->net,
                                            .client_build_id = connection->options->client_build_id,
                                            .token = buffer_slice(&connection->token),
                                            .events = &channel_events,
                                            .user = connection};
    connection->opened_at_ms = clock_mono_now_ms();
    check_memory(connection, channel_open(&connection->channel, &options));
}

static void drop(struct connection *connection) {
    struct channel *channel = connection->channel;
    uint64_t live_ms =
        connection->live_since_ms ? clock_mono_now_ms() - connection->live_since_ms : 0;
    connection->channel = NULL;
    forget_ask(connection); /* an answer for the old connection is of no use */
    if (live_ms >= CLIENT_STABLE_MS)
        connection->attempts = connection->refusals = 0;
    connection->live_since_ms = 0;
    connection->renew_at_ms = 0;
    channel_close(channel);
    give_each(connection, TOPIC_INPUT_DISCONNECTED, NULL);
}

static void probe(struct connection *connection) {
    uint64_t now = clock_mono_now_ms();
    bool is_sent = channel_heartbeat(connection->channel);
    uint64_t latest = now + CLIENT_PROBE_MS;
    /* The silence ends the connection five seconds from now. */
    if (latest > connection->silence_ms &&
        connection->heard_at_ms > latest - connection->silence_ms)
        connection->heard_at_ms = latest - connection->silence_ms;
    if (!is_sent)
        lose(connection, "silent", "The server did not reply.");
    renew_if_due(connection);
}

static void act(void *user, unsigned action, const void *data) {
    struct connection *connection = user;
    const struct client_error *error = data;
    switch ((enum connection_action)action) {
    case CONNECTION_ACTION_ASK_TOKEN:
        ask_token(connection);
        break;
    case CONNECTION_ACTION_OPEN:
        open_channel(connection);
        break;
    case CONNECTION_ACTION_JOIN:
        check_memory(connection, channel_join(connection->channel));
        break;
    case CONNECTION_ACTION_SUBSCRIBE:
        give_each(connection, TOPIC_INPUT_CONNECTED, NULL);
        break;
    case CONNECTION_ACTION_REFRESH:
        check_memory(connection,
                     channel_refresh(connection->channel, buffer_slice(&connection->token)));
        break;
    case CONNECTION_ACTION_RENEW_LATER:
        renew_in(connection, back_off_ms(connection->attempts++, -1, back_off_chance(),
                                         CLIENT_BACK_OFF_BASE_MS, CLIENT_RENEW_MAX_MS));
        break;
    case CONNECTION_ACTION_PROBE:
        probe(connection);
        break;
    case CONNECTION_ACTION_DROP:
        drop(connection);
        break;
    case CONNECTION_ACTION_COUNT_REFUSAL:
        if (++connection->refusals >= CLIENT_REFUSALS_MAX)
            machine_give(&connection->machine, CONNECTION_INPUT_EXHAUSTED, data);
        break;
    case CONNECTION_ACTION_BACK_OFF:
        connection->retry_at_ms =
            clock_mono_now_ms() + back_off_ms(connection->attempts++,
                                              error ? error->retry_after_ms : -1, back_off_chance(),
                                              connection->options->back_off_base_ms,
                                              connection->options->back_off_max_ms);
        wait_until(connection, connection->retry_at_ms);
        break;
    case CONNECTION_ACTION_CANCEL:
        connection->retry_at_ms = 0;
        break;
    case CONNECTION_ACTION_FAIL:
        give_each(connection, TOPIC_INPUT_FINAL, data);
        break;
    case CONNECTION_ACTION_STOP:
        give_each(connection, TOPIC_INPUT_STOP, NULL);
        break;
    }
}

static void changed(void *user) {
    struct connection *connection = user;
    enum connection_state state = connection->machine.state;
    struct clock_reading clock = clock_now();
    if (state == CONNECTION_STATE_IDLE || state == CONNECTION_STATE_CLOSED) {
        connection->tick_at_ms = connection->renew_at_ms = 0;
        forget_ask(connection);
    } else if (connection->tick_at_ms == 0) {
        connection->tick_mono_ms = clock.mono_ns / CLOCK_NS_PER_MS;
        connection->tick_wall_ms = clock.wall_ms;
        connection->tick_at_ms = connection->tick_mono_ms + CLIENT_TICK_MS;
        wait_until(connection, connection->tick_at_ms);
    }
    if (state == CONNECTION_STATE_LIVE)
        connection->has_error = false;
    struct khala_error error = client_error_shown(&connection->error, NULL);
    uint64_t now = clock.mono_ns / CLOCK_NS_PER_MS;
    if (state == CONNECTION_STATE_BACKING_OFF && connection->retry_at_ms > now)
        error.retry_ms = (unsigned)(connection->retry_at_ms - now);
    if (connection->options->changed)
        connection->options->changed(connection->options->user, (enum khala_state)state,
                                     connection->has_error ? &error : NULL);
}

/* ---- time --------------------------------------------------------------------------------- */

/* Checks the connection once a tick. A tick that comes late means that the machine has slept. */
static void tick(struct connection *connection) {
    struct clock_reading clock = clock_now();
    uint64_t now = clock.mono_ns / CLOCK_NS_PER_MS;
    uint64_t limit = CLIENT_TICK_MS + CLIENT_SLEEP_MS;
    bool has_slept = now - connection->tick_mono_ms > limit ||
                     (clock.wall_ms > connection->tick_wall_ms &&
                      clock.wall_ms - connection->tick_wall_ms > limit);
    connection->tick_mono_ms = now;
    connection->tick_wall_ms = clock.wall_ms;
    connection->tick_at_ms = now + CLIENT_TICK_MS;
    if (has_slept)
        machine_give(&connection->machine, CONNECTION_INPUT_WAKE, NULL);
    enum connection_state state = connection->machine.state;
    if (is_live(connection)) {
        renew_if_due(connection);
        if (now - connection->heard_at_ms > connection->silence_ms) {
            lose(connection, "silent", "The server sent nothing for too long.");
        } else if (now - connection->beat_at_ms >= connection->beat_ms) {
            connection->beat_at_ms = now;
            if (!channel_heartbeat(connection->channel))
                lose(connection, "silent", "The server did not reply.");
        }
    } else if ((state == CONNECTION_STATE_CONNECTING || state == CONNECTION_STATE_JOINING) &&
               now - connection->opened_at_ms > connection->options->connect_timeout_ms) {
        lose(connection, "connect_timeout", "The server did not answer in time.");
    }
}

static void wait_next(struct connection *connection, uint64_t at_ms) {
    if (at_ms > 0)
        wait_until(connection, at_ms);
}

void connection_tick(struct connection *connection) {
    uint64_t now = clock_mono_now_ms();
    if (connection->is_asking && connection->ask_until_ms <= now) {
        const struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "token_timeout",
                                                            "The token callback was too slow.");
        token_failed(connection, &error);
    }
    if (connection->retry_at_ms > 0 && connection->retry_at_ms <= now) {
        connection->retry_at_ms = 0;
        machine_give(&connection->machine, CONNECTION_INPUT_TIMER, NULL);
    }
    if (connection->renew_at_ms > 0 && connection->renew_at_ms <= now)
        renew_if_due(connection);
    if (connection->tick_at_ms > 0 && connection->tick_at_ms <= now)
        tick(connection);
    struct list_node *node = list_first(&connection->followers), *next;
    for (; node; node = next) {
        next = list_next(&connection->followers, node);
        wait_next(connection, follower_tick(container_of(node, struct follower, node), now));
    }
    wait_next(connection, connection->tick_at_ms);
    wait_next(connection, connection->retry_at_ms);
    /* A renewal that is due while another runs is checked at each tick. */
    if (connection->renew_at_ms > now)
        wait_until(connection, connection->renew_at_ms);
    if (connection->is_asking)
        wait_until(connection, connection->ask_until_ms);
}

/* ---- */

void connection_settle(struct connection *connection) {
    if (connection->channel && is_live(connection))
        check_memory(connection, channel_flush(connection->channel));
    struct list_node *node = list_first(&connection->over), *next;
    for (; node; node = next) {
        struct follower *follower = container_of(node, struct follower, node);
        next = list_next(&connection->over, node);
        if (!follower->is_finished)
            continue;
        list_remove(node);
        follower_free(follower);
    }
}

void connection_give(struct connection *connection, enum connection_input input) {
    machine_give(&connection->machine, input, NULL);
    if (input != CONNECTION_INPUT_STOP)
        return;
    /* Applications that hold a frame get their last call now. */
    struct list_node *node = list_first(&connection->over), *next;
    for (; node; node = next) {
        next = list_next(&connection->over, node);
        follower_abandon(container_of(node, struct follower, node));
    }
}

void connection_init(struct connection *connection, const struct khala_options *options,
                     const struct connection_hooks *hooks, struct client_net *net) {
    *connection = (struct connection){.options = options, .hooks = hooks, .net = net};
    connection->machine = (struct machine){.table = &connection_machine,
                                           .state = CONNECTION_STATE_IDLE,
                                           .user = connection,
                                           .act = act,
                                           .changed = changed};
    connection->link = (struct follower_link){.user = connection,
                                              .subscribe = on_subscribe,
                                              .unsubscribe = on_unsubscribe,
                                              .warn = on_warn,
                                              .done = on_done,
                                              .finished = on_finished,
                                              .wait = on_wait};
    list_init(&connection->followers);
    list_init(&connection->over);
    map_init(&connection->by_name, CLIENT_TOPICS_MAX);
    buffer_init(&connection->token, CLIENT_TOKEN_BYTES_MAX);
}

void connection_release(struct connection *connection) {
    connection_settle(connection);
    map_release(&connection->by_name);
    buffer_release(&connection->token);
}
