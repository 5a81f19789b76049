/*
 * dhrystone: the integer benchmark Dhrystone 2.1, with its result proved.
 *
 * One pass is the fixed mix of assignments, control statements, procedure calls and string operations that Reinhold
 * Weicker distilled from statistics of real programs: "Dhrystone: A Synthetic Systems Programming Benchmark",
 * Communications of the ACM 27 (10), 1984, 1013-1030, in the form of its version 2.1 of 1988. Procedures, records and
 * strings carry his names, so that this file can be compared with any other implementation.
 *
 * His rules forbid merging procedures: each one is marked `noipa`, which keeps the compiler from inlining it, cloning
 * it for known arguments, or looking into it from its callers, as if each were compiled in a file of its own.
 *
 * His final values are checked after the measured stretch. A mismatch is named on standard error, nothing is printed on
 * standard output, and the exit code is 1. Exit code 2: wrong arguments.
 *
 * Test hook: compiling with -DPROC_7_STEP=3 changes one constant of the benchmark, as a miscompilation would.
 */
#include "timed_loop.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PROC_7_STEP
#define PROC_7_STEP 2
#endif

#define PROCEDURE static __attribute__((noipa))
/* Arr_2_Glob counts the passes in 32 bits, from 10 up. This is also the number of passes that VTmark ran. */
#define MAX_RUNS 2147483627L
#define FIRST_RUNS 10000L

#define SOME_STRING "DHRYSTONE PROGRAM, SOME STRING"
#define FIRST_STRING "DHRYSTONE PROGRAM, 1'ST STRING"
#define SECOND_STRING "DHRYSTONE PROGRAM, 2'ND STRING"
#define THIRD_STRING "DHRYSTONE PROGRAM, 3'RD STRING"

enum identity { IDENT_1, IDENT_2, IDENT_3, IDENT_4, IDENT_5 };

typedef char String[31];

/* A record with variants. Only the first variant is used; the others give the record its size. */
struct record {
    struct record *ptr_comp;
    enum identity discr;
    union {
        struct {
            enum identity enum_comp;
            int int_comp;
            String str_comp;
        } first;
        struct {
            enum identity enum_comp;
            String str_comp;
        } second;
        struct {
            char ch_1_comp;
            char ch_2_comp;
        } third;
    } variant;
};

/* The local variables of the main loop, as the last pass left them. */
struct locals {
    int int_1;
    int int_2;
    int int_3;
    enum identity enum_loc;
    String str_1;
    String str_2;
};

/* The benchmark's own global variables: that they are global is part of what it measures. */
static struct record *ptr_glob;
static struct record *next_ptr_glob;
static int int_glob;
static bool bool_glob;
static char ch_1_glob;
static char ch_2_glob;
static int arr_1_glob[50];
static int arr_2_glob[50][50];

/* --- the procedures of the benchmark, callees first ------------------------------------------------------------- */

PROCEDURE enum identity func_1(char first, char second) {
    char copy = first;
    char other = copy;
    if (other != second)
        return IDENT_1;
    ch_1_glob = copy;
    return IDENT_2;
}

PROCEDURE bool func_2(const char *first, const char *second) {
    int index = 2;
    char letter = '\0';
    while (index <= 2) {
        if (func_1(first[index], second[index + 1]) == IDENT_1) {
            letter = 'A';
            index += 1;
        }
    }
    if (letter >= 'W' && letter < 'Z')
        index = 7;
    if (letter == 'R')
        return true;
    if (strcmp(first, second) > 0) {
        index += 7;
        int_glob = index;
        return true;
    }
    return false;
}

PROCEDURE bool func_3(enum identity value) {
    enum identity copy = value;
    return copy == IDENT_3;
}

PROCEDURE void proc_6(enum identity value, enum identity *result) {
    *result = value;
    if (!func_3(value))
        *result = IDENT_4;
    switch (value) {
    case IDENT_1:
        *result = IDENT_1;
        break;
    case IDENT_2:
        *result = int_glob > 100 ? IDENT_1 : IDENT_4;
        break;
    case IDENT_3:
        *result = IDENT_2;
        break;
    case IDENT_4:
        break;
    case IDENT_5:
        *result = IDENT_3;
        break;
    }
}

