/* No value in these headers may hold a separator: a quoted value must be a token once
 * its quotes and backslashes are gone (RFC 6455 section 9.1). So a header is cut at its commas,
 * an element at its semicolons, a parameter at its equals sign, and then each piece must be a
 * token, which refuses every misplaced quote or separator. */
#include "wire/websocket/ws_handshake.h"

#include <openssl/evp.h>

#include "wire/http1_syntax.h"

#include "wire/websocket/ws_deflate.h"

#define KEY_BYTES  16
#define SHA1_BYTES 20

static const char accept_guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/* The trimmed text before the separator. *text becomes the text after it, or data NULL if there was
 * no separator, so that "a" and "a," differ. */
static struct slice cut(struct slice *text, char separator) {
    return http1_trim(http1_split(text, separator));
}

static bool list_names(struct slice list, struct slice wanted) {
    while (list.data)
        if (http1_equal_any_case(cut(&list, ','), wanted))
            return true;
    return false;
}

/* ---- permessage-deflate ---- */

/* A parameter's value without its quotes. Only window bits have a value, of two digits, so no more
 * is kept. */
struct value {
    char text[2];
    size_t size;
};

/* False if it is neither a token nor a quoted token. */
static bool value_parse(struct slice text, struct value *value) {
    bool quoted = text.size > 0 && text.data[0] == '"';
    if (quoted && (text.size < 2 || text.data[text.size - 1] != '"'))
        return false;
    size_t end = quoted ? text.size - 1 : text.size;
    *value = (struct value){.size = 0};
    for (size_t i = quoted ? 1 : 0; i < end; i++) {
        if (quoted && text.data[i] == '\\' && ++i == end)
            return false;
        if (value->size < sizeof(value->text))
            value->text[value->size] = text.data[i];
        value->size++;
        if (!http1_is_token((struct slice){text.data + i, 1}))
            return false;
    }
    return value->size > 0;
}

/* 8 to 15 without leading zero; 0 for anything else. */
static int window_bits(const struct value *value) {
    if (value->size == 1 && (value->text[0] == '8' || value->text[0] == '9'))
        return value->text[0] - '0';
    if (value->size == 2 && value->text[0] == '1' && value->text[1] >= '0' && value->text[1] <= '5')
        return 10 + value->text[1] - '0';
    return 0;
}

enum parameter {
    SERVER_NO_CONTEXT_TAKEOVER,
    CLIENT_NO_CONTEXT_TAKEOVER,
    SERVER_MAX_WINDOW_BITS,
    CLIENT_MAX_WINDOW_BITS,
    PARAMETER_COUNT,
};

static const char *const parameter_names[PARAMETER_COUNT] = {
    "server_no_context_takeover",
    "client_no_context_takeover",
    "server_max_window_bits",
    "client_max_window_bits",
};

struct offer {
    bool acceptable;
    bool named[PARAMETER_COUNT];
    int server_window_bits;
};

static bool value_acceptable(enum parameter parameter, const struct value *value) {
    if (parameter == SERVER_MAX_WINDOW_BITS)
        return value && window_bits(value) > 0;
    /* A client may announce a smaller window; the inflater's window fits any. */
    if (parameter == CLIENT_MAX_WINDOW_BITS)
        return !value || window_bits(value) > 0;
    return !value;
}

/* False: the element does not follow the grammar, whichever extension it names. */
static bool offer_parse(struct slice element, struct offer *offer) {
    struct slice name = cut(&element, ';');
    *offer = (struct offer){.acceptable = slice_equal(name, SLICE("permessage-deflate")),
                            .server_window_bits = WS_WINDOW_BITS};
    if (!http1_is_token(name))
        return false;
    while (element.data) {
        struct value value;
        struct slice parameter = cut(&element, ';');
        struct slice parameter_name = cut(&parameter, '=');
        const struct value *given = parameter.data ? &value : NULL;
        if (!http1_is_token(parameter_name) ||
            (given && !value_parse(http1_trim(parameter), &value)))
            return false;
        int i = 0;
        while (i < PARAMETER_COUNT && !slice_equal(parameter_name, slice_of(parameter_names[i])))
            i++;
        if (i == PARAMETER_COUNT || offer->named[i] || !value_acceptable((enum parameter)i, given))
            offer->acceptable = false;
        if (i == PARAMETER_COUNT)
            continue;
        if (i == SERVER_MAX_WINDOW_BITS && given)
            offer->server_window_bits = window_bits(given);
        offer->named[i] = true;
    }
    return true;
}

static bool extensions_agree(struct slice header, bool deflate, struct ws_agreement *agreement) {
    while (header.data) {
        struct offer offer;
        struct slice element = cut(&header, ',');
        if (element.size == 0)
            continue;
        if (!offer_parse(element, &offer))
            return false;
        if (!deflate || agreement->deflate || !offer.acceptable)
            continue;
        agreement->deflate = true;
        agreement->server_window_bits = (unsigned)offer.server_window_bits;
        agreement->window_bits_named = offer.named[SERVER_MAX_WINDOW_BITS];
    }
    return true;
}

/* ---- subprotocols ---- */

/* The first protocol of the client's list that the server supports. */
static bool protocols_agree(struct slice header, const struct ws_policy *policy,
                            struct ws_agreement *agreement) {
    while (header.data) {
        struct slice name = cut(&header, ',');
        if (name.size == 0)
            continue;
        if (!http1_is_token(name))
            return false;
        for (size_t i = 0; i < policy->protocol_count && !agreement->protocol.data; i++)
            if (slice_equal(policy->protocols[i], name))
                agreement->protocol = policy->protocols[i];
    }
    return true;
}

