// Words in lines that one of our programs takes: every byte outside 0x21 to 0x7e, and '%', is written as %XX.

#ifndef TARE_WORDS_H
#define TARE_WORDS_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

static int digit(char letter) {
    return isdigit((unsigned char)letter) ? letter - '0' : (letter | 32) - 'a' + 10;
}

// Decodes in place, and gives the length.
static size_t decode(char *word) {
    char *end = word;
    for (const char *from = word; *from; end++) {
        bool coded = *from == '%' && isxdigit((unsigned char)from[1]) && isxdigit((unsigned char)from[2]);
        *end = coded ? (char)(digit(from[1]) << 4 | digit(from[2])) : *from;
        from += coded ? 3 : 1;
    }
    *end = '\0';
    return (size_t)(end - word);
}

#endif
