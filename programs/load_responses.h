// Parser of HTTP/1.1 and RESP responses. It takes bytes as they arrive, in parts of any length, and stores only the
// current line. The bytes are untrusted.

#ifndef TARE_LOAD_RESPONSES_H
#define TARE_LOAD_RESPONSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum {
    LINE_BYTES = 256,       // longer lines are cut: no header that counts is longer
    HEAD_BYTES = 64 * 1024, // most bytes in the lines of a response
    MAX_ITEMS = 1 << 20,    // most items of a RESP array
};

static const uint64_t MAX_BODY_BYTES = UINT64_C(1) << 40;

enum response_state {
    AT_START, // the status line, or the line of a RESP item
    IN_HEAD,
    IN_BODY, // `left` bytes remain
    UNTIL_CLOSE,
    AT_CHUNK,
    IN_CHUNK, // `left` bytes remain
    AFTER_CHUNK,
    IN_TRAILER,
    IN_BULK, // `left` bytes remain
    AFTER_BULK,
    COMPLETE,
    MALFORMED,
};

struct response {
    enum response_state state;
    int status;          // of HTTP
    bool closes;         // the server closes the connection after this response
    bool is_error;       // a status of 400 or more, or an error of RESP
    bool has_length;     // there was a Content-Length
    bool is_chunked;     // the body has chunks
    unsigned items;      // of RESP, still to be read
    unsigned line_bytes; // of the current line, without what was cut
    unsigned head_bytes; // of all lines so far
    uint64_t left;       // see the states
    uint64_t body_bytes; // so far
    char line[LINE_BYTES];
};

static void reset_response(struct response *response) {
    memset(response, 0, offsetof(struct response, line));
    response->items = 1;
}

struct line {
    const char *text; // not terminated
    size_t length;
};

static bool is_blank(char character) {
    return character == ' ' || character == '\t';
}

static bool starts_with(struct line line, const char *lower_case, size_t length) {
    return line.length >= length && !strncasecmp(line.text, lower_case, length);
}

// Return whether a comma-separated header value has a token.
static bool has_token(struct line value, const char *token) {
    size_t length = strlen(token);
    for (size_t at = 0; at < value.length; at++) {
        while (at < value.length && (is_blank(value.text[at]) || value.text[at] == ','))
            at++;
        size_t begin = at;
        while (at < value.length && value.text[at] != ',')
            at++;
        size_t end = at;
        while (end > begin && is_blank(value.text[end - 1]))
            end--;
        if (end - begin == length && !strncasecmp(value.text + begin, token, length))
            return true;
    }
    return false;
}

// Parse a number without a sign, with blanks around it; return false for anything else and for one above the limit.
static bool parse_number(struct line line, unsigned base, uint64_t limit, uint64_t *number) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    while (at < line.length && is_blank(line.text[at]))
        at++;
    size_t begin = at;
    for (*number = 0; at < line.length; at++) {
        const char *digit = memchr(digits, line.text[at] | 0x20, base);
        if (!digit || line.text[at] < '0')
            break;
        *number = *number * base + (uint64_t)(digit - digits);
        if (*number > limit)
            return false;
    }
    if (at == begin)
        return false;
    while (at < line.length && is_blank(line.text[at]))
        at++;
    return at == line.length;
}

// Take bytes up to the end of a line. Return true, and the line without its end, once it is complete.
static bool take_line(struct response *response, const char **data, const char *end, struct line *line) {
    const char *feed = memchr(*data, '\n', (size_t)(end - *data));
    const char *stop = feed ? feed : end;
    size_t length = (size_t)(stop - *data);
    response->head_bytes += length < HEAD_BYTES ? (unsigned)length + 1 : HEAD_BYTES;
    if (feed && !response->line_bytes) {
        *line = (struct line){*data, length < LINE_BYTES ? length : LINE_BYTES};
    } else {
        size_t room = LINE_BYTES - response->line_bytes, copied = length < room ? length : room;
        memcpy(response->line + response->line_bytes, *data, copied);
        response->line_bytes += (unsigned)copied;
        *line = (struct line){response->line, response->line_bytes};
    }
    *data = feed ? feed + 1 : end;
    if (response->head_bytes > HEAD_BYTES)
        response->state = MALFORMED;
    if (!feed || response->state == MALFORMED)
        return false;
    response->line_bytes = 0;
    if (line->length && line->text[line->length - 1] == '\r')
        line->length--;
    return true;
}

// Take bytes of a body; return whether all have been taken.
static bool take_body(struct response *response, const char **data, const char *end) {
    uint64_t available = (uint64_t)(end - *data), taken = available < response->left ? available : response->left;
    *data += taken;
    response->left -= taken;
    response->body_bytes += taken;
    return !response->left;
}

// --- HTTP ---------------------------------------------------------------------------------------------------------

