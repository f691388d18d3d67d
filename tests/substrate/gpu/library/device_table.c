/* The device table: text at the end of the library's own file.
 *
 * A container gets the host's library mounted, and nothing else that could tell it about cards.
 * Table and library being one file, UUIDs are the same inside and outside.
 * A card exists for a process only if its device node does, as with the real driver.
 */
#define _GNU_SOURCE
#include "simulation.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 4096

enum kind { NUMBER, HEXADECIMAL, LONG, FLAG, STRING };

struct field {
    const char *key;
    enum kind kind;
    size_t offset;
};

#define FIELD(name, kind) {#name, kind, offsetof(struct nvmlDevice_st, name)}

static const struct field fields[] = {
    FIELD(minor, NUMBER),
    FIELD(pci_domain, HEXADECIMAL),
    FIELD(pci_bus, HEXADECIMAL),
    FIELD(pci_slot, HEXADECIMAL),
    FIELD(socket, NUMBER),
    FIELD(pci_device, HEXADECIMAL),
    FIELD(pci_subsystem, HEXADECIMAL),
    FIELD(compute_major, NUMBER),
    FIELD(compute_minor, NUMBER),
    FIELD(architecture, NUMBER),
    FIELD(brand, NUMBER),
    FIELD(cores, NUMBER),
    FIELD(bar1_mib, NUMBER),
    FIELD(power_limit_mw, NUMBER),
    FIELD(power_min_mw, NUMBER),
    FIELD(power_idle_mw, NUMBER),
    FIELD(clock_sm, NUMBER),
    FIELD(clock_memory, NUMBER),
    FIELD(pcie_generation, NUMBER),
    FIELD(pcie_width, NUMBER),
    FIELD(memory_bus, NUMBER),
    FIELD(temperature, NUMBER),
    FIELD(temperature_slowdown, NUMBER),
    FIELD(temperature_shutdown, NUMBER),
    FIELD(mig_instances, NUMBER),
    FIELD(memory_mib, LONG),
    FIELD(reserved_mib, LONG),
    FIELD(ecc, FLAG),
    FIELD(nvlinks, NUMBER),
    FIELD(nvlink_mbps, NUMBER),
    FIELD(fabric, FLAG),
    FIELD(uuid, STRING),
    FIELD(name, STRING),
    FIELD(serial, STRING),
    FIELD(part_number, STRING),
    FIELD(vbios, STRING),
    FIELD(inforom, STRING),
};

void host_path(char *out, size_t size, const char *path) {
    const char *root = getenv("SIMULATED_GPU_ROOT");
    snprintf(out, size, "%s%s", root ? root : "", path);
}

bool has_node(unsigned int minor) {
    char name[32], path[PATH_SIZE];
    snprintf(name, sizeof name, "/dev/nvidia%u", minor);
    host_path(path, sizeof path, name);
    /* A node that a cgroup forbids is as good as none: the driver cannot be opened through it. */
    return access(path, R_OK | W_OK) == 0;
}

static void set_text(char *out, const char *value) {
    snprintf(out, TEXT, "%s", value);
}

static void set_field(struct nvmlDevice_st *gpu, const char *key, const char *value) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, key) != 0)
            continue;
        void *at = (char *)gpu + fields[i].offset;
        switch (fields[i].kind) {
        case NUMBER: *(unsigned int *)at = (unsigned int)strtoul(value, NULL, 10); break;
        case HEXADECIMAL: *(unsigned int *)at = (unsigned int)strtoul(value, NULL, 16); break;
        case LONG: *(unsigned long long *)at = strtoull(value, NULL, 10); break;
        case FLAG: *(bool *)at = strcmp(value, "1") == 0; break;
        case STRING: set_text(at, value); break;
        }
        return;
    }
}