PROCEDURE void proc_7(int first, int second, int *result) {
    int stepped = first + PROC_7_STEP;
    *result = second + stepped;
}

PROCEDURE void proc_8(int *array_1, int (*array_2)[50], int first, int second) {
    int row = first + 5;
    array_1[row] = second;
    array_1[row + 1] = array_1[row];
    array_1[row + 30] = row;
    for (int column = row; column <= row + 1; column++)
        array_2[row][column] = row;
    array_2[row][row - 1] += 1;
    array_2[row + 20][row] = array_1[row];
    int_glob = 5;
}

PROCEDURE void proc_3(struct record **result) {
    if (ptr_glob != NULL)
        *result = ptr_glob->ptr_comp;
    proc_7(10, int_glob, &ptr_glob->variant.first.int_comp);
}

PROCEDURE void proc_1(struct record *record) {
    struct record *next = record->ptr_comp;
    *record->ptr_comp = *ptr_glob;
    record->variant.first.int_comp = 5;
    next->variant.first.int_comp = record->variant.first.int_comp;
    next->ptr_comp = record->ptr_comp;
    proc_3(&next->ptr_comp);
    if (next->discr == IDENT_1) {
        next->variant.first.int_comp = 6;
        proc_6(record->variant.first.enum_comp, &next->variant.first.enum_comp);
        next->ptr_comp = ptr_glob->ptr_comp;
        proc_7(next->variant.first.int_comp, 10, &next->variant.first.int_comp);
    } else {
        *record = *record->ptr_comp;
    }
}

PROCEDURE void proc_2(int *result) {
    int value = *result + 10;
    enum identity state = IDENT_2;
    do {
        if (ch_1_glob == 'A') {
            value -= 1;
            *result = value - int_glob;
            state = IDENT_1;
        }
    } while (state != IDENT_1);
}

PROCEDURE void proc_4(void) {
    bool is_a = ch_1_glob == 'A';
    bool_glob = is_a | bool_glob;
    ch_2_glob = 'B';
}

PROCEDURE void proc_5(void) {
    ch_1_glob = 'A';
    bool_glob = false;
}

/* The passes: what is measured. */
PROCEDURE void run_passes(int runs, struct locals *left) {
    int int_1 = 0;
    int int_2 = 0;
    int int_3 = 0;
    enum identity enum_loc = IDENT_1;
    String str_1;
    String str_2;

    strcpy(str_1, FIRST_STRING);
    for (int run = 1; run <= runs; run++) {
        proc_5();
        proc_4();
        int_1 = 2;
        int_2 = 3;
        strcpy(str_2, SECOND_STRING);
        enum_loc = IDENT_2;
        bool_glob = !func_2(str_1, str_2);
        while (int_1 < int_2) {
            int_3 = 5 * int_1 - int_2;
            proc_7(int_1, int_2, &int_3);
            int_1 += 1;
        }
        proc_8(arr_1_glob, arr_2_glob, int_1, int_3);
        proc_1(ptr_glob);
        for (char letter = 'A'; letter <= ch_2_glob; letter++) {
            if (enum_loc == func_1(letter, 'C')) {
                proc_6(IDENT_1, &enum_loc);
                strcpy(str_2, THIRD_STRING);
                int_2 = run;
                int_glob = run;
            }
        }
        int_2 = int_2 * int_1;
        int_1 = int_2 / int_3;
        int_2 = 7 * (int_2 - int_3) - int_1;
        proc_2(&int_1);
    }
    left->int_1 = int_1;
    left->int_2 = int_2;
    left->int_3 = int_3;
    left->enum_loc = enum_loc;
    strcpy(left->str_1, str_1);
    strcpy(left->str_2, str_2);
}

/* --- around the benchmark --------------------------------------------------------------------------------------- */

static void reset(struct record *record, struct record *next) {
    memset(record, 0, sizeof *record);
    memset(next, 0, sizeof *next);
    memset(arr_1_glob, 0, sizeof arr_1_glob);
    memset(arr_2_glob, 0, sizeof arr_2_glob);
    int_glob = 0;
    bool_glob = false;
    ch_1_glob = '\0';
    ch_2_glob = '\0';
    ptr_glob = record;
    next_ptr_glob = next;
    record->ptr_comp = next;
    record->discr = IDENT_1;
    record->variant.first.enum_comp = IDENT_3;
    record->variant.first.int_comp = 40;
    strcpy(record->variant.first.str_comp, SOME_STRING);
    arr_2_glob[8][7] = 10;
}

