/* Which cards there are and what they are: count, handles, names, PCI, topology. */
#include "mig.h"

#include <stdio.h>
#include <string.h>

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    NEED_INIT();
    NEED(count);
    *count = simulation_table()->count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    NEED_INIT();
    NEED(device);
    const struct table *table = simulation_table();
    if (index >= table->count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&table->gpus[index];
    return check_device(*device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find(const char *wanted, nvmlDevice_t *device, size_t offset) {
    NEED_INIT();
    NEED(wanted);
    NEED(device);
    const struct table *table = simulation_table();
    for (unsigned int i = 0; i < table->count; i++) {
        if (strcmp((const char *)&table->gpus[i] + offset, wanted) == 0) {
            *device = (nvmlDevice_t)&table->gpus[i];
            return check_device(*device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    nvmlDevice_t mig = uuid && device && simulation_started() ? mig_by_uuid(uuid) : NULL;
    if (mig) {
        *device = mig;
        return NVML_SUCCESS;
    }
    return find(uuid, device, offsetof(struct nvmlDevice_st, uuid));
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    return find(serial, device, offsetof(struct nvmlDevice_st, serial));
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned int domain = 0, bus, slot;
    NEED_INIT();
    NEED(bus_id);
    NEED(device);
    if (sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(bus_id, "%x:%x", &bus, &slot) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    const struct table *table = simulation_table();
    for (unsigned int i = 0; i < table->count; i++) {
        const struct nvmlDevice_st *gpu = &table->gpus[i];
        if (gpu->pci_domain == domain && gpu->pci_bus == bus && gpu->pci_slot == slot) {
            *device = (nvmlDevice_t)gpu;
            return check_device(*device);
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* name of the NVML function, field of the card, type of the caller's variable */
#define GIVE_TEXT(function, field)                                                        \
    nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int length) {          \
        NEED_DEVICE(device);                                                              \
        return give_text(device->field, out, length);                                     \
    }

GIVE_TEXT(nvmlDeviceGetName, name)
GIVE_TEXT(nvmlDeviceGetUUID, uuid)
GIVE_TEXT(nvmlDeviceGetSerial, serial)
GIVE_TEXT(nvmlDeviceGetBoardPartNumber, part_number)
GIVE_TEXT(nvmlDeviceGetVbiosVersion, vbios)
GIVE_TEXT(nvmlDeviceGetInforomImageVersion, inforom)

#define GIVE(function, type, value)                                                       \
    nvmlReturn_t function(nvmlDevice_t device, type *out) {                               \
        NEED_DEVICE(device);                                                              \
        NEED(out);                                                                        \
        *out = (type)(value);                                                             \
        return NVML_SUCCESS;                                                              \
    }

GIVE(nvmlDeviceGetIndex, unsigned int, device->index)
GIVE(nvmlDeviceGetMinorNumber, unsigned int, device->minor)
GIVE(nvmlDeviceGetBrand, nvmlBrandType_t, device->brand)
GIVE(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, device->architecture)
GIVE(nvmlDeviceGetNumGpuCores, unsigned int, device->cores)
GIVE(nvmlDeviceGetMemoryBusWidth, unsigned int, device->memory_bus)
GIVE(nvmlDeviceGetBoardId, unsigned int, device->pci_bus << 8)
GIVE(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
GIVE(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, NVML_GPU_VIRTUALIZATION_MODE_NONE)

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    NEED_DEVICE(device);
    NEED(major);
    NEED(minor);
    *major = (int)device->compute_major;
    *minor = (int)device->compute_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    NEED_DEVICE(device);
    NEED(pci);
    memset(pci, 0, sizeof *pci);
    pci->domain = device->pci_domain;
    pci->bus = device->pci_bus;
    pci->device = device->pci_slot;
    pci->pciDeviceId = device->pci_device << 16 | 0x10de;
    pci->pciSubSystemId = device->pci_subsystem;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT,
             device->pci_domain & 0xffff, device->pci_bus & 0xff, device->pci_slot & 0xff);
    snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, device->pci_domain,
             device->pci_bus & 0xff, device->pci_slot & 0xff);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

/* Cards of one socket meet in its root complex, others across sockets. */
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t first, nvmlDevice_t second,
                                                 nvmlGpuTopologyLevel_t *level) {
    NEED_DEVICE(first);
    NEED_DEVICE(second);
    NEED(level);
    if (first == second)
        *level = NVML_TOPOLOGY_INTERNAL;
    else
        *level = first->socket == second->socket ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t first, nvmlDevice_t second, int *same) {
    NEED_DEVICE(first);
    NEED_DEVICE(second);
    NEED(same);
    *same = first == second;
    return NVML_SUCCESS;
}
