// Percent-escaped words of the line protocols: every byte outside 0x21 to 0x7e, and '%', is written as %XX.

#ifndef TARE_ESCAPE_H
#define TARE_ESCAPE_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

static int hex_digit(char letter) {
    return isdigit((unsigned char)letter) ? letter - '0' : (letter | 32) - 'a' + 10;
}

// Decode in place; return the length.
static size_t unescape(char *word) {
    char *end = word;
    for (const char *from = word; *from; end++) {
        bool escaped = *from == '%' && isxdigit((unsigned char)from[1]) && isxdigit((unsigned char)from[2]);
        *end = escaped ? (char)(hex_digit(from[1]) << 4 | hex_digit(from[2])) : *from;
        from += escaped ? 3 : 1;
    }
    *end = '\0';
    return (size_t)(end - word);
}

#endif