static int wrong_number(const char *name, long found, long published) {
    if (found == published)
        return 0;
    fprintf(stderr, "dhrystone: %s is %ld, must be %ld\n", name, found, published);
    return 1;
}

static int wrong_text(const char *name, const char *found, const char *published) {
    if (strcmp(found, published) == 0)
        return 0;
    fprintf(stderr, "dhrystone: %s is \"%.31s\", must be \"%s\"\n", name, found, published);
    return 1;
}

static int wrong_record(const char *name, const struct record *record, const long published[3]) {
    char part[64];
    int wrong = 0;
    snprintf(part, sizeof part, "%s->Discr", name);
    wrong += wrong_number(part, record->discr, published[0]);
    snprintf(part, sizeof part, "%s->Enum_Comp", name);
    wrong += wrong_number(part, record->variant.first.enum_comp, published[1]);
    snprintf(part, sizeof part, "%s->Int_Comp", name);
    wrong += wrong_number(part, record->variant.first.int_comp, published[2]);
    snprintf(part, sizeof part, "%s->Str_Comp", name);
    return wrong + wrong_text(part, record->variant.first.str_comp, SOME_STRING);
}

/* Count the variables that do not have the final values which version 2.1 publishes. */
static int count_wrong(long runs, const struct locals *left) {
    int wrong = 0;
    wrong += wrong_number("Int_Glob", int_glob, 5);
    wrong += wrong_number("Bool_Glob", bool_glob, 1);
    wrong += wrong_number("Ch_1_Glob", ch_1_glob, 'A');
    wrong += wrong_number("Ch_2_Glob", ch_2_glob, 'B');
    wrong += wrong_number("Arr_1_Glob[8]", arr_1_glob[8], 7);
    wrong += wrong_number("Arr_2_Glob[8][7]", arr_2_glob[8][7], runs + 10);
    wrong += wrong_record("Ptr_Glob", ptr_glob, (const long[]){0, 2, 17});
    wrong += wrong_record("Next_Ptr_Glob", next_ptr_glob, (const long[]){0, 1, 18});
    wrong += wrong_number("Ptr_Glob->Ptr_Comp == Next_Ptr_Glob", ptr_glob->ptr_comp == next_ptr_glob, 1);
    wrong += wrong_number("Next_Ptr_Glob->Ptr_Comp == Next_Ptr_Glob", next_ptr_glob->ptr_comp == next_ptr_glob, 1);
    wrong += wrong_number("Int_1_Loc", left->int_1, 5);
    wrong += wrong_number("Int_2_Loc", left->int_2, 13);
    wrong += wrong_number("Int_3_Loc", left->int_3, 7);
    wrong += wrong_number("Enum_Loc", left->enum_loc, 1);
    wrong += wrong_text("Str_1_Loc", left->str_1, FIRST_STRING);
    wrong += wrong_text("Str_2_Loc", left->str_2, SECOND_STRING);
    return wrong;
}

/* Run one stretch of passes from a fresh state and check it; return its seconds, or exit. */
static double measure(long runs) {
    struct record record;
    struct record next;
    struct locals left;
    reset(&record, &next);
    double start_seconds = now_seconds();
    run_passes((int)runs, &left);
    double seconds = now_seconds() - start_seconds;
    if (count_wrong(runs, &left) > 0) {
        fprintf(stderr, "dhrystone: wrong final values after %ld runs: there is no result\n", runs);
        exit(1);
    }
    return seconds;
}

static void print(long runs, double seconds) {
    printf("program: dhrystone 2.1\nruns: %ld\nseconds: %.9f\n", runs, seconds);
    printf("dhrystones_per_second: %.3f\nverified: yes\n", (double)runs / seconds);
}

int main(int argc, char **argv) {
    static const struct timed_loop dhrystone = {"dhrystone", "--runs", FIRST_RUNS, MAX_RUNS, measure, print};
    return run_timed_loop(&dhrystone, argc, argv);
}
