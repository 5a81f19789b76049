// Boots a machine by libkrun, with the kernel of libkrunfw, a disk and a tap. Its console is standard output.
//
//   krun_boot CPUS MEMORY_MIB TAP MAC KERNEL_WORDS DISK
//
// The disk is a raw image, /dev/vda in the machine. libkrun is loaded when the program starts, as few machines
// have it: the program is linked dynamically, unlike the others. It ends when the machine ends, and with 1 after one
// line on standard error if a library is missing or libkrun refuses a setting.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED = 1, WRONG_ARGUMENTS = 2, WORDS = 7, GAP_MIB = 3328 };

// Checksums and TSO in both directions: NET_FEATURE_* of libkrun.h, which are virtio's numbers of features.
enum { NET_FEATURES = 1 << 0 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12 };

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "krun_boot: %s: %s\n", what, why);
    exit(FAILED);
}

// ISO C converts no `void *` to a pointer to a function.
static void find(void *from, const char *name, void *function) {
    void *symbol = dlsym(from, name);
    if (!symbol)
        fail("libkrun is too old, or built without disks and networks", dlerror());
    memcpy(function, &symbol, sizeof symbol);
}

static void *load(const char *name) {
    void *loaded = dlopen(name, RTLD_NOW);
    if (!loaded)
        fail("a library cannot be loaded", dlerror());
    return loaded;
}

// Return the memory to request for a guest with `mebibytes` in all: unless it reaches the gap for devices, libkrun adds
// the bundled kernel and what is below it.
static uint32_t requested_memory(uint32_t mebibytes) {
    char *(*get_kernel)(uint64_t *, uint64_t *, size_t *);
    void *kernel = load("libkrunfw.so.5");
    find(kernel, "krunfw_get_kernel", &get_kernel);
    uint64_t address, entry;
    size_t size;
    get_kernel(&address, &entry, &size);
    const uint64_t added = (address + size) >> 20;
    return mebibytes < GAP_MIB && mebibytes > added ? mebibytes - (uint32_t)added : mebibytes;
}

static void check(int32_t result, const char *what) {
    if (result < 0)
        fail(what, strerror(-result));
}

int main(int count, char **words) {
    uint8_t mac[6];
    if (count != WORDS ||
        sscanf(words[4], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) != 6) {
        fputs("usage: krun_boot CPUS MEMORY_MIB TAP MAC KERNEL_WORDS DISK\n", stderr);
        return WRONG_ARGUMENTS;
    }
    void *library = load("libkrun.so.1");
    int32_t (*create)(void);
    int32_t (*set_size)(uint32_t, uint8_t, uint32_t);
    int32_t (*add_disk)(uint32_t, const char *, const char *, _Bool);
    int32_t (*add_tap)(uint32_t, const char *, const uint8_t *, uint32_t, uint32_t);
    int32_t (*set_console)(uint32_t, const char *);
    int32_t (*set_folder)(uint32_t, const char *);
    int32_t (*start)(uint32_t);
    find(library, "krun_create_ctx", &create);
    find(library, "krun_set_vm_config", &set_size);
    find(library, "krun_add_disk", &add_disk);
    find(library, "krun_add_net_tap", &add_tap);
    find(library, "krun_set_console_output", &set_console);
    find(library, "krun_set_workdir", &set_folder);
    find(library, "krun_start_enter", &start);

    const int32_t created = create();
    check(created, "libkrun cannot prepare a machine");
    const uint32_t machine = (uint32_t)created;
    check(set_size(machine, (uint8_t)atoi(words[1]), requested_memory((uint32_t)atoi(words[2]))), "CPUs and memory");
    check(add_disk(machine, "root", words[6], 0), words[6]);
    check(add_tap(machine, words[3], mac, NET_FEATURES, 0), words[3]);
    check(set_console(machine, "/proc/self/fd/1"), "console");
    // libkrun has no function for words of the bundled kernel's command line. It puts this text there as it is, after
    // `rootfstype=virtiofs` and `init=` of its own, which later words replace.
    static char text[2048]; // longer than libkrun's limit
    snprintf(text, sizeof text, "/ %s", words[5]);
    check(set_folder(machine, text), "command line");
    check(start(machine), "the machine cannot be started");
    return 0;
}
