/*
 * whetstone: the floating-point benchmark Whetstone in double precision, with its results proved.
 *
 * Eight modules, each a loop over one kind of work, were weighted so that together they have the instruction mix of the
 * scientific programs that were counted for it: H. J. Curnow and B. A. Wichmann, "A Synthetic Benchmark", The Computer
 * Journal 19 (1), 1976, 43-49. Modules 1 and 10 have weight 0 there (5 and 12 do not exist), and are left out.
 *
 * The unit: the weights times 10 are one million Whetstone instructions (the paper; netlib's whetstone.c counts
 * the same, 100 * LOOP * II / seconds for thousands a second). One pass here is the weights times 10, so MWIPS,
 * millions of Whetstone instructions a second, are passes a second.
 *
 * Each module runs all its passes before the next one starts, as in Roy Longbottom's version of 1996, so that the clock
 * is read nine times in all however slow it is in a virtual machine. Every pass starts from the published initial
 * values, so every pass has to end with the published results, which are checked after the measured stretch. A mismatch
 * is named on standard error, nothing is printed on standard output, and the exit code is 1. Exit code 2: wrong
 * arguments.
 *
 * Test hook: compiling with -DFACTOR=0.5 changes one constant of the benchmark, as a miscompilation would.
 */
#include "timed_loop.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FACTOR
#define FACTOR 0.499975
#endif
#define FACTOR_1 0.50025
#define FACTOR_2 2.0

#define SCALE 10
#define MODULES 8
#define MAX_PASSES 2147483627L

/* Keeps the compiler from inlining a function, cloning it for known arguments, or looking into it from its callers. */
#define PROCEDURE static __attribute__((noipa))
/* Hides from the compiler that a variable is known, so that the work on it is not done while compiling. */
#define HIDE(variable) __asm__ volatile("" : "+r"(variable))

/* The benchmark's own global variables: that they are global is part of what it measures. */
static double elements[4];
static int j, k, l;
/* What module 2 left, which each pass of module 3 starts from; and what the last module left. */
static double elements_2[4];
static double results[4];

static void keep(double x1, double x2, double x3, double x4) {
    results[0] = x1;
    results[1] = x2;
    results[2] = x3;
    results[3] = x4;
}

/* Module 2: array elements. */
PROCEDURE void array_elements(long loops) {
    double *e = elements;
    e[0] = 1.0;
    e[1] = e[2] = e[3] = -1.0;
    for (long i = 0; i < loops; i++) {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * FACTOR;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * FACTOR;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * FACTOR;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) * FACTOR;
    }
    memcpy(elements_2, e, sizeof elements_2);
    keep(e[0], e[1], e[2], e[3]);
}

PROCEDURE void change_array(double *e) {
    for (int i = 0; i < 6; i++) {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * FACTOR;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * FACTOR;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * FACTOR;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) / FACTOR_2;
    }
}

/* Module 3: an array as a parameter. */
PROCEDURE void array_parameter(long loops) {
    memcpy(elements, elements_2, sizeof elements);
    for (long i = 0; i < loops; i++)
        change_array(elements);
    keep(elements[0], elements[1], elements[2], elements[3]);
}

/* Module 4: conditional jumps. */
PROCEDURE void conditional_jumps(long loops) {
    int state = 1;
    for (long i = 0; i < loops; i++) {
        HIDE(state);
        state = state == 1 ? 2 : 3;
        HIDE(state);
        state = state > 2 ? 0 : 1;
        HIDE(state);
        state = state < 1 ? 1 : 0;
    }
    keep(state, 0, 0, 0);
}

/* Module 6: integer arithmetic. */
PROCEDURE void integer_arithmetic(long loops) {
    j = 1;
    k = 2;
    l = 3;
    for (long i = 0; i < loops; i++) {
        HIDE(j);
        HIDE(k);
        HIDE(l);
        j = j * (k - j) * (l - k);
        k = l * k - (l - j) * k;
        l = (l - k) * (k + j);
        elements[l - 2] = j + k + l;
        elements[k - 2] = j * k * l;
    }
    keep(elements[0], elements[1], elements[2], elements[3]);
}

/* Module 7: trigonometric functions. */
PROCEDURE void trigonometric_functions(long loops) {
    double x = 0.5;
    double y = 0.5;
    for (long i = 0; i < loops; i++) {
        x = FACTOR * atan(FACTOR_2 * sin(x) * cos(x) / (cos(x + y) + cos(x - y) - 1.0));
        y = FACTOR * atan(FACTOR_2 * sin(y) * cos(y) / (cos(x + y) + cos(x - y) - 1.0));
    }
    keep(x, x, y, y);
}

PROCEDURE void add_and_scale(double x, double y, double *z) {
    x = FACTOR * (x + y);
    y = FACTOR * (x + y);
    *z = (x + y) / FACTOR_2;
}

