/* A program on libkhala for tests: follows topics and appends events.
 *
 *     khala_client URL TOKEN LOOP TOPIC…
 *
 * A TOKEN that ends with "-" gets the number of the question. LOOP is "own" or "given". The
 * variable STORED is the stored position of every topic; STORAGE_FAILS makes the storage fail; with
 * LATER each frame is answered with KHALA_LATER first. Each line of standard input is an event to
 * append, or "flush", "memory", "mint KEY REQUEST", "get PATH", "post PATH BODY", "upload PATH
 * COUNT", "cancel PATH" or "chain TOPIC COUNT"; the end of the input closes the client. Each event
 * is a line of JSON on standard output.
 */
#include <khala/khala.h>

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define BACK_OFF_BASE_MS 20
#define BACK_OFF_MAX_MS  200

#define TOPICS_MAX 64

struct program;

/* A topic that is followed. */
struct following {
    struct program *program;
    uint64_t number;
    uint64_t offered_seq; /* the frame that was answered with KHALA_LATER */
};

struct program {
    struct following followings[TOPICS_MAX];
    const char *token;
    unsigned tokens;
    unsigned token_faults;
    struct khala_token *late_token;
    struct khala *client;
    uv_loop_t loop;
    uv_thread_t reader;
    bool is_given;
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stdout);
    vprintf(format, arguments);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
    va_end(arguments);
}

/* ---- acting some turns of the loop later --------------------------------------------------- */

struct act {
    uv_idle_t idle;
    unsigned turns;
    void (*run)(void *user);
    void *user;
};

static void free_act(uv_handle_t *handle) {
    free(handle->data);
}

static void on_turn(uv_idle_t *idle) {
    struct act *act = idle->data;
    if (act->turns-- > 1)
        return;
    act->run(act->user);
    uv_close((uv_handle_t *)idle, free_act);
}

/* The own loop of the client cannot be counted, so another thread acts after a short time. */
static void *on_thread(void *user) {
    struct act *act = user;
    uv_sleep(act->turns / 5);
    for (unsigned i = 0; i < act->turns * 200; i++)
        sched_yield();
    act->run(act->user);
    free(act);
    return NULL;
}

/* 0 turns: now. */
static void run_later(struct program *program, unsigned turns, void (*run)(void *user),
                      void *user) {
    if (turns == 0) {
        run(user);
        return;
    }
    struct act *act = calloc(1, sizeof(*act));
    if (!act)
        abort();
    *act = (struct act){.turns = turns, .run = run, .user = user};
    act->idle.data = act;
    if (!program->is_given) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, on_thread, act) != 0 || pthread_detach(thread) != 0)
            abort();
        return;
    }
    if (uv_idle_init(&program->loop, &act->idle) != 0 || uv_idle_start(&act->idle, on_turn) != 0)
        abort();
}

/* With TOKEN_FAULTS the first answers are a failure, an empty text, and none before the next
 * question. */
static bool token_fails(struct program *program, struct khala_token *token) {
    if (program->late_token)
        khala_token_give(program->late_token, "late");
    program->late_token = NULL;
    if (!getenv("TOKEN_FAULTS") || program->token_faults == 3)
        return false;
    program->token_faults++;
    if (program->token_faults == 1)
        khala_token_fail(token, "offline", false);
    else if (program->token_faults == 2)
        khala_token_give(token, "");
    else
        program->late_token = token;
    return true;
}

static void on_token(void *user, struct khala_token *token) {
    struct program *program = user;
    char text[4096];
    if (token_fails(program, token))
        return;
    size_t size = strlen(program->token);
    if (size > 0 && program->token[size - 1] == '-')
        snprintf(text, sizeof(text), "%s%u", program->token, ++program->tokens);
    else
        snprintf(text, sizeof(text), "%s", program->token);
    khala_token_give(token, text);
}

static int on_load(void *user, const char *topic, char *text, size_t size) {
    const char *stored = getenv("STORED");
    (void)user;
    (void)topic;
    if (getenv("STORAGE_FAILS"))
        return -1;
    return stored ? snprintf(text, size, "%s", stored) : 0;
}

static int on_save(void *user, const char *topic, const char *text, size_t size) {
    (void)user;
    if (getenv("STORAGE_FAILS"))
        return -1;
    say("{\"topic\":\"%s\",\"saved\":%.*s}", topic, (int)size, text);
    return 0;
}

