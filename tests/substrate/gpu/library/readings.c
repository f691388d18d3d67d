/* What sensors and counters of an idle, healthy card say. */
#include "settings.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define GIVE(function, type, value)                                                       \
    nvmlReturn_t function(nvmlDevice_t device, type *out) {                               \
        NEED_DEVICE(device);                                                              \
        NEED(out);                                                                        \
        *out = (type)(value);                                                             \
        return NVML_SUCCESS;                                                              \
    }

GIVE(nvmlDeviceGetPerformanceState, nvmlPstates_t, NVML_PSTATE_8)
GIVE(nvmlDeviceGetPowerUsage, unsigned int, device->power_idle_mw)
GIVE(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
GIVE(nvmlDeviceGetPowerManagementLimit, unsigned int, device->power_limit_mw)
GIVE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, device->power_limit_mw)
GIVE(nvmlDeviceGetEnforcedPowerLimit, unsigned int, device->power_limit_mw)
GIVE(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GIVE(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GIVE(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
GIVE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, device->pcie_generation)
GIVE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, device->pcie_generation)
GIVE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, device->pcie_generation)
GIVE(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, device->pcie_width)
GIVE(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, device->pcie_width)
GIVE(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
GIVE(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1 /* idle */)
GIVE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1 /* idle */)
GIVE(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, 0x1ff)
GIVE(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0x1ff)

/* The daemon's socket shows that it holds the cards open, which is what persistence is. */
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    char path[4096];
    NEED_DEVICE(device);
    NEED(mode);
    host_path(path, sizeof path, "/run/nvidia-persistenced/socket");
    *mode = access(path, F_OK) == 0 ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NEED_DEVICE(device);
    NEED(memory);
    memory->total = device->memory_mib * MIB;
    /* The first form of this call has no field for what the driver keeps: it counts as used. */
    memory->used = device->reserved_mib * MIB;
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NEED_DEVICE(device);
    NEED(memory);
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = device->memory_mib * MIB;
    memory->reserved = device->reserved_mib * MIB;
    memory->used = 0;
    memory->free = memory->total - memory->reserved;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory) {
    NEED_DEVICE(device);
    NEED(memory);
    memory->bar1Total = device->bar1_mib * MIB;
    memory->bar1Used = 1 * MIB;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    NEED_DEVICE(device);
    NEED(rates);
    memset(rates, 0, sizeof *rates);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessions,
                                       unsigned int *frames, unsigned int *latency) {
    NEED_DEVICE(device);
    NEED(sessions);
    NEED(frames);
    NEED(latency);
    *sessions = *frames = *latency = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least,
                                                          unsigned int *most) {
    NEED_DEVICE(device);
    NEED(least);
    NEED(most);
    *least = device->power_min_mw;
    *most = device->power_limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *celsius) {
    NEED_DEVICE(device);
    NEED(celsius);
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    *celsius = device->temperature + device->index % 4;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t kind,
                                               unsigned int *celsius) {
    NEED_DEVICE(device);
    NEED(celsius);
    if (kind == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
        *celsius = device->temperature_shutdown;
    else if (kind == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        *celsius = device->temperature_slowdown;
    else
        return NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

static nvmlReturn_t clock(nvmlDevice_t device, nvmlClockType_t kind, unsigned int *mhz) {
    NEED_DEVICE(device);
    NEED(mhz);
    switch (kind) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM: *mhz = device->clock_sm; return NVML_SUCCESS;
    case NVML_CLOCK_MEM: *mhz = device->clock_memory; return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned int *mhz) {
    return clock(device, kind, mhz);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t kind, unsigned int *mhz) {
    nvmlReturn_t result = clock(device, kind, mhz);
    if (result == NVML_SUCCESS && kind != NVML_CLOCK_MEM)
        *mhz = 345; /* idle */
    return result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now,
                                  nvmlEnableState_t *pending) {
    NEED_DEVICE(device);
    NEED(now);
    NEED(pending);
    if (!device->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *now = NVML_FEATURE_ENABLED;
    *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *errors) {
    NEED_DEVICE(device);
    NEED(errors);
    (void)type;
    (void)counter;
    if (!device->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *errors = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                       unsigned int *uncorrected, unsigned int *pending,
                                       unsigned int *failed) {
    NEED_DEVICE(device);
    NEED(corrected);
    NEED(uncorrected);
    NEED(pending);
    NEED(failed);
    if (device->architecture < NVML_DEVICE_ARCH_AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = *uncorrected = *pending = *failed = 0;
    return NVML_SUCCESS;
}

/* A line of what tests plant: "process MINOR PID", then MiB of memory and percent of use, both 0 if left out. */
static bool process_at(const struct table *table, unsigned int i, unsigned int minor, unsigned int *pid,
                       unsigned int *mib, unsigned int *use) {
    unsigned int where;
    *mib = *use = 0;
    return sscanf(table->settings[i], "process %u %u %u %u", &where, pid, mib, use) >= 2 && where == minor;
}

/* Nothing computes on a simulated card, but a test may say that something does. */
unsigned int processes_of(unsigned int minor, unsigned int *pids, unsigned int most) {
    const struct table *table = simulation_table();
    unsigned int count = 0, pid, mib, use;
    for (unsigned int i = 0; i < table->setting_count; i++) {
        if (!process_at(table, i, minor, &pid, &mib, &use))
            continue;
        if (count < most)
            pids[count] = pid;
        count++;
    }
    return count;
}

static unsigned long long memory_of(unsigned int minor, unsigned int process) {
    const struct table *table = simulation_table();
    unsigned int pid, mib, use;
    for (unsigned int i = 0; i < table->setting_count; i++)
        if (process_at(table, i, minor, &pid, &mib, &use) && pid == process)
            return mib * MIB;
    return 0;
}

/* As the real library: none that used nothing, and not on a card in MIG mode. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since) {
    const struct table *table;
    struct timeval now;
    unsigned int found = 0, most, pid, mib, use;
    NEED_DEVICE(device);
    NEED(count);
    if (card_of(device) == NULL || card_of(device)->mode == NVML_DEVICE_MIG_ENABLE)
        return NVML_ERROR_NOT_SUPPORTED;
    table = simulation_table();
    most = samples ? *count : 0;
    gettimeofday(&now, NULL);
    unsigned long long stamp = now.tv_sec * 1000000ULL + now.tv_usec;
    for (unsigned int i = 0; i < table->setting_count && stamp > since; i++) {
        if (!process_at(table, i, device->minor, &pid, &mib, &use) || use == 0)
            continue;
        if (found < most)
            samples[found] = (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = stamp, .smUtil = use};
        found++;
    }
    *count = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return found > most ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESSES(function, type, found)                                                  \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *processes) {    \
        unsigned int pids[MAX_SETTINGS], most;                                            \
        NEED_DEVICE(device);                                                              \
        NEED(count);                                                                      \
        most = *count;                                                                    \
        *count = (found) ? processes_of(device->minor, pids, MAX_SETTINGS) : 0;           \
        if (*count > most || (*count && !processes))                                      \
            return NVML_ERROR_INSUFFICIENT_SIZE;                                          \
        for (unsigned int i = 0; i < *count; i++)                                         \
            processes[i] = (type){.pid = pids[i], .usedGpuMemory = memory_of(device->minor, pids[i])};                                        \
        return NVML_SUCCESS;                                                              \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, false)
