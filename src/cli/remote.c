#include "cli/remote.h"
#include "cli/settings.h"

#include <errno.h>
#include <stdlib.h>

#include "wire/object_writer.h"

#define ANSWER_BYTES_MAX (64u << 20)

static const char *first_of(const char *given, const char *variable, const char *fallback) {
    const char *environment = settings_variable(variable);
    if (given)
        return given;
    return environment && *environment ? environment : fallback;
}

static bool key_copy(char *key, const char *given) {
    size_t size = strlen(given);
    if (size == 0 || size > REMOTE_KEY_BYTES_MAX)
        return false;
    for (size_t i = 0; i < size; i++)
        if (given[i] <= ' ' || given[i] > '~')
            return false;
    memcpy(key, given, size + 1);
    return true;
}

int remote_key(const struct remote_options *options, char key[REMOTE_KEY_BYTES_MAX + 1]) {
    const char *given = first_of(options->key, "KHALA_OPERATOR_KEY", NULL);
    if (!given) {
        struct operator_key found;
        enum status status = operator_key_read(
            &found, first_of(options->data_dir, "KHALA_DATA_DIR", "./khala-data"));
        if (status == STATUS_OK && key_copy(key, found.text))
            return EXIT_CODE_DONE;
        return cli_fail(EXIT_CODE_USAGE,
                        "no operator key: give --key, set KHALA_OPERATOR_KEY, or name the "
                        "server's data folder with --data-dir (%s: %s)",
                        found.path,
                        status == STATUS_INVALID_CONFIG ? "holds no key" : strerror(errno));
    }
    bool is_valid = key_copy(key, given);
    /* All users of the machine can see the command line: the key stays there no longer than
     * needed. */
    if (options->key)
        explicit_bzero((char *)options->key, strlen(options->key));
    return is_valid ? EXIT_CODE_DONE
                    : cli_fail(EXIT_CODE_USAGE, "the key is not 1 to %d visible characters",
                               REMOTE_KEY_BYTES_MAX);
}

const char *remote_url(const struct remote_options *options, char bound[REMOTE_URL_BYTES_MAX]) {
    int size = snprintf(bound, REMOTE_URL_BYTES_MAX, "http%s://%s",
                        first_of(NULL, "KHALA_TLS_CERT_FILE", NULL) ? "s" : "",
                        first_of(NULL, "RUNTIME_BIND_ADDR", "127.0.0.1:4100"));
    const char *fallback =
        first_of(NULL, "KHALA_URL", size < REMOTE_URL_BYTES_MAX ? bound : "http://");
    if (options->is_client)
        return options->url ? options->url : fallback;
    return first_of(options->url, "KHALA_OPERATOR_URL", fallback);
}

bool remote_is_named(const struct remote_options *options) {
    return first_of(options->url, "KHALA_URL", NULL) != NULL;
}

const char *remote_ca_file(const struct remote_options *options) {
    return first_of(options->ca_file, "KHALA_CA_FILE", NULL);
}

int remote_open(struct remote *remote, const struct remote_options *options) {
    char bound[REMOTE_URL_BYTES_MAX];
    const char *url = remote_url(options, bound);
    *remote = (struct remote){.client = NULL};
    buffer_init(&remote->answer, ANSWER_BYTES_MAX);
    int code = remote_key(options, remote->key);
    if (code != EXIT_CODE_DONE)
        return code;
    enum status status = blocking_http_open(&remote->client, url, remote_ca_file(options));
    if (status == STATUS_INVALID_REQUEST)
        return cli_fail(EXIT_CODE_USAGE, "'%s' is not http://HOST[:PORT] or https://HOST[:PORT]",
                        url);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(status));
    return EXIT_CODE_DONE;
}

void remote_close(struct remote *remote) {
    blocking_http_close(remote->client);
    buffer_release(&remote->answer);
}

static enum status gather(void *user, unsigned http_status, struct slice piece) {
    struct remote *remote = user;
    (void)http_status;
    return buffer_append_slice(&remote->answer, piece);
}

int remote_exchange(struct remote *remote, struct blocking_request *request,
                    unsigned *http_status) {
    request->key = remote->key;
    if (!request->on_body) {
        request->on_body = gather;
        request->user = remote;
    }
    buffer_clear(&remote->answer);
    enum status status = blocking_http_run(remote->client, request, http_status);
    if (status == STATUS_OK)
        return EXIT_CODE_DONE;
    const char *reason = blocking_http_error(remote->client);
    return cli_fail(EXIT_CODE_UNREACHABLE, "%s", *reason ? reason : status_message(status));
}

