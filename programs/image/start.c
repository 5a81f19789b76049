// Starts a program of the image as a container engine would: as the image's user, with its environment, in its folder.
//
//   start [--]                 the image's entry point and command
//   start [--] ARGUMENTS...    its entry point with these arguments in place of the command
//   start --only ARGV...       this program, without the entry point
//
// Before these, --set NAME=VALUE, once or more often, gives a variable in place of the image's, and --note FILE writes
// the program's process number there. After --, no word is taken for one of these.
//
// What the image says is in /usr/lib/tare/start.words: see written() in src/tare/images/oci.py. No shell takes part.
// Exit codes: the program's own; 126 and 127 when it cannot be started; 125 when its surroundings cannot be made.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NO_SURROUNDINGS = 125, CANNOT_START = 126, NOT_FOUND = 127 };
#define WORDS "/usr/lib/tare/start.words"
#define MOST_BYTES (4 << 20)
#define MOST_GROUPS 1024
#define MARK "TARE_RUN_" // by which `run` finds what it started: see ../tree.h

struct words {
    char *next, *end;
};

static void fail(const char *what) {
    fprintf(stderr, "start: %s: %s\n", what, strerror(errno));
    exit(NO_SURROUNDINGS);
}

static struct words read_words(void) {
    char *text = malloc(MOST_BYTES);
    size_t length = 0;
    ssize_t more = 1;
    int file = open(WORDS, O_RDONLY | O_CLOEXEC);
    if (!text || file < 0)
        fail(WORDS);
    for (; length < MOST_BYTES && (more = read(file, text + length, MOST_BYTES - length)) > 0; length += (size_t)more)
        ;
    close(file);
    if (more != 0 || length == 0 || text[length - 1]) {
        errno = EINVAL;
        fail(WORDS);
    }
    return (struct words){text, text + length};
}

static char *take(struct words *words) {
    char *word = words->next;
    if (word >= words->end) {
        errno = EINVAL;
        fail(WORDS);
    }
    words->next += strlen(word) + 1;
    return word;
}

static unsigned take_number(struct words *words) {
    return (unsigned)strtoul(take(words), NULL, 10);
}

// Gives the next list with room for `more` words, and its length.
static char **take_list(struct words *words, size_t more, size_t *count) {
    *count = take_number(words);
    char **list = calloc(*count + more + 1, sizeof *list);
    if (!list)
        fail("memory");
    for (size_t i = 0; i < *count; i++)
        list[i] = take(words);
    return list;
}

static void enter_folder(char *folder) {
    for (char *slash = folder; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(folder, 0755);
        *slash = '/';
    }
    mkdir(folder, 0755);
    if (chdir(folder))
        fail(folder);
}

static void become(unsigned user, unsigned group, char *groups) {
    gid_t further[MOST_GROUPS];
    size_t count = 0;
    for (char *each = strtok(groups, ","); each && count < MOST_GROUPS; each = strtok(NULL, ","))
        further[count++] = (gid_t)strtoul(each, NULL, 10);
    if (setgroups(count, further) || setgid(group) || setuid(user))
        fail("user and groups");
}

static void keep_marks(char **environment, size_t count, char **before) {
    for (; *before; before++)
        if (strncmp(*before, MARK, strlen(MARK)) == 0)
            environment[count++] = *before;
}

static void note(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file))
        fail(path);
}

// Puts a variable in the place of the one with its name, or behind all.
static void set_variable(char **environment, size_t *count, char *variable) {
    size_t name = strcspn(variable, "=") + 1, place = 0;
    while (place < *count && strncmp(environment[place], variable, name) != 0)
        place++;
    environment[place] = variable;
    *count += place == *count;
}

static size_t length_of(char **list) {
    size_t length = 0;
    while (list[length])
        length++;
    return length;
}

// As engines do: the folders of PATH in turn, and no shell for a file that is no program.
static int start(char **argv) {
    char path[4096];
    int reason = ENOENT;
    if (strchr(argv[0], '/')) {
        execv(argv[0], argv);
        return errno;
    }
    const char *folders = getenv("PATH");
    for (const char *folder = folders ? folders : ""; *folder; folder += *folder == ':') {
        size_t length = strcspn(folder, ":");
        int wanted = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, argv[0]);
        folder += length;
        if (length == 0 || wanted >= (int)sizeof path)
            continue;
        execv(path, argv);
        if (errno != ENOENT && errno != ENOTDIR)
            reason = errno;
    }
    return reason;
}

// The image's entry point, and these arguments or else the image's command.
static char **chosen(struct words *words, char **arguments) {
    size_t entry, usual, given = length_of(arguments);
    char **program = take_list(words, given, &entry);
    char **command = take_list(words, 0, &usual);
    if (given == 0 && !(program = realloc(program, (entry + usual + 1) * sizeof *program)))
        fail("memory");
    memcpy(program + entry, given ? arguments : command, ((given ? given : usual) + 1) * sizeof *program);
    return program;
}

int main(int argc, char **argv) {
    struct words words = read_words();
    const unsigned user = take_number(&words), group = take_number(&words);
    char *groups = take(&words), *folder = take(&words);
    size_t variables;
    char **environment = take_list(&words, length_of(environ) + (size_t)argc, &variables);
    for (; argc > 2; argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--set") == 0)
            set_variable(environment, &variables, argv[2]);
        else if (strcmp(argv[1], "--note") == 0)
            note(argv[2]);
        else
            break;
    }
    const int only = argc > 1 && strcmp(argv[1], "--only") == 0, parted = argc > 1 && strcmp(argv[1], "--") == 0;
    char **program = only ? argv + 2 : chosen(&words, argv + 1 + parted);
    if (!*program) {
        fputs("start: the image names no program: give one\n", stderr);
        return NO_SURROUNDINGS;
    }
    umask(022);
    enter_folder(folder);
    keep_marks(environment, variables, environ);
    environ = environment;
    become(user, group, groups);
    int reason = start(program);
    fprintf(stderr, "start: %s: %s\n", program[0], strerror(reason));
    return reason == ENOENT || reason == ENOTDIR ? NOT_FOUND : CANNOT_START;
}