static enum response_state parse_status_line(struct response *response, struct line line) {
    uint64_t status;
    if (line.length < 12 || !starts_with(line, "http/1.", 7) || line.text[8] != ' ' ||
        (line.length > 12 && line.text[12] != ' ') ||
        !parse_number((struct line){line.text + 9, 3}, 10, 999, &status) || status < 100)
        return MALFORMED;
    response->status = (int)status;
    response->closes = line.text[7] == '0';
    response->is_error = status >= 400;
    return IN_HEAD;
}

static enum response_state end_head(struct response *response) {
    if (response->status < 200) { // the final response follows
        response->has_length = response->is_chunked = false;
        return response->status == 101 ? MALFORMED : AT_START;
    }
    if (response->status == 204 || response->status == 304)
        return COMPLETE;
    if (response->is_chunked)
        return AT_CHUNK;
    if (response->has_length)
        return response->left ? IN_BODY : COMPLETE;
    response->closes = true;
    return UNTIL_CLOSE;
}

static enum response_state parse_header(struct response *response, struct line line) {
    if (!line.length)
        return end_head(response);
    if (starts_with(line, "content-length:", 15)) {
        uint64_t before = response->left;
        if (!parse_number((struct line){line.text + 15, line.length - 15}, 10, MAX_BODY_BYTES, &response->left) ||
            (response->has_length && response->left != before))
            return MALFORMED;
        response->has_length = true;
    } else if (starts_with(line, "transfer-encoding:", 18)) {
        response->is_chunked = has_token((struct line){line.text + 18, line.length - 18}, "chunked");
    } else if (starts_with(line, "connection:", 11)) {
        struct line value = {line.text + 11, line.length - 11};
        response->closes = has_token(value, "close") || (response->closes && !has_token(value, "keep-alive"));
    }
    return IN_HEAD;
}

static enum response_state parse_chunk_size(struct response *response, struct line line) {
    const char *extension = memchr(line.text, ';', line.length);
    if (extension)
        line.length = (size_t)(extension - line.text);
    if (!parse_number(line, 16, MAX_BODY_BYTES, &response->left))
        return MALFORMED;
    response->head_bytes = 0; // a body may have any number of chunks
    return response->left ? IN_CHUNK : IN_TRAILER;
}

static enum response_state parse_http_line(struct response *response, struct line line) {
    switch (response->state) {
    case AT_START:
        return parse_status_line(response, line);
    case IN_HEAD:
        return parse_header(response, line);
    case AT_CHUNK:
        return parse_chunk_size(response, line);
    case AFTER_CHUNK:
        return line.length ? MALFORMED : AT_CHUNK;
    default: // IN_TRAILER
        return line.length ? IN_TRAILER : COMPLETE;
    }
}

// --- RESP ---------------------------------------------------------------------------------------------------------

static enum response_state end_item(struct response *response) {
    return --response->items ? AT_START : COMPLETE;
}

static enum response_state parse_item(struct response *response, struct line line) {
    if (!line.length)
        return MALFORMED;
    struct line rest = {line.text + 1, line.length - 1};
    bool is_nil = rest.length == 2 && !memcmp(rest.text, "-1", 2);
    uint64_t number;
    response->head_bytes = 0; // a large array has many lines
    switch (line.text[0]) {
    case '-':
        response->is_error = true;
        return end_item(response);
    case '+':
    case ':':
        return end_item(response);
    case '$':
        if (is_nil)
            return end_item(response);
        if (!parse_number(rest, 10, MAX_BODY_BYTES, &response->left))
            return MALFORMED;
        return response->left ? IN_BULK : AFTER_BULK;
    case '*':
        if (is_nil)
            return end_item(response);
        if (!parse_number(rest, 10, MAX_ITEMS - response->items, &number))
            return MALFORMED;
        response->items += (unsigned)number;
        return end_item(response);
    default:
        return MALFORMED;
    }
}

static enum response_state parse_resp_line(struct response *response, struct line line) {
    if (response->state == AT_START)
        return parse_item(response, line);
    return line.length ? MALFORMED : end_item(response);
}

// Take bytes of a response; return how many, all unless the response is then COMPLETE or MALFORMED.
static size_t parse_response(struct response *response, bool is_http, const char *data, size_t length) {
    const char *at = data, *end = data + length;
    struct line line;
    while (at < end && response->state != COMPLETE && response->state != MALFORMED) {
        switch (response->state) {
        case IN_BODY:
            response->state = take_body(response, &at, end) ? COMPLETE : IN_BODY;
            break;
        case IN_CHUNK:
            response->state = take_body(response, &at, end) ? AFTER_CHUNK : IN_CHUNK;
            break;
        case IN_BULK:
            response->state = take_body(response, &at, end) ? AFTER_BULK : IN_BULK;
            break;
        case UNTIL_CLOSE:
            response->body_bytes += (uint64_t)(end - at);
            at = end;
            break;
        default:
            if (take_line(response, &at, end, &line))
                response->state = is_http ? parse_http_line(response, line) : parse_resp_line(response, line);
        }
    }
    return (size_t)(at - data);
}

#endif
