/* What the parts of the simulated NVML library share. */
#ifndef SIMULATION_H
#define SIMULATION_H

/* The library exports each symbol under the name it has in the ABI, old ones as well as new. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <stdbool.h>
#include <stddef.h>

#define MAX_GPUS 16
#define MAX_FAULTS 64
#define MAX_SETTINGS 512
#define MAX_PROFILES 16
#define TEXT 96
#define MIB (1024ULL * 1024ULL)

/* Starts the device table that the host appends to its copy of the library. */
#define TABLE_MARKER "\n--simulated-gpus--\n"

/* How a card can be divided, as its model's file says: see nvidia-smi mig -lgip and -lgipp. */
struct mig_profile {
    unsigned int profile, id, slices, count, size, start_count, starts[8]; /* NVML's number; memory slices */
    unsigned int processors, copy_engines, decoders, jpeg, ofa;
    unsigned long long memory_mib;
    char name[32];
};

/* NVML's opaque device: one card of the device table, or a part of one that is a MIG device. */
struct nvmlDevice_st {
    unsigned int index; /* as this process counts: only cards whose device node it has */
    unsigned int minor; /* N of /dev/nvidiaN */
    unsigned int pci_domain, pci_bus, pci_slot, socket;
    unsigned int pci_device, pci_subsystem;
    unsigned int compute_major, compute_minor, architecture, brand, cores;
    unsigned int bar1_mib, power_limit_mw, power_min_mw, power_idle_mw;
    unsigned int clock_sm, clock_memory, pcie_generation, pcie_width, memory_bus;
    unsigned int temperature, temperature_slowdown, temperature_shutdown, mig_instances;
    unsigned long long memory_mib, reserved_mib;
    unsigned int nvlinks, nvlink_mbps;
    bool ecc, fabric; /* fabric: registers with Fabric Manager, as cards from Hopper on do */
    unsigned int mig_profile_count;
    struct mig_profile mig_profiles[MAX_PROFILES];
    char uuid[TEXT], name[TEXT], serial[TEXT], part_number[TEXT], vbios[TEXT], inforom[TEXT];
};

/* An XID error of one card. */
struct fault {
    unsigned int minor;
    unsigned long long xid;
};

/* The device table: what the host says of itself. */
struct table {
    char library[TEXT];       /* version of the package that this file stands for */
    char loaded[TEXT];        /* version of the loaded kernel module; empty when none is */
    char cuda_driver[TEXT];   /* CUDA version that this driver branch supports, 12020 for 12.2 */
    unsigned int fault_count; /* oldest first */
    struct fault faults[MAX_FAULTS];
    unsigned int setting_count; /* what was set by NVML, see settings.c; processes that were planted */
    char settings[MAX_SETTINGS][64];
    unsigned int count;
    struct nvmlDevice_st gpus[MAX_GPUS];
};

/* Whether nvmlInit was called more often than nvmlShutdown. */
bool simulation_started(void);

/* The table read by nvmlInit. Valid only while started. */
const struct table *simulation_table(void);

/* Read the table at the end of this library's own file; NVML's error when there is none. */
nvmlReturn_t table_read(struct table *table);

/* A path on the host; SIMULATED_GPU_ROOT puts another root in front, for tests without a host. */
void host_path(char *out, size_t size, const char *path);

/* Whether this process has the card's /dev/nvidiaN. */
bool has_node(unsigned int minor);

/* How many processes compute on the card with this minor number; the first `most` go to `pids`. */
unsigned int processes_of(unsigned int minor, unsigned int *pids, unsigned int most);

/* SUCCESS for a handle that this library gave out, otherwise what NVML answers for it. */
nvmlReturn_t check_device(nvmlDevice_t device);

/* Copy text to a caller's buffer of the given length, or INSUFFICIENT_SIZE. */
nvmlReturn_t give_text(const char *text, char *out, unsigned int length);

/* Guards that begin nearly every function. */
#define NEED_INIT()                              \
    do {                                         \
        if (!simulation_started())               \
            return NVML_ERROR_UNINITIALIZED;     \
    } while (0)
#define NEED(pointer)                            \
    do {                                         \
        if ((pointer) == NULL)                   \
            return NVML_ERROR_INVALID_ARGUMENT;  \
    } while (0)
#define NEED_DEVICE(device)                      \
    do {                                         \
        nvmlReturn_t valid = check_device(device); \
        if (valid != NVML_SUCCESS)               \
            return valid;                        \
    } while (0)

#endif