/* Module 8: procedure calls. */
PROCEDURE void procedure_calls(long loops) {
    double x = 1.0;
    double y = 1.0;
    double z = 1.0;
    for (long i = 0; i < loops; i++)
        add_and_scale(x, y, &z);
    keep(x, y, z, z);
}

PROCEDURE void rotate_elements(void) {
    elements[j - 1] = elements[k - 1];
    elements[k - 1] = elements[l - 1];
    elements[l - 1] = elements[j - 1];
}

/* Module 9: array references. */
PROCEDURE void array_references(long loops) {
    j = 1;
    k = 2;
    l = 3;
    elements[0] = 1.0;
    elements[1] = 2.0;
    elements[2] = 3.0;
    for (long i = 0; i < loops; i++)
        rotate_elements();
    keep(elements[0], elements[1], elements[2], elements[3]);
}

/* Module 11: standard functions. */
PROCEDURE void standard_functions(long loops) {
    double x = 0.75;
    for (long i = 0; i < loops; i++) {
        x = sqrt(exp(log(x) / FACTOR_1));
    }
    keep(x, x, x, x);
}

/* --- around the benchmark --------------------------------------------------------------------------------------- */

struct module {
    const char *name;
    void (*run)(long loops);
    long weight;
    double published[4];
};

/*
 * The modules with the weights of the paper, and the results at ten times the weights: the rows X1 to X4 that the
 * benchmark prints in its classic form (netlib's benchmark/whetstone.c with PRINTOUT, LOOP = 10; the readme of z88dk's
 * whetstone example holds the same rows). Module 4 prints its integer J, here the first of four numbers.
 */
static const struct module modules[MODULES] = {
    {"array_elements", array_elements, 12, {-6.8342e-02, -4.6264e-01, -7.2972e-01, -1.1240e+00}},
    {"array_parameter", array_parameter, 14, {-5.5336e-02, -4.4744e-01, -7.1097e-01, -1.1031e+00}},
    {"conditional_jumps", conditional_jumps, 345, {1, 0, 0, 0}},
    {"integer_arithmetic", integer_arithmetic, 210, {6.0000e+00, 6.0000e+00, -7.1097e-01, -1.1031e+00}},
    {"trigonometric_functions", trigonometric_functions, 32, {4.9041e-01, 4.9041e-01, 4.9039e-01, 4.9039e-01}},
    {"procedure_calls", procedure_calls, 899, {1.0000e+00, 1.0000e+00, 9.9994e-01, 9.9994e-01}},
    {"array_references", array_references, 616, {3.0000e+00, 2.0000e+00, 3.0000e+00, -1.1031e+00}},
    {"standard_functions", standard_functions, 93, {8.3467e-01, 8.3467e-01, 8.3467e-01, 8.3467e-01}},
};

/* Tolerance: one unit of the last of the five significant digits that are published. */
static double tolerance(double published) {
    return published == 0 ? 0 : pow(10, floor(log10(fabs(published))) - 4);
}

static int count_wrong(const struct module *module, const double found[4]) {
    int wrong = 0;
    for (int i = 0; i < 4; i++) {
        double published = module->published[i];
        if (fabs(found[i] - published) <= tolerance(published))
            continue;
        fprintf(stderr, "whetstone: %s: X%d is %.9g, must be %.5g\n", module->name, i + 1, found[i], published);
        wrong++;
    }
    return wrong;
}

static double module_seconds[MODULES]; /* of the last stretch */

/* Run all modules with a number of passes and check them; return the seconds of all, or exit. */
static double measure(long passes) {
    double found[MODULES][4];
    double times[MODULES + 1];
    int wrong = 0;
    times[0] = now_seconds();
    for (int i = 0; i < MODULES; i++) {
        for (long pass = 0; pass < passes; pass++)
            modules[i].run(modules[i].weight * SCALE);
        memcpy(found[i], results, sizeof results);
        times[i + 1] = now_seconds();
    }
    for (int i = 0; i < MODULES; i++) {
        module_seconds[i] = times[i + 1] - times[i];
        wrong += count_wrong(&modules[i], found[i]);
    }
    if (wrong > 0) {
        fprintf(stderr, "whetstone: wrong results after %ld passes: there is no measured speed\n", passes);
        exit(1);
    }
    return times[MODULES] - times[0];
}

static void print(long passes, double seconds) {
    printf("program: whetstone double precision\npasses: %ld\nseconds: %.9f\n", passes, seconds);
    for (int i = 0; i < MODULES; i++)
        printf("seconds_%s: %.9f\n", modules[i].name, module_seconds[i]);
    printf("mwips: %.3f\nverified: yes\n", (double)passes / seconds);
}

int main(int argc, char **argv) {
    static const struct timed_loop whetstone = {"whetstone", "--passes", 1, MAX_PASSES, measure, print};
    return run_timed_loop(&whetstone, argc, argv);
}
