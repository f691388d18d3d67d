/* Events: whoever waits gets the XID errors that the host writes into a file of faults.
 *
 * A line "MINOR XID" in /run/nvidia-simulated-faults is one error of /dev/nvidiaMINOR. Each event
 * set reports every line once, also those from before it was made: faults outlast their reader.
 */
#include "simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FAULTS "/run/nvidia-simulated-faults"
#define POLL_MS 100

struct nvmlEventSet_st {
    bool registered[256]; /* by minor number */
    long seen;            /* bytes of the file that were reported */
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
    char path[4096], line[64];
    host_path(path, sizeof path, FAULTS);
    FILE *stream = fopen(path, "r");
    if (!stream)
        return false;
    bool found = false;
    fseek(stream, set->seen, SEEK_SET);
    while (!found && fgets(line, sizeof line, stream)) {
        unsigned int minor;
        unsigned long long xid;
        set->seen = ftell(stream);
        if (sscanf(line, "%u %llu", &minor, &xid) != 2 || minor > 255 || !set->registered[minor])
            continue;
        data->device = by_minor(minor);
        data->eventType = nvmlEventTypeXidCriticalError;
        data->eventData = xid;
        data->gpuInstanceId = 0xffffffff;
        data->computeInstanceId = 0xffffffff;
        found = data->device != NULL;
    }
    fclose(stream);
    return found;
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
