// The kernels of ramspeed: what they do to arrays and blocks, for each kind of number.
//
// The kinds: integer (64 bits, general registers), float (double precision, one number at a time), mmx (integers in the
// 64-bit registers of MMX) and sse (SSE2, two double-precision numbers at a time). mmx-nt and sse-nt go past the
// caches: they write with non-temporal stores, and fetch what they read half a KiB ahead with PREFETCHNTA. RAMspeed
// does that, too, but for add and triad it fetches into all caches unless told otherwise (`-t 1`).
//
// Arm has no MMX: there, the kinds are integer, float and sse, whose pairs of numbers are in the registers of NEON.

#ifndef TARE_RAMSPEED_H
#define TARE_RAMSPEED_H

#if defined(__x86_64__)
#include <emmintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>

#define FACTOR 3
#ifndef FACTOR_USED
#define FACTOR_USED FACTOR
#endif

// What the kernels read or write between two looks at their counter, at the most.
#define STEP_BYTES 128
#define AHEAD_BYTES 512
#define LINE_BYTES 64

// Elements of 8 bytes: integer and mmx kernels use one member, float and sse kernels the other.
union element {
    int64_t integer;
    double real;
};

// Two numbers in one register.
typedef double pair __attribute__((vector_size(16), may_alias));

// mem: computes `count` elements of c from those of a and b.
typedef void Kernel(const union element *a, const union element *b, union element *c, size_t count);
// mark: return the sum of a block, read a number of rounds. Eight sums, so that additions do not wait for each other.
typedef double Reader(const union element *block, size_t count, long rounds);
// mark: writes the number of the round, from 1 up, all over a block.
typedef void Writer(union element *block, size_t count, long rounds);

// Keeps the compiler from inlining a kernel, cloning it, or dropping the repeats of what it computed before.
#define KERNEL static __attribute__((noipa))
// Ends a round over a block: the compiler must assume that memory has changed.
#define ROUND_ENDS() __asm__ volatile("" ::: "memory")
// Ends a kernel: what was stored past the caches has arrived, and MMX leaves the registers of the old floating point.
#if defined(__x86_64__)
#define KERNEL_ENDS() (_mm_sfence(), _mm_empty())
#else
#define KERNEL_ENDS() ((void)0)
#endif

// The elements that one load or store of the type moves, and those of eight.
#define WIDTH(type) (sizeof(type) / sizeof(union element))
#define EIGHT(type) (8 * WIDTH(type))

// --- kinds of numbers: how they are loaded, shown to the assembler, added, scaled, spread and summed up --------------
// What is shown is neither vectorized nor turned into memcpy or memset.

#define PLAIN_LOAD(type, from) (*(const type *)(from))
#define PLAIN_ADD(x, y) ((x) + (y))
#define PLAIN_SCALE(x) ((x)*FACTOR_USED)
#define AS_DOUBLE(number) ((double)(number))

#define INTEGER_LOAD PLAIN_LOAD
#define INTEGER_SHOW(number) __asm__("" : "+r"(number))
#define INTEGER_ADD PLAIN_ADD
#define INTEGER_SCALE PLAIN_SCALE
#define INTEGER_SPREAD(number) (number)
#define INTEGER_TOTAL AS_DOUBLE

#define FLOAT_LOAD PLAIN_LOAD
#if defined(__x86_64__)
#define FLOAT_SHOW(number) __asm__("" : "+x"(number))
#else
#define FLOAT_SHOW(number) __asm__("" : "+w"(number))
#endif
#define FLOAT_ADD PLAIN_ADD
#define FLOAT_SCALE PLAIN_SCALE
#define FLOAT_SPREAD AS_DOUBLE
#define FLOAT_TOTAL AS_DOUBLE

#define SSE_LOAD PLAIN_LOAD
#define SSE_SHOW FLOAT_SHOW
#define SSE_ADD PLAIN_ADD
#define SSE_SCALE PLAIN_SCALE
#define SSE_SPREAD(number) ((pair){(double)(number), (double)(number)})
#define SSE_TOTAL(numbers) ((numbers)[0] + (numbers)[1])

#if defined(__x86_64__)
// The compiler would take registers of SSE for MMX.
#define MMX_LOAD(type, from) mmx_loaded(from)
#define MMX_SHOW(number) __asm__("" : "+y"(number))
#define MMX_ADD mmx_sum
#define MMX_SCALE mmx_scaled
#define MMX_SPREAD(number) _mm_cvtsi64_m64(number)
#define MMX_TOTAL(number) AS_DOUBLE(_mm_cvtm64_si64(number))

static inline __m64 mmx_loaded(const union element *from) {
    __m64 number;
    __asm__("movq %1, %0" : "=y"(number) : "m"(*from));
    return number;
}

static inline __m64 mmx_sum(__m64 x, __m64 y) {
    __asm__("paddq %1, %0" : "+y"(x) : "y"(y));
    return x;
}

// MMX multiplies words of 16 bits: the lowest holds the number, the others 0.
static inline __m64 mmx_scaled(__m64 x) {
    __asm__("pmullw %1, %0" : "+y"(x) : "y"(_mm_set1_pi16(FACTOR_USED)));
    return x;
}
#endif

// --- ways to memory: through the caches, or past them ----------------------------------------------------------------

#define THROUGH_FETCH(type, from) ((void)(from))
#define THROUGH_STORE(type, to, number) (*(type *)(to) = (number))

#if defined(__x86_64__)
#define MMX_THROUGH_FETCH THROUGH_FETCH
#define MMX_THROUGH_STORE(type, to, number) __asm__("movq %1, %0" : "=m"(*(to)) : "y"(number))

