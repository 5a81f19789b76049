/* Calculates lines of arithmetic with variables and functions: a scanner, a parser that emits code, and a machine. */
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 31, MAX_CODE = 512, MAX_STACK = 64, MAX_VARIABLES = 128 };

/* ---- scanner ---- */

enum token_kind { END, NUMBER, NAME, SYMBOL, INVALID };

struct token {
    enum token_kind kind;
    double number;
    char name[MAX_NAME + 1];
    char symbol;
};

struct scanner {
    const char *at;
    struct token token;
};

static void scan(struct scanner *scanner) {
    struct token *token = &scanner->token;
    while (isspace((unsigned char)*scanner->at)) {
        scanner->at++;
    }
    char first = *scanner->at;
    if (first == '\0') {
        token->kind = END;
    } else if (isdigit((unsigned char)first)) {
        char *end;
        token->kind = NUMBER;
        token->number = strtod(scanner->at, &end);
        scanner->at = end;
    } else if (isalpha((unsigned char)first)) {
        size_t length = 0;
        while (isalnum((unsigned char)scanner->at[length])) {
            length++;
        }
        token->kind = length <= MAX_NAME ? NAME : INVALID;
        if (token->kind == NAME) {
            memcpy(token->name, scanner->at, length);
            token->name[length] = '\0';
        }
        scanner->at += length;
    } else if (strchr("+-*/^(),=<>", first)) {
        token->kind = SYMBOL;
        token->symbol = first;
        scanner->at++;
    } else {
        token->kind = INVALID;
    }
}

static bool is_symbol(const struct scanner *scanner, char symbol) {
    return scanner->token.kind == SYMBOL && scanner->token.symbol == symbol;
}

/* ---- code ---- */

enum operation { PUSH, LOAD, STORE, ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATE, LESS, MORE, CALL };

struct instruction {
    enum operation operation;
    union {
        double number;
        int index;
    } argument;
};

struct code {
    struct instruction instructions[MAX_CODE];
    int count;
    const char *error;
};

static void emit(struct code *code, struct instruction instruction) {
    if (code->count == MAX_CODE) {
        code->error = "the line is too long";
        return;
    }
    code->instructions[code->count++] = instruction;
}

static void emit_plain(struct code *code, enum operation operation) {
    emit(code, (struct instruction){.operation = operation});
}

static void emit_index(struct code *code, enum operation operation, int index) {
    emit(code, (struct instruction){.operation = operation, .argument.index = index});
}

/* ---- functions and variables ---- */

struct function {
    const char *name;
    int arguments;
    double (*call)(const double *arguments);
};

static double call_sqrt(const double *arguments) { return sqrt(arguments[0]); }
static double call_sine(const double *arguments) { return sin(arguments[0]); }
static double call_cosine(const double *arguments) { return cos(arguments[0]); }
static double call_exp(const double *arguments) { return exp(arguments[0]); }
static double call_log(const double *arguments) { return log(arguments[0]); }
static double call_floor(const double *arguments) { return floor(arguments[0]); }
static double call_max(const double *arguments) { return fmax(arguments[0], arguments[1]); }
static double call_min(const double *arguments) { return fmin(arguments[0], arguments[1]); }
static double call_choose(const double *arguments) { return arguments[0] != 0 ? arguments[1] : arguments[2]; }

static const struct function functions[] = {
    {"sqrt", 1, call_sqrt},  {"sin", 1, call_sine}, {"cos", 1, call_cosine}, {"exp", 1, call_exp},       {"log", 1, call_log},
    {"floor", 1, call_floor}, {"max", 2, call_max}, {"min", 2, call_min},    {"choose", 3, call_choose},
};

static int find_function(const char *name) {
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++) {
        if (strcmp(functions[index].name, name) == 0) {
            return (int)index;
        }
    }
    return -1;
}

struct variables {
    char names[MAX_VARIABLES][MAX_NAME + 1];
    double values[MAX_VARIABLES];
    bool is_set[MAX_VARIABLES];
    int count;
};

static int find_variable(struct variables *variables, const char *name) {
    for (int index = 0; index < variables->count; index++) {
        if (strcmp(variables->names[index], name) == 0) {
            return index;
        }
    }
    if (variables->count == MAX_VARIABLES) {
        return -1;
    }
    strcpy(variables->names[variables->count], name);
    return variables->count++;
}

/* ---- parser ---- */

struct parser {
    struct scanner scanner;
    struct variables *variables;
    struct code *code;
};

static void parse_comparison(struct parser *parser);

static void fail(struct parser *parser, const char *error) {
    if (!parser->code->error) {
        parser->code->error = error;
    }
}

static void expect(struct parser *parser, char symbol, const char *error) {
    if (is_symbol(&parser->scanner, symbol)) {
        scan(&parser->scanner);
    } else {
        fail(parser, error);
    }
}

static void parse_call(struct parser *parser, const char *name) {
    int index = find_function(name), given = 0;
    if (index < 0) {
        fail(parser, "there is no such function");
        return;
    }
    scan(&parser->scanner);
    while (!parser->code->error && !is_symbol(&parser->scanner, ')')) {
        parse_comparison(parser);
        given++;
        if (!is_symbol(&parser->scanner, ',')) {
            break;
        }
        scan(&parser->scanner);
    }
    expect(parser, ')', "a ) is missing after the arguments");
    if (given != functions[index].arguments) {
        fail(parser, "a function has another number of arguments");
    }
    emit_index(parser->code, CALL, index);
}