/* ---- fields of the request ---- */

/* The values of all fields of that name, joined with commas. A single one is not copied. The memory
 * has room for all of them. */
static struct slice join(const struct http1_request *http, struct slice name,
                         struct buffer *memory) {
    size_t begin = memory->size;
    size_t count = 0;
    struct slice first = {NULL, 0};
    for (size_t i = 0; i < http->header_count; i++) {
        if (!http1_equal_any_case(http->headers[i].name, name))
            continue;
        if (count++ == 0) {
            first = http->headers[i].value;
            continue;
        }
        if (count == 2)
            buffer_append_slice(memory, first);
        buffer_append_byte(memory, ',');
        buffer_append_slice(memory, http->headers[i].value);
    }
    return count >= 2 ? slice_from(buffer_slice(memory), begin) : first;
}

static enum status single(const struct http1_request *http, struct slice name,
                          struct slice *value) {
    size_t count = 0;
    *value = (struct slice){NULL, 0};
    for (size_t i = 0; i < http->header_count; i++)
        if (http1_equal_any_case(http->headers[i].name, name)) {
            *value = http->headers[i].value;
            count++;
        }
    return count <= 1 ? STATUS_OK : STATUS_WS_BAD_HANDSHAKE;
}

enum status ws_request_read(const struct http1_request *http, struct buffer *memory,
                            struct ws_request *request) {
    size_t size_max = 0;
    for (size_t i = 0; i < http->header_count; i++)
        size_max += http->headers[i].value.size + 1;
    /* Reserved as a whole, so that no joined text moves. */
    enum status status = buffer_reserve(memory, size_max);
    if (status != STATUS_OK)
        return status;
    request->upgrade = join(http, SLICE("upgrade"), memory);
    request->connection = join(http, SLICE("connection"), memory);
    request->extensions = join(http, SLICE("sec-websocket-extensions"), memory);
    request->protocols = join(http, SLICE("sec-websocket-protocol"), memory);
    status = single(http, SLICE("sec-websocket-key"), &request->key);
    if (status == STATUS_OK)
        status = single(http, SLICE("sec-websocket-version"), &request->version);
    return status == STATUS_OK ? buffer_status(memory) : status;
}

/* ---- the handshake itself ---- */

/* The key is canonical when decoding and encoding give the same text. */
static bool key_valid(struct slice key) {
    /* EVP_DecodeBlock writes whole groups of three, and counts padding as zero bytes. */
    unsigned char bytes[WS_KEY_CHARACTERS / 4 * 3] = {0};
    char again[WS_KEY_CHARACTERS + 1];
    if (key.size != WS_KEY_CHARACTERS ||
        EVP_DecodeBlock(bytes, (const unsigned char *)key.data, WS_KEY_CHARACTERS) < 0)
        return false;
    EVP_EncodeBlock((unsigned char *)again, bytes, KEY_BYTES);
    return memcmp(again, key.data, WS_KEY_CHARACTERS) == 0;
}

bool ws_accept(struct slice key, char accept[WS_ACCEPT_CHARACTERS + 1]) {
    char text[WS_KEY_CHARACTERS + sizeof(accept_guid) - 1];
    unsigned char digest[SHA1_BYTES];
    memcpy(text, key.data, WS_KEY_CHARACTERS);
    memcpy(text + WS_KEY_CHARACTERS, accept_guid, sizeof(accept_guid) - 1);
    if (EVP_Digest(text, sizeof(text), digest, NULL, EVP_sha1(), NULL) != 1)
        return false;
    EVP_EncodeBlock((unsigned char *)accept, digest, SHA1_BYTES);
    return true;
}

enum status ws_handshake(struct buffer *out, const struct ws_request *request,
                         const struct ws_policy *policy, struct ws_agreement *agreement) {
    char accept[WS_ACCEPT_CHARACTERS + 1];
    *agreement = (struct ws_agreement){.server_window_bits = WS_WINDOW_BITS};
    if (!list_names(request->upgrade, SLICE("websocket")) ||
        !list_names(request->connection, SLICE("upgrade")) || !request->version.data)
        return STATUS_WS_BAD_HANDSHAKE;
    if (!slice_equal(request->version, SLICE("13")))
        return STATUS_WS_UNSUPPORTED_VERSION;
    if (!key_valid(request->key) ||
        !extensions_agree(request->extensions, policy->deflate, agreement) ||
        !protocols_agree(request->protocols, policy, agreement))
        return STATUS_WS_BAD_HANDSHAKE;
    if (!ws_accept(request->key, accept))
        return STATUS_INTERNAL_ERROR;
    size_t begin = out->size;
    buffer_printf(out,
                  "HTTP/1.1 101 Switching Protocols\r\n"
                  "Upgrade: websocket\r\n"
                  "Connection: Upgrade\r\n"
                  "Sec-WebSocket-Accept: %s\r\n",
                  accept);
    if (agreement->deflate)
        buffer_append_slice(out, SLICE("Sec-WebSocket-Extensions: permessage-deflate; "
                                       "server_no_context_takeover; client_no_context_takeover"));
    if (agreement->window_bits_named)
        buffer_printf(out, "; server_max_window_bits=%u", agreement->server_window_bits);
    if (agreement->deflate)
        buffer_append_slice(out, SLICE("\r\n"));
    if (agreement->protocol.data)
        buffer_printf(out, "Sec-WebSocket-Protocol: %.*s\r\n", (int)agreement->protocol.size,
                      agreement->protocol.data);
    buffer_append_slice(out, SLICE("\r\n"));
    return buffer_end(out, begin);
}