#define SSE_PAST_STORE(type, to, number) _mm_stream_pd(&(to)->real, number)
#define SSE_PAST_FETCH FETCH

#define MMX_PAST_STORE(type, to, number) __asm__("movntq %1, %0" : "=m"(*(to)) : "y"(number))
#define MMX_PAST_FETCH FETCH

// Fetches the lines that eight loads of the type need; past the end of the array, nothing happens.
#define FETCH(type, from)                                                                                              \
    for (size_t at = 0; at < 8 * sizeof(type); at += LINE_BYTES)                                                       \
    _mm_prefetch((const char *)(from) + AHEAD_BYTES + at, _MM_HINT_NTA)
#endif

// --- kernels ---------------------------------------------------------------------------------------------------------

#define MEM_KERNEL(name, type, MATH, WAY, reads_b, expression)                                                         \
    KERNEL void name(const union element *a, const union element *b, union element *c, size_t count) {                 \
        for (size_t i = 0; i < count; i += EIGHT(type)) {                                                              \
            WAY##_FETCH(type, a + i);                                                                                  \
            if (reads_b)                                                                                               \
                WAY##_FETCH(type, b + i);                                                                              \
            _Pragma("GCC unroll 8") for (size_t j = i; j < i + EIGHT(type); j += WIDTH(type)) {                        \
                type x = MATH##_LOAD(type, a + j);                                                                     \
                type y = MATH##_LOAD(type, b + j);                                                                     \
                type z = expression;                                                                                   \
                (void)y;                                                                                               \
                MATH##_SHOW(z);                                                                                        \
                WAY##_STORE(type, c + j, z);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        KERNEL_ENDS();                                                                                                 \
    }

#define READ_PART(part, type, MATH)                                                                                    \
    sum_##part = MATH##_ADD(sum_##part, MATH##_LOAD(type, block + i + part * WIDTH(type)));                            \
    MATH##_SHOW(sum_##part)

#define READ_KERNEL(name, type, MATH, WAY)                                                                             \
    KERNEL double name(const union element *block, size_t count, long rounds) {                                        \
        type sum_0 = {0}, sum_1 = {0}, sum_2 = {0}, sum_3 = {0}, sum_4 = {0}, sum_5 = {0}, sum_6 = {0}, sum_7 = {0};   \
        for (long round = 0; round < rounds; round++) {                                                                \
            for (size_t i = 0; i < count; i += EIGHT(type)) {                                                          \
                WAY##_FETCH(type, block + i);                                                                          \
                READ_PART(0, type, MATH);                                                                              \
                READ_PART(1, type, MATH);                                                                              \
                READ_PART(2, type, MATH);                                                                              \
                READ_PART(3, type, MATH);                                                                              \
                READ_PART(4, type, MATH);                                                                              \
                READ_PART(5, type, MATH);                                                                              \
                READ_PART(6, type, MATH);                                                                              \
                READ_PART(7, type, MATH);                                                                              \
            }                                                                                                          \
            ROUND_ENDS();                                                                                              \
        }                                                                                                              \
        sum_0 = MATH##_ADD(MATH##_ADD(sum_0, sum_1), MATH##_ADD(sum_2, sum_3));                                        \
        sum_4 = MATH##_ADD(MATH##_ADD(sum_4, sum_5), MATH##_ADD(sum_6, sum_7));                                        \
        sum_0 = MATH##_ADD(sum_0, sum_4);                                                                              \
        double total = MATH##_TOTAL(sum_0);                                                                            \
        KERNEL_ENDS();                                                                                                 \
        return total;                                                                                                  \
    }

#define WRITE_KERNEL(name, type, MATH, WAY)                                                                            \
    KERNEL void name(union element *block, size_t count, long rounds) {                                                \
        for (long round = 1; round <= rounds; round++) {                                                               \
            type value = MATH##_SPREAD(round);                                                                         \
            _Pragma("GCC unroll 8") for (size_t i = 0; i < count; i += WIDTH(type)) {                                  \
                MATH##_SHOW(value);                                                                                    \
                WAY##_STORE(type, block + i, value);                                                                   \
            }                                                                                                          \
            ROUND_ENDS();                                                                                              \
        }                                                                                                              \
        KERNEL_ENDS();                                                                                                 \
    }

#define KERNELS(kind, type, MATH, WAY)                                                                                 \
    MEM_KERNEL(kind##_copy, type, MATH, WAY, 0, x)                                                                     \
    MEM_KERNEL(kind##_scale, type, MATH, WAY, 0, MATH##_SCALE(x))                                                      \
    MEM_KERNEL(kind##_add, type, MATH, WAY, 1, MATH##_ADD(x, y))                                                       \
    MEM_KERNEL(kind##_triad, type, MATH, WAY, 1, MATH##_ADD(x, MATH##_SCALE(y)))                                       \
    READ_KERNEL(kind##_read, type, MATH, WAY)                                                                          \
    WRITE_KERNEL(kind##_write, type, MATH, WAY)

KERNELS(integer, int64_t, INTEGER, THROUGH)
KERNELS(float, double, FLOAT, THROUGH)
KERNELS(sse, pair, SSE, THROUGH)
#if defined(__x86_64__)
KERNELS(mmx, __m64, MMX, MMX_THROUGH)
KERNELS(mmx_nt, __m64, MMX, MMX_PAST)
KERNELS(sse_nt, pair, SSE, SSE_PAST)
#endif

#endif