int remote_query(struct remote *remote, const struct remote_options *options, const char *target,
                 struct slice body) {
    unsigned http_status = 0;
    int code = remote_open(remote, options);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(remote, target, body, &http_status);
    if (code == EXIT_CODE_DONE && http_status != 200)
        code = remote_refused(remote, http_status);
    return code;
}

int remote_ask(struct remote *remote, const char *target, struct slice body,
               unsigned *http_status) {
    struct blocking_request request = {.method = body.data ? "POST" : "GET",
                                       .target = target,
                                       .content_type = body.data ? "application/json" : NULL,
                                       .body = body};
    return remote_exchange(remote, &request, http_status);
}

void remote_print_text(FILE *out, struct json_value value) {
    struct buffer text;
    buffer_init(&text, ANSWER_BYTES_MAX);
    if (value.kind == JSON_KIND_STRING && json_string_decode(value, &text) == STATUS_OK)
        fprintf(out, "%.*s", (int)text.size, text.data);
    else
        fprintf(out, "%.*s", (int)value.raw.size, value.raw.data);
    buffer_release(&text);
}

void remote_print_plain(struct json_value value) {
    struct slice text = value.raw;
    (void)json_string_slice(value, &text);
    printf("%.*s", (int)text.size, text.data);
}

int remote_refused(struct remote *remote, unsigned http_status) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {
        {.name = SLICE("error")}, {.name = SLICE("message")}, {.name = SLICE("details")}};
    int code = http_status >= 500 ? EXIT_CODE_UNREACHABLE : EXIT_CODE_NO;
    if (json_read_object(buffer_slice(&remote->answer), &limits, fields, 3) != STATUS_OK ||
        !fields[0].present || !fields[1].present)
        return cli_fail((enum exit_code)code, "the server answered %u", http_status);
    if (cli_errors_are_json()) {
        /* Without the line's end, so that one line stays one line. */
        struct slice body = buffer_slice(&remote->answer);
        while (body.size > 0 && strchr("\r\n", body.data[body.size - 1]))
            body.size--;
        fprintf(stderr, "%.*s\n", (int)body.size, body.data);
        return code;
    }
    fputs("khala: ", stderr);
    remote_print_text(stderr, fields[0].value);
    fputs(": ", stderr);
    remote_print_text(stderr, fields[1].value);
    if (fields[2].present) {
        fputs(" ", stderr);
        remote_print_text(stderr, fields[2].value);
    }
    fputc('\n', stderr);
    return code;
}

void remote_error_set(struct remote_error *error, const struct khala_error *given) {
    *error = (struct remote_error){.http_status = given->http_status, .is_final = given->is_final};
    snprintf(error->code, sizeof(error->code), "%s", given->code ? given->code : "");
    snprintf(error->message, sizeof(error->message), "%s", given->message ? given->message : "");
    if (given->details && strlen(given->details) < sizeof(error->details))
        snprintf(error->details, sizeof(error->details), "%s", given->details);
}

int remote_error_print(const struct remote_error *error) {
    struct remote shown = {.client = NULL};
    if (error->http_status == 0 && (!error->is_final || !*error->code))
        return cli_fail(error->is_final ? EXIT_CODE_NO : EXIT_CODE_UNREACHABLE, "%s",
                        error->message);
    buffer_init(&shown.answer, ANSWER_BYTES_MAX);
    struct object_writer object = object_begin(&shown.answer);
    object_text(&object, SLICE("error"), slice_of(error->code));
    object_text(&object, SLICE("message"), slice_of(error->message));
    if (*error->details)
        object_json(&object, SLICE("details"), slice_of(error->details));
    /* Without memory only the HTTP status is printed. */
    if (object_end(&object) != STATUS_OK)
        buffer_clear(&shown.answer);
    int code = remote_refused(&shown, error->http_status ? error->http_status : 400);
    buffer_release(&shown.answer);
    return code;
}

void remote_encode(struct buffer *out, const char *text) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++) {
        if (strchr(plain, *text))
            buffer_append_byte(out, *text);
        else
            buffer_printf(out, "%%%02X", (unsigned)(unsigned char)*text);
    }
}

void remote_add_parameter(struct buffer *target, const char *name, const char *value) {
    if (!value)
        return;
    buffer_printf(target, "%c%s=", memchr(target->data, '?', target->size) ? '&' : '?', name);
    remote_encode(target, value);
}