static void on_warned(void *user, const struct khala_error *error) {
    (void)user;
    say("{\"warning\":\"%s\",\"message\":\"%s\",\"topic\":\"%s\",\"http_status\":%u,"
        "\"request_id\":\"%s\",\"retry_ms\":%u}",
        error->code, error->message, error->topic ? error->topic : "", error->http_status,
        error->request_id ? error->request_id : "", error->retry_ms);
}

static void on_changed(void *user, enum khala_state state, const struct khala_error *error) {
    (void)user;
    say("{\"state\":%d,\"error\":\"%s\"}", (int)state, error ? error->code : "");
}

static void offer_again(void *user) {
    const struct following *following = user;
    (void)khala_next(following->program->client, following->number);
}

static enum khala_result on_frame(void *user, const struct khala_frame *frame) {
    struct following *following = user;
    if (getenv("LATER") && following->offered_seq != frame->seq) {
        following->offered_seq = frame->seq;
        run_later(following->program, (unsigned)(frame->seq % 11), offer_again, following);
        return KHALA_LATER;
    }
    say("{\"topic\":\"%s\",\"frame\":%.*s}", frame->topic, (int)frame->json.size, frame->json.data);
    return KHALA_OK;
}

static enum khala_result on_reset(void *user, const struct khala_reset *reset) {
    (void)user;
    say("{\"topic\":\"%s\",\"reset\":{\"reason\":\"%s\",\"from_seq\":%" PRIu64
        ",\"truncated\":%s%s%.*s}}",
        reset->topic, reset->reason, reset->from_seq, reset->truncated ? "true" : "false",
        reset->documents.data ? ",\"documents\":" : "", (int)reset->documents.size,
        reset->documents.data ? reset->documents.data : "");
    return KHALA_OK;
}

static void on_ended(void *user, const struct khala_error *error) {
    (void)user;
    say("{\"end\":\"%s\",\"of\":\"%s\",\"message\":\"%s\"}", error ? error->code : "",
        error && error->topic ? error->topic : "", error ? error->message : "");
}

static void on_room(void *user) {
    (void)user;
    say("{\"room\":true}");
}

static void on_closed(void *user) {
    (void)user;
    say("{\"closed\":true}");
}

static void on_answered(void *user, const struct khala_answer *answer) {
    (void)user;
    const struct khala_error *error = answer->error;
    if (error)
        say("{\"refused\":\"%s\",\"http_status\":%u,\"message\":\"%s\",\"topic\":\"%s\","
            "\"request_id\":\"%s\",\"final\":%s}",
            error->code, error->http_status, error->message, error->topic ? error->topic : "",
            error->request_id ? error->request_id : "", error->is_final ? "true" : "false");
    else
        say("{\"appended\":%.*s,\"deduplicated\":%s}", (int)answer->event.size, answer->event.data,
            answer->deduplicated ? "true" : "false");
}

static void on_flushed(void *user) {
    (void)user;
    say("{\"flushed\":true}");
}

static void on_minted(void *user, const char *token, const struct khala_error *error) {
    (void)user;
    if (error)
        say("{\"unminted\":\"%s\",\"http_status\":%u}", error->code, error->http_status);
    else
        say("{\"minted\":\"%s\"}", token);
}

/* "mint KEY REQUEST" */
static void mint(struct program *program, char *line) {
    char *key = line + strlen("mint ");
    char *request = strchr(key, ' ');
    if (!request)
        return;
    *request++ = '\0';
    enum khala_result result = khala_mint(
        program->client, key, (struct khala_text){request, strlen(request)}, on_minted, program);
    if (result != KHALA_OK)
        say("{\"unminted\":\"\",\"result\":%d}", (int)result);
}

struct asking {
    size_t size;    /* bytes of the answer */
    unsigned lines; /* lines of the body that are still to be sent */
    char line[64];
};

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct asking *asking = user;
    (void)http_status;
    asking->size += piece.size;
    return KHALA_OK;
}

static enum khala_result on_more(void *user, struct khala_text *piece, bool *is_last) {
    struct asking *asking = user;
    int size = snprintf(asking->line, sizeof(asking->line),
                        "{\"topic\":\"upload\",\"event_type\":\"said\"}\n");
    *piece = (struct khala_text){asking->line, (size_t)size};
    *is_last = --asking->lines == 0;
    return KHALA_OK;
}

static void on_asked(void *user, unsigned http_status, const struct khala_error *error) {
    struct asking *asking = user;
    say("{\"http_status\":%u,\"bytes\":%zu,\"problem\":\"%s\"}", http_status, asking->size,
        error ? error->code : "");
    free(asking);
}

