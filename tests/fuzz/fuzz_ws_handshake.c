/* Any header values: what the handshake makes of the extension offers is what the grammar of
 * RFC 6455 section 9.1, written as regular expressions, makes of them; and the response is
 * whole, with no byte of the client's in it but an agreed protocol.
 * Input: six lines: upgrade, connection, key, version, extensions, protocols. A line that is
 * missing is an absent header. */
#include <regex.h>

#include "fuzz.h"
#include "wire/websocket/ws_handshake.h"

#define FIELD_COUNT 6
/* glibc's matcher is slow on long texts. */
#define ORACLE_BYTES_MAX 400

#define TOKEN            "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
#define BLANKS           "[ \t]*"
#define QUOTED           "\"(\\\\?[!#$%&'*+.^_`|~0-9A-Za-z-])+\""
#define PARAMETER        BLANKS TOKEN BLANKS "(=" BLANKS "(" TOKEN "|" QUOTED ")" BLANKS ")?"
#define EXTENSION        BLANKS "(" TOKEN BLANKS "(;" PARAMETER ")*)?"
#define BITS_VALUE(bits) BLANKS "=" BLANKS "(" bits "|\"" bits "\")"
#define BITS             "\\\\?([89]|1\\\\?[0-5])"
#define KNOWN                                                                                      \
    BLANKS "(server_no_context_takeover|client_no_context_takeover|"                               \
           "client_max_window_bits(" BITS_VALUE(BITS) ")?|"                                        \
                                                      "server_max_window_bits" BITS_VALUE(         \
                                                          BITS) ")" BLANKS

static regex_t grammar, acceptable;

static void oracle_prepare(void) {
    static bool ready;
    if (ready)
        return;
    require(regcomp(&grammar, "^" EXTENSION "(," EXTENSION ")*$", REG_EXTENDED | REG_NOSUB) == 0);
    require(regcomp(&acceptable, "^" BLANKS "permessage-deflate" BLANKS "(;" KNOWN ")*$",
                    REG_EXTENDED | REG_NOSUB) == 0);
    ready = true;
}

static size_t occurrences(const char *text, const char *word) {
    size_t count = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

/* Of an element whose parameters are all known: whether one is there twice. */
static bool repeated(const char *element) {
    return occurrences(element, "server_no_context_takeover") > 1 ||
           occurrences(element, "client_no_context_takeover") > 1 ||
           occurrences(element, "client_max_window_bits") > 1 ||
           occurrences(element, "server_max_window_bits") > 1;
}

/* Of an acceptable element that names them, with or without quotes and escapes. */
static unsigned bits_of(const char *element) {
    const char *at = strstr(element, "server_max_window_bits") + strlen("server_max_window_bits");
    unsigned bits = 0;
    for (; *at && *at != ';'; at++)
        if (*at >= '0' && *at <= '9')
            bits = 10 * bits + (unsigned)(*at - '0');
    return bits;
}

static enum status oracle(struct slice extensions, struct ws_agreement *agreement) {
    char text[ORACLE_BYTES_MAX + 1] = "";
    *agreement = (struct ws_agreement){.server_window_bits = 15};
    if (!extensions.data)
        return STATUS_OK;
    memcpy(text, extensions.data, extensions.size);
    if (memchr(text, '\0', extensions.size) || regexec(&grammar, text, 0, NULL, 0) != 0)
        return STATUS_WS_BAD_HANDSHAKE;
    char *rest = text;
    for (char *element = strsep(&rest, ","); element; element = strsep(&rest, ",")) {
        if (regexec(&acceptable, element, 0, NULL, 0) != 0 || repeated(element))
            continue;
        agreement->deflate = true;
        agreement->window_bits_named = strstr(element, "server_max_window_bits") != NULL;
        if (agreement->window_bits_named)
            agreement->server_window_bits = bits_of(element);
        break;
    }
    return STATUS_OK;
}

static void check_response(struct slice response) {
    require(slice_starts(response, SLICE("HTTP/1.1 101 Switching Protocols\r\n")));
    require(slice_ends(response, SLICE("\r\n\r\n")));
    for (size_t i = 0; i < response.size; i++) {
        bool line_end = response.data[i] == '\r' || response.data[i] == '\n';
        require(line_end || (response.data[i] >= ' ' && response.data[i] <= '~'));
        require(response.data[i] != '\n' || response.data[i - 1] == '\r');
    }
}

static enum status shake(const struct ws_request *request, struct ws_agreement *agreement) {
    static const struct slice spoken[] = {{"phoenix", 7}};
    const struct ws_policy policy = {true, spoken, 1};
    struct buffer out;
    buffer_init(&out, 1024);
    enum status status = ws_handshake(&out, request, &policy, agreement);
    require(status == STATUS_OK || status == STATUS_WS_BAD_HANDSHAKE ||
            status == STATUS_WS_UNSUPPORTED_VERSION);
    if (status == STATUS_OK)
        check_response(buffer_slice(&out));
    else
        require(out.size == 0);
    buffer_release(&out);
    return status;
}

static void check_extensions(struct slice extensions) {
    struct ws_agreement agreement, expected;
    struct ws_request request = {.upgrade = SLICE("websocket"),
                                 .connection = SLICE("Upgrade"),
                                 .key = SLICE("dGhlIHNhbXBsZSBub25jZQ=="),
                                 .version = SLICE("13"),
                                 .extensions = extensions};
    if (extensions.size > ORACLE_BYTES_MAX)
        return;
    enum status status = oracle(extensions, &expected);
    require(shake(&request, &agreement) == status);
    if (status != STATUS_OK)
        return;
    require(agreement.deflate == expected.deflate);
    require(agreement.window_bits_named == expected.window_bits_named);
    require(agreement.server_window_bits == expected.server_window_bits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice fields[FIELD_COUNT] = {0};
    const char *begin = (const char *)data;
    const char *end = begin + size;
    for (int i = 0; i < FIELD_COUNT && begin; i++) {
        const char *line = begin < end ? memchr(begin, '\n', (size_t)(end - begin)) : NULL;
        fields[i] = (struct slice){begin, (size_t)((line ? line : end) - begin)};
        begin = line ? line + 1 : NULL;
    }
    struct ws_request request = {fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]};
    struct ws_agreement agreement;
    oracle_prepare();
    (void)shake(&request, &agreement);
    check_extensions(fields[4]);
    return 0;
}
