// Starts a program of the image as a container engine would: with the image's user, environment and working directory.
//
//   entrypoint [--]                 the image's entry point and command
//   entrypoint [--] ARGUMENTS...    the entry point with these arguments instead of the command
//   entrypoint --only ARGV...       this program, without the entry point
//
// Options before these: --set NAME=VALUE, repeatable, overrides a variable of the image; --note FILE writes the
// program's process ID to FILE. After --, no argument is parsed as an option.
//
// The image's configuration is in /usr/lib/tare/entrypoint.conf, which serialize_configuration() in
// src/tare/images/oci.py writes. No shell is involved. Exit codes: the program's; 126 and 127 if it cannot be started;
// 125 if its environment cannot be set up.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CANNOT_PREPARE = 125, CANNOT_START = 126, NOT_FOUND = 127 };
#define CONFIGURATION "/usr/lib/tare/entrypoint.conf"
#define MAX_BYTES (4 << 20)
#define MAX_GROUPS 1024
#define MARK "TARE_RUN_" // `supervise` finds the processes of a command by it: ../process_tree.h

struct configuration {
    char *next, *end;
};

static void fail(const char *what) {
    fprintf(stderr, "entrypoint: %s: %s\n", what, strerror(errno));
    exit(CANNOT_PREPARE);
}

static struct configuration read_configuration(void) {
    char *text = malloc(MAX_BYTES);
    size_t length = 0;
    ssize_t more = 1;
    int file = open(CONFIGURATION, O_RDONLY | O_CLOEXEC);
    if (!text || file < 0)
        fail(CONFIGURATION);
    for (; length < MAX_BYTES && (more = read(file, text + length, MAX_BYTES - length)) > 0; length += (size_t)more)
        ;
    close(file);
    if (more != 0 || length == 0 || text[length - 1]) {
        errno = EINVAL;
        fail(CONFIGURATION);
    }
    return (struct configuration){text, text + length};
}

static char *next_word(struct configuration *configuration) {
    char *word = configuration->next;
    if (word >= configuration->end) {
        errno = EINVAL;
        fail(CONFIGURATION);
    }
    configuration->next += strlen(word) + 1;
    return word;
}

static unsigned next_number(struct configuration *configuration) {
    return (unsigned)strtoul(next_word(configuration), NULL, 10);
}

// Return the next list, with room for `more` words, and its length.
static char **next_list(struct configuration *configuration, size_t more, size_t *count) {
    *count = next_number(configuration);
    char **list = calloc(*count + more + 1, sizeof *list);
    if (!list)
        fail("memory");
    for (size_t i = 0; i < *count; i++)
        list[i] = next_word(configuration);
    return list;
}

static void enter_directory(char *directory) {
    for (char *slash = directory; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(directory, 0755);
        *slash = '/';
    }
    mkdir(directory, 0755);
    if (chdir(directory))
        fail(directory);
}

static void set_user(unsigned user, unsigned group, char *groups) {
    gid_t extra_groups[MAX_GROUPS];
    size_t count = 0;
    for (char *each = strtok(groups, ","); each && count < MAX_GROUPS; each = strtok(NULL, ","))
        extra_groups[count++] = (gid_t)strtoul(each, NULL, 10);
    if (setgroups(count, extra_groups) || setgid(group) || setuid(user))
        fail("user and groups");
}

// Take capabilities, given by number, from the program and all that it starts. The call of exec computes root's
// capabilities from the bounding set, and other users have none.
static void drop_capabilities(char *numbers) {
    for (char *each = strtok(numbers, ","); each; each = strtok(NULL, ",")) {
        const unsigned long number = strtoul(each, NULL, 10);
        if (prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
            fail("capabilities");
    }
}

static void copy_marks(char **environment, size_t count, char **inherited) {
    for (; *inherited; inherited++)
        if (strncmp(*inherited, MARK, strlen(MARK)) == 0)
            environment[count++] = *inherited;
}

static void write_pid(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file))
        fail(path);
}

// Replace the variable of the same name, or append it.
static void set_variable(char **environment, size_t *count, char *variable) {
    size_t name = strcspn(variable, "=") + 1, index = 0;
    while (index < *count && strncmp(environment[index], variable, name) != 0)
        index++;
    environment[index] = variable;
    *count += index == *count;
}

static size_t count_words(char **list) {
    size_t length = 0;
    while (list[length])
        length++;
    return length;
}

// Search PATH as engines do, and do not try a shell for a file that is not executable.
static int exec_program(char **argv) {
    char path[4096];
    int reason = ENOENT;
    if (strchr(argv[0], '/')) {
        execv(argv[0], argv);
        return errno;
    }
    const char *directories = getenv("PATH");
    for (const char *directory = directories ? directories : ""; *directory; directory += *directory == ':') {
        size_t length = strcspn(directory, ":");
        int wanted = snprintf(path, sizeof path, "%.*s/%s", (int)length, directory, argv[0]);
        directory += length;
        if (length == 0 || wanted >= (int)sizeof path)
            continue;
        execv(path, argv);
        if (errno != ENOENT && errno != ENOTDIR)
            reason = errno;
    }
    return reason;
}

// Return the image's entry point followed by `arguments`, or by the image's command if there are none.
static char **choose_program(struct configuration *configuration, char **arguments) {
    size_t entry_count, default_count, argument_count = count_words(arguments);
    char **program = next_list(configuration, argument_count, &entry_count);
    char **command = next_list(configuration, 0, &default_count);
    if (argument_count == 0 && !(program = realloc(program, (entry_count + default_count + 1) * sizeof *program)))
        fail("memory");
    memcpy(program + entry_count, argument_count ? arguments : command,
           ((argument_count ? argument_count : default_count) + 1) * sizeof *program);
    return program;
}

int main(int argc, char **argv) {
    struct configuration configuration = read_configuration();
    const unsigned user = next_number(&configuration), group = next_number(&configuration);
    char *groups = next_word(&configuration), *dropped = next_word(&configuration);
    char *directory = next_word(&configuration);
    size_t variables;
    char **environment = next_list(&configuration, count_words(environ) + (size_t)argc, &variables);
    for (; argc > 2; argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--set") == 0)
            set_variable(environment, &variables, argv[2]);
        else if (strcmp(argv[1], "--note") == 0)
            write_pid(argv[2]);
        else
            break;
    }
    const int skips_entry_point = argc > 1 && strcmp(argv[1], "--only") == 0,
              options_end = argc > 1 && strcmp(argv[1], "--") == 0;
    char **program = skips_entry_point ? argv + 2 : choose_program(&configuration, argv + 1 + options_end);
    if (!*program) {
        fputs("entrypoint: the image has no program: give one\n", stderr);
        return CANNOT_PREPARE;
    }
    umask(022);
    enter_directory(directory);
    copy_marks(environment, variables, environ);
    environ = environment;
    drop_capabilities(dropped);
    set_user(user, group, groups);
    int reason = exec_program(program);
    fprintf(stderr, "entrypoint: %s: %s\n", program[0], strerror(reason));
    return reason == ENOENT || reason == ENOTDIR ? NOT_FOUND : CANNOT_START;
}