static void parse_name(struct parser *parser) {
    char name[MAX_NAME + 1];
    strcpy(name, parser->scanner.token.name);
    scan(&parser->scanner);
    if (is_symbol(&parser->scanner, '(')) {
        parse_call(parser, name);
        return;
    }
    int index = find_variable(parser->variables, name);
    if (index < 0) {
        fail(parser, "there are too many variables");
        return;
    }
    if (is_symbol(&parser->scanner, '=')) {
        scan(&parser->scanner);
        parse_comparison(parser);
        emit_index(parser->code, STORE, index);
    } else {
        emit_index(parser->code, LOAD, index);
    }
}

static void parse_operand(struct parser *parser) {
    const struct token *token = &parser->scanner.token;
    if (parser->code->error) {
        return;
    }
    if (token->kind == NUMBER) {
        emit(parser->code, (struct instruction){.operation = PUSH, .argument.number = token->number});
        scan(&parser->scanner);
    } else if (token->kind == NAME) {
        parse_name(parser);
    } else if (is_symbol(&parser->scanner, '(')) {
        scan(&parser->scanner);
        parse_comparison(parser);
        expect(parser, ')', "a ) is missing");
    } else if (is_symbol(&parser->scanner, '-')) {
        scan(&parser->scanner);
        parse_operand(parser);
        emit_plain(parser->code, NEGATE);
    } else {
        fail(parser, "a number, a name or a ( is missing");
    }
}

static void parse_power(struct parser *parser) {
    parse_operand(parser);
    if (is_symbol(&parser->scanner, '^')) {
        scan(&parser->scanner);
        parse_power(parser);
        emit_plain(parser->code, POWER);
    }
}

static void parse_product(struct parser *parser) {
    parse_power(parser);
    while (!parser->code->error && (is_symbol(&parser->scanner, '*') || is_symbol(&parser->scanner, '/'))) {
        enum operation operation = is_symbol(&parser->scanner, '*') ? MULTIPLY : DIVIDE;
        scan(&parser->scanner);
        parse_power(parser);
        emit_plain(parser->code, operation);
    }
}

static void parse_sum(struct parser *parser) {
    parse_product(parser);
    while (!parser->code->error && (is_symbol(&parser->scanner, '+') || is_symbol(&parser->scanner, '-'))) {
        enum operation operation = is_symbol(&parser->scanner, '+') ? ADD : SUBTRACT;
        scan(&parser->scanner);
        parse_product(parser);
        emit_plain(parser->code, operation);
    }
}

static void parse_comparison(struct parser *parser) {
    parse_sum(parser);
    if (is_symbol(&parser->scanner, '<') || is_symbol(&parser->scanner, '>')) {
        enum operation operation = is_symbol(&parser->scanner, '<') ? LESS : MORE;
        scan(&parser->scanner);
        parse_sum(parser);
        emit_plain(parser->code, operation);
    }
}

/* ---- machine ---- */

static double calculate(enum operation operation, double left, double right) {
    switch (operation) {
    case ADD: return left + right;
    case SUBTRACT: return left - right;
    case MULTIPLY: return left * right;
    case DIVIDE: return left / right;
    case POWER: return pow(left, right);
    case LESS: return left < right;
    default: return left > right;
    }
}

static const char *run(const struct code *code, struct variables *variables, double *result) {
    double stack[MAX_STACK];
    int height = 0;
    for (int at = 0; at < code->count; at++) {
        const struct instruction *instruction = &code->instructions[at];
        int index = instruction->argument.index;
        if (height == MAX_STACK) {
            return "the line is nested too deeply";
        }
        switch (instruction->operation) {
        case PUSH: stack[height++] = instruction->argument.number; break;
        case LOAD:
            if (!variables->is_set[index]) {
                return "a variable has no value";
            }
            stack[height++] = variables->values[index];
            break;
        case STORE:
            variables->values[index] = stack[height - 1];
            variables->is_set[index] = true;
            break;
        case NEGATE: stack[height - 1] = -stack[height - 1]; break;
        case CALL:
            height -= functions[index].arguments;
            stack[height] = functions[index].call(stack + height);
            height++;
            break;
        default:
            height--;
            stack[height - 1] = calculate(instruction->operation, stack[height - 1], stack[height]);
        }
    }
    *result = stack[0];
    return NULL;
}

int main(void) {
    static struct variables variables;
    char line[4096];
    int failed = 0;
    while (fgets(line, sizeof line, stdin)) {
        struct code code = {.count = 0, .error = NULL};
        struct parser parser = {.scanner = {.at = line}, .variables = &variables, .code = &code};
        double result = 0;
        scan(&parser.scanner);
        parse_comparison(&parser);
        if (!code.error && parser.scanner.token.kind != END) {
            code.error = "something is left at the end of the line";
        }
        const char *error = code.error ? code.error : run(&code, &variables, &result);
        if (error) {
            fprintf(stderr, "%s\n", error);
            failed = 1;
        } else {
            printf("%.10g\n", result);
        }
    }
    return failed;
}