/* "profile id slices count size memory_mib processors copy decoders jpeg ofa starts name" */
static void add_profile(struct nvmlDevice_st *gpu, const char *value) {
    struct mig_profile one = {0};
    char starts[TEXT], *rest = NULL;
    if (gpu->mig_profile_count == MAX_PROFILES ||
        sscanf(value, "%u %u %u %u %u %llu %u %u %u %u %u %95s %31s", &one.profile, &one.id, &one.slices,
               &one.count, &one.size, &one.memory_mib, &one.processors, &one.copy_engines, &one.decoders,
               &one.jpeg, &one.ofa, starts, one.name) != 13)
        return;
    for (char *s = strtok_r(starts, ",", &rest); s && one.start_count < 8; s = strtok_r(NULL, ",", &rest))
        one.starts[one.start_count++] = (unsigned int)strtoul(s, NULL, 10);
    gpu->mig_profiles[gpu->mig_profile_count++] = one;
}

static void add_fault(struct table *table, const char *value) {
    struct fault fault;
    if (table->fault_count < MAX_FAULTS && sscanf(value, "%u %llu", &fault.minor, &fault.xid) == 2)
        table->faults[table->fault_count++] = fault;
}

/* Lines of "key value"; a line "gpu" starts the next card. Unknown keys are the host's affair. */
static void parse(struct table *table, char *text) {
    struct nvmlDevice_st *gpu = NULL;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, ' ');
        if (value)
            *value++ = '\0';
        if (strcmp(line, "gpu") == 0) {
            if (table->count == MAX_GPUS)
                return;
            gpu = &table->gpus[table->count++];
            continue;
        }
        if (!value)
            continue;
        if (gpu && strncmp(line, "mig_profile_", 12) == 0)
            add_profile(gpu, value);
        else if (gpu)
            set_field(gpu, line, value);
        else if (strcmp(line, "library") == 0)
            set_text(table->library, value);
        else if (strcmp(line, "loaded") == 0)
            set_text(table->loaded, value);
        else if (strcmp(line, "cuda_driver") == 0)
            set_text(table->cuda_driver, value);
        else if (strcmp(line, "fault") == 0)
            add_fault(table, value);
        else if (table->setting_count < MAX_SETTINGS)
            snprintf(table->settings[table->setting_count++], sizeof *table->settings, "%s %s", line, value);
    }
}

static void keep_visible(struct table *table) {
    unsigned int kept = 0;
    for (unsigned int i = 0; i < table->count; i++) {
        if (!has_node(table->gpus[i].minor))
            continue;
        table->gpus[kept] = table->gpus[i];
        table->gpus[kept].index = kept;
        kept++;
    }
    table->count = kept;
}

static char *read_whole(const char *path, size_t *size) {
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return NULL;
    char *data = NULL;
    if (fseek(stream, 0, SEEK_END) == 0) {
        long length = ftell(stream);
        rewind(stream);
        data = length > 0 ? malloc((size_t)length + 1) : NULL;
        if (data && fread(data, 1, (size_t)length, stream) != (size_t)length) {
            free(data);
            data = NULL;
        }
        if (data) {
            data[length] = '\0';
            *size = (size_t)length;
        }
    }
    fclose(stream);
    return data;
}

static char *last_marker(char *data, size_t size) {
    const size_t length = sizeof TABLE_MARKER - 1;
    for (size_t at = size < length ? 0 : size - length + 1; at-- > 0;)
        if (memcmp(data + at, TABLE_MARKER, length) == 0)
            return data + at + length;
    return NULL;
}

nvmlReturn_t table_read(struct table *table) {
    Dl_info self;
    size_t size = 0;
    memset(table, 0, sizeof *table);
    if (!dladdr((void *)table_read, &self))
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    char *data = read_whole(self.dli_fname, &size);
    if (!data)
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    /* The marker is also in the program's constants: a file with no table after it says so by
     * what follows not being a table. */
    char *text = last_marker(data, size);
    if (text && strncmp(text, "library ", 8) == 0) {
        parse(table, text);
        keep_visible(table);
    }
    free(data);
    return NVML_SUCCESS;
}
