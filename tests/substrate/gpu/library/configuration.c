/* libnvidia-cfg: the few functions by which nvidia-persistenced finds the cards and holds them.
 *
 * A library of its own (its name says so to the loader), with a device table like NVML's.
 */
#include "simulation.h"

#include <stdlib.h>
#include <string.h>

enum answer { FALSE = 0, TRUE = 1 };

struct pci_device {
    int domain, bus, slot, function;
};

enum answer nvCfgGetPciDevices(int *count, struct pci_device **devices);
enum answer nvCfgOpenPciDevice(int domain, int bus, int slot, int function, void **handle);
enum answer nvCfgAttachPciDevice(int domain, int bus, int slot, int function, void **handle);
enum answer nvCfgCloseDevice(void *handle);
enum answer nvCfgDetachDevice(void *handle);

/* The real library's kernel calls fail unless exactly its own version is loaded. */
static bool usable(struct table *table) {
    return table_read(table) == NVML_SUCCESS && table->loaded[0] &&
           strcmp(table->loaded, table->library) == 0;
}

enum answer nvCfgGetPciDevices(int *count, struct pci_device **devices) {
    struct table table;
    if (!usable(&table))
        return FALSE;
    *devices = calloc(MAX_GPUS, sizeof **devices);
    if (!*devices)
        return FALSE;
    for (unsigned int i = 0; i < table.count; i++) {
        (*devices)[i].domain = (int)table.gpus[i].pci_domain;
        (*devices)[i].bus = (int)table.gpus[i].pci_bus;
        (*devices)[i].slot = (int)table.gpus[i].pci_slot;
    }
    *count = (int)table.count;
    return TRUE;
}

enum answer nvCfgOpenPciDevice(int domain, int bus, int slot, int function, void **handle) {
    struct table table;
    static char opened;
    if (!usable(&table) || function != 0)
        return FALSE;
    for (unsigned int i = 0; i < table.count; i++) {
        const struct nvmlDevice_st *gpu = &table.gpus[i];
        if ((int)gpu->pci_domain == domain && (int)gpu->pci_bus == bus && (int)gpu->pci_slot == slot) {
            *handle = &opened;
            return TRUE;
        }
    }
    return FALSE;
}

enum answer nvCfgAttachPciDevice(int domain, int bus, int slot, int function, void **handle) {
    return nvCfgOpenPciDevice(domain, bus, slot, function, handle);
}

enum answer nvCfgCloseDevice(void *handle) {
    return handle ? TRUE : FALSE;
}

enum answer nvCfgDetachDevice(void *handle) {
    return nvCfgCloseDevice(handle);
}
