/* No value in these headers may hold a separator: a quoted value must be a token once
 * its quotes and backslashes are gone (RFC 6455 section 9.1). So a header is cut at its commas,
 * an element at its semicolons, a parameter at its equals sign, and then each piece must be a
 * token, which refuses every misplaced quote or separator. */
#include "wire/websocket/ws_handshake.h"

#include <openssl/evp.h>
#include <strings.h>

#include "wire/websocket/ws_deflate.h"

#define KEY_BYTES  16
#define SHA1_BYTES 20

static const char accept_guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

static bool is_blank(char character) {
    return character == ' ' || character == '\t';
}

static struct slice trim(struct slice text) {
    while (text.size > 0 && is_blank(text.data[0]))
        text = slice_from(text, 1);
    while (text.size > 0 && is_blank(text.data[text.size - 1]))
        text.size--;
    return text;
}

/* The trimmed text before the separator. *text becomes the text after it, or data NULL if there was
 * no separator, so that "a" and "a," differ. */
static struct slice cut(struct slice *text, char separator) {
    const char *end = text->size > 0 ? memchr(text->data, separator, text->size) : NULL;
    size_t size = end ? (size_t)(end - text->data) : text->size;
    struct slice piece = {text->data, size};
    *text = end ? slice_from(*text, size + 1) : (struct slice){NULL, 0};
    return trim(piece);
}

static bool is_token_character(char character) {
    if ((character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
        (character >= '0' && character <= '9'))
        return true;
    return character != '\0' && strchr("!#$%&'*+-.^_`|~", character) != NULL;
}

static bool is_token(struct slice text) {
    for (size_t i = 0; i < text.size; i++)
        if (!is_token_character(text.data[i]))
            return false;
    return text.size > 0;
}

static bool equal_nocase(struct slice a, struct slice b) {
    return a.size == b.size && (a.size == 0 || strncasecmp(a.data, b.data, a.size) == 0);
}

static bool list_names(struct slice list, struct slice wanted) {
    while (list.data)
        if (equal_nocase(cut(&list, ','), wanted))
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

static bool value_push(struct value *value, char character) {
    if (value->size < sizeof(value->text))
        value->text[value->size] = character;
    value->size++;
    return is_token_character(character);
}

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
        if (!value_push(value, text.data[i]))
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

static void offer_parameter(struct offer *offer, struct slice name, const struct value *value) {
    for (int i = 0; i < PARAMETER_COUNT; i++) {
        if (!slice_equal(name, slice_of(parameter_names[i])))
            continue;
        if (offer->named[i] || !value_acceptable((enum parameter)i, value))
            offer->acceptable = false;
        if (i == SERVER_MAX_WINDOW_BITS && value)
            offer->server_window_bits = window_bits(value);
        offer->named[i] = true;
        return;
    }
    offer->acceptable = false;
}

/* False when the element does not follow the grammar, whichever extension it names. */
static bool offer_parse(struct slice element, struct offer *offer) {
    struct slice name = cut(&element, ';');
    *offer = (struct offer){.acceptable = slice_equal(name, SLICE("permessage-deflate")),
                            .server_window_bits = WS_WINDOW_BITS};
    if (!is_token(name))
        return false;
    while (element.data) {
        struct value value;
        struct slice parameter = cut(&element, ';');
        struct slice parameter_name = cut(&parameter, '=');
        bool valued = parameter.data != NULL;
        if (!is_token(parameter_name) || (valued && !value_parse(trim(parameter), &value)))
            return false;
        offer_parameter(offer, parameter_name, valued ? &value : NULL);
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

static struct slice protocol_supported(const struct ws_policy *policy, struct slice name) {
    for (size_t i = 0; i < policy->protocol_count; i++)
        if (slice_equal(policy->protocols[i], name))
            return policy->protocols[i];
    return (struct slice){NULL, 0};
}

static bool protocols_agree(struct slice header, const struct ws_policy *policy,
                            struct ws_agreement *agreement) {
    while (header.data) {
        struct slice name = cut(&header, ',');
        if (name.size == 0)
            continue;
        if (!is_token(name))
            return false;
        if (!agreement->protocol.data)
            agreement->protocol = protocol_supported(policy, name);
    }
    return true;
}

/* ---- fields of the request ---- */

/* The values of all fields of that name, joined with commas. A single one is not copied. */
static enum status join(const struct http1_request *http, struct slice name, struct buffer *memory,
                        struct slice *joined) {
    size_t begin = memory->size;
    size_t count = 0;
    enum status status = STATUS_OK;
    *joined = (struct slice){NULL, 0};
    for (size_t i = 0; i < http->header_count && status == STATUS_OK; i++) {
        if (!equal_nocase(http->headers[i].name, name))
            continue;
        if (count++ == 0)
            *joined = http->headers[i].value;
        if (count == 2)
            status = buffer_append_slice(memory, *joined);
        if (count >= 2 && status == STATUS_OK)
            status = buffer_append_byte(memory, ',');
        if (count >= 2 && status == STATUS_OK)
            status = buffer_append_slice(memory, http->headers[i].value);
    }
    if (count >= 2)
        *joined = slice_from(buffer_slice(memory), begin);
    return status;
}

static enum status single(const struct http1_request *http, struct slice name,
                          struct slice *value) {
    size_t count = 0;
    *value = (struct slice){NULL, 0};
    for (size_t i = 0; i < http->header_count; i++)
        if (equal_nocase(http->headers[i].name, name)) {
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
    if (status == STATUS_OK)
        status = join(http, SLICE("upgrade"), memory, &request->upgrade);
    if (status == STATUS_OK)
        status = join(http, SLICE("connection"), memory, &request->connection);
    if (status == STATUS_OK)
        status = join(http, SLICE("sec-websocket-extensions"), memory, &request->extensions);
    if (status == STATUS_OK)
        status = join(http, SLICE("sec-websocket-protocol"), memory, &request->protocols);
    if (status == STATUS_OK)
        status = single(http, SLICE("sec-websocket-key"), &request->key);
    if (status == STATUS_OK)
        status = single(http, SLICE("sec-websocket-version"), &request->version);
    return status;
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

static enum status response_write(struct buffer *out, const char *accept,
                                  const struct ws_agreement *agreement) {
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
    return response_write(out, accept, agreement);
}