/* "get PATH", "post PATH BODY", "upload PATH COUNT" and "cancel PATH" */
static void ask(struct program *program, char *line) {
    struct asking *asking = calloc(1, sizeof(*asking));
    uint64_t number = 0;
    line[strcspn(line, "\n")] = '\0';
    const char *verb = strtok(line, " ");
    const char *path = strtok(NULL, " ");
    const char *body = strtok(NULL, "");
    bool is_upload = strcmp(verb, "upload") == 0;
    if (asking && is_upload)
        asking->lines = body ? (unsigned)strtoul(body, NULL, 10) : 0;
    const struct khala_request request = {
        .path = path,
        .content_type = body ? "application/x-ndjson" : NULL,
        .body = {is_upload ? NULL : body, body && !is_upload ? strlen(body) : 0},
        .user = asking,
        .more = is_upload ? on_more : NULL,
        .piece = on_piece,
        .answered = on_asked};
    if (!asking || khala_request(program->client, &request, &number) != KHALA_OK) {
        say("{\"request\":\"refused\"}");
        free(asking);
    } else if (strcmp(verb, "cancel") == 0) {
        (void)khala_cancel(program->client, number);
    }
}

static bool is_request(const char *line) {
    static const char *const verbs[] = {"get ", "post ", "upload ", "cancel "};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strncmp(line, verbs[i], strlen(verbs[i])) == 0)
            return true;
    return false;
}

static void append(struct program *program, const char *line, size_t size) {
    enum khala_result result =
        khala_append(program->client, (struct khala_text){line, size}, on_answered, program);
    if (result != KHALA_OK)
        say("{\"result\":%d}", (int)result);
}

/* ---- a chain: each event is appended some turns after the answer to the one before ---------- */

struct chain {
    struct program *program;
    char topic[128];
    unsigned count;
    unsigned done;
};

static void on_linked(void *user, const struct khala_answer *answer);

static void link_next(void *user) {
    struct chain *chain = user;
    char event[256];
    int size = snprintf(event, sizeof(event),
                        "{\"topic\":\"%s\",\"event_type\":\"said\",\"payload\":{\"n\":%u}}",
                        chain->topic, chain->done + 1);
    if (khala_append(chain->program->client, (struct khala_text){event, (size_t)size}, on_linked,
                     chain) != KHALA_OK)
        say("{\"chained\":-1}");
}

static void on_linked(void *user, const struct khala_answer *answer) {
    struct chain *chain = user;
    if (!answer->error && ++chain->done < chain->count) {
        run_later(chain->program, chain->done % 11, link_next, chain);
        return;
    }
    say("{\"chained\":%u}", chain->done);
    free(chain);
}

/* "chain TOPIC COUNT" */
static void begin_chain(struct program *program, char *line) {
    struct chain *chain = calloc(1, sizeof(*chain));
    (void)strtok(line, " ");
    const char *topic = strtok(NULL, " ");
    const char *count = strtok(NULL, " ");
    if (!chain || !count)
        abort();
    chain->program = program;
    chain->count = (unsigned)strtoul(count, NULL, 10);
    snprintf(chain->topic, sizeof(chain->topic), "%s", topic);
    link_next(chain);
}

/* Reads the input on a thread of its own, since the loop of the program must not block. */
static void read_input(void *user) {
    struct program *program = user;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, stdin)) > 0) {
        if (strcmp(line, "flush\n") == 0)
            (void)khala_flush(program->client, on_flushed, program);
        else if (strcmp(line, "memory\n") == 0)
            say("{\"allocated_bytes\":%zu}", mallinfo2().uordblks + mallinfo2().hblkhd);
        else if (strncmp(line, "mint ", 5) == 0)
            mint(program, line);
        else if (strncmp(line, "chain ", 6) == 0)
            begin_chain(program, line);
        else if (is_request(line))
            ask(program, line);
        else
            append(program, line, (size_t)size);
    }
    free(line);
    khala_close(program->client);
}

