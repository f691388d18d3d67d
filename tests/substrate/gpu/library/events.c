/* Events: whoever waits gets the XID errors that the host adds to the device table.
 *
 * The table is read anew at every poll, for the host replaces the file. Each event set reports
 * every fault of a registered card once, also those from before it was made: faults last.
 */
#include "simulation.h"

#include <stdlib.h>
#include <time.h>

#define POLL_MS 500

struct nvmlEventSet_st {
    bool registered[256]; /* by minor number */
    unsigned int seen;    /* faults of the table that were reported */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    NEED_INIT();
    NEED(set);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    NEED_INIT();
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    NEED_DEVICE(device);
    NEED(types);
    *types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError |
             nvmlEventTypeSingleBitEccError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    NEED_DEVICE(device);
    NEED(set);
    if (types & nvmlEventTypeXidCriticalError && device->minor < 256)
        set->registered[device->minor] = true;
    return NVML_SUCCESS;
}

static nvmlDevice_t by_minor(unsigned int minor) {
    const struct table *table = simulation_table();
    for (unsigned int i = 0; i < table->count; i++)
        if (table->gpus[i].minor == minor)
            return (nvmlDevice_t)&table->gpus[i];
    return NULL;
}

static bool next_fault(nvmlEventSet_t set, nvmlEventData_t *data) {
    struct table now;
    if (table_read(&now) != NVML_SUCCESS)
        return false;
    while (set->seen < now.fault_count) {
        const struct fault *fault = &now.faults[set->seen++];
        nvmlDevice_t device = by_minor(fault->minor);
        if (!device || fault->minor > 255 || !set->registered[fault->minor])
            continue;
        data->device = device;
        data->eventType = nvmlEventTypeXidCriticalError;
        data->eventData = fault->xid;
        data->gpuInstanceId = 0xffffffff;
        data->computeInstanceId = 0xffffffff;
        return true;
    }
    return false;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    NEED_INIT();
    NEED(set);
    NEED(data);
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    for (unsigned int waited = 0;; waited += POLL_MS) {
        if (next_fault(set, data))
            return NVML_SUCCESS;
        if (waited >= timeout_ms)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