static unsigned number_of(const char *variable, unsigned fallback) {
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

static void on_caught_up(void *user) {
    (void)user;
    say("{\"caught_up\":true}");
}

static void on_event(void *user, const char *cursor, struct khala_text event) {
    (void)user;
    say("{\"cursor\":\"%s\",\"event\":%.*s}", cursor, (int)event.size, event.data);
}

static void on_log_reset(void *user, const char *reason) {
    (void)user;
    say("{\"log_reset\":\"%s\"}", reason);
}

/* START is "head", "after CURSOR", or a time; otherwise the beginning. LOG follows the log. */
static void follow_log(struct program *program, const char *start) {
    bool is_after = start && strncmp(start, "after ", 6) == 0;
    bool is_head = start && strcmp(start, "head") == 0;
    const struct khala_follow_log follow = {.after = is_after ? start + 6 : NULL,
                                            .from_head = is_head,
                                            .since = is_after || is_head ? NULL : start,
                                            .user = program,
                                            .event = on_event,
                                            .reset = on_log_reset,
                                            .ended = on_ended};
    enum khala_result result = khala_follow_log(program->client, &follow, NULL);
    if (result != KHALA_OK)
        say("{\"follow\":%d}", (int)result);
}

/* START is "head", "start", "after SEQ" without an epoch, or a time; otherwise the stored position
 * or the beginning. FORM, FOLD, WHERE and CONFLATE_MS are those of struct khala_follow. */
static void follow_topic(struct following *following, const char *topic, const char *start) {
    bool is_after = start && strncmp(start, "after ", 6) == 0;
    const struct khala_position after = {.epoch = NULL,
                                         .seq = is_after ? strtoull(start + 6, NULL, 10) : 0};
    bool is_head = start && strcmp(start, "head") == 0;
    bool is_start = start && strcmp(start, "start") == 0;
    const struct khala_follow follow = {.topic = topic,
                                        .after = is_after ? &after : NULL,
                                        .from_start = is_start,
                                        .from_head = is_head,
                                        .since = is_head || is_start || is_after ? NULL : start,
                                        .caught_up = start ? on_caught_up : NULL,
                                        .user = following,
                                        .frame = on_frame,
                                        .reset = on_reset,
                                        .ended = on_ended,
                                        .form = getenv("FORM"),
                                        .fold = getenv("FOLD") != NULL,
                                        .where = getenv("WHERE"),
                                        .conflate_ms = number_of("CONFLATE_MS", 0)};
    enum khala_result result =
        khala_follow(following->program->client, &follow, &following->number);
    if (result != KHALA_OK)
        say("{\"follow\":%d}", (int)result);
}

int main(int argc, char **argv) {
    struct program program = {.tokens = 0};
    if (argc < 4 || argc > 4 + TOPICS_MAX)
        return 2;
    program.token = argv[2];
    bool is_given = program.is_given = strcmp(argv[3], "given") == 0;
    struct khala_options options = {
        .url = argv[1],
        .ca_file = getenv("KHALA_CA_FILE"),
        .user = &program,
        .token = on_token,
        .load = on_load,
        .save = on_save,
        .changed = on_changed,
        .warned = on_warned,
        .closed = on_closed,
        .room = on_room,
        .outbox = getenv("OUTBOX"),
        .append_items_max = number_of("APPEND_ITEMS_MAX", 0),
        .close_timeout_ms = number_of("CLOSE_TIMEOUT_MS", 0),
        .queue_frames_max = number_of("QUEUE_FRAMES_MAX", 0),
        .back_off_base_ms = number_of("BACK_OFF_BASE_MS", BACK_OFF_BASE_MS),
        .back_off_max_ms = number_of("BACK_OFF_MAX_MS", BACK_OFF_MAX_MS),
        .request_timeout_ms = number_of("REQUEST_TIMEOUT_MS", 0),
        .token_timeout_ms = number_of("TOKEN_TIMEOUT_MS", 0)};
    if (is_given && uv_loop_init(&program.loop) != 0)
        return 1;
    options.loop = is_given ? &program.loop : NULL;
    enum khala_result result = khala_open(&program.client, &options);
    if (result != KHALA_OK) {
        say("{\"open\":%d}", (int)result);
        return is_given && uv_loop_close(&program.loop) != 0;
    }
    const char *start = getenv("START");
    if (getenv("LOG"))
        follow_log(&program, start);
    for (int i = 0; i < argc - 4; i++) {
        program.followings[i].program = &program;
        follow_topic(&program.followings[i], argv[4 + i], start);
    }
    if (uv_thread_create(&program.reader, read_input, &program) != 0)
        return 1;
    if (is_given && uv_run(&program.loop, UV_RUN_DEFAULT) != 0)
        return 1;
    uv_thread_join(&program.reader);
    if (is_given && uv_loop_close(&program.loop) != 0)
        return 1;
    return 0;
}
