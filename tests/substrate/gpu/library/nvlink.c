/* NVLink and the fabric of boards with NVSwitch.
 *
 * All links are up, but those that a test put down: "nvlink_down MINOR LINK". Cards that register with
 * Fabric Manager have done so once its process identifier lies where the real one leaves it.
 */
#include "simulation.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FABRIC_MANAGER "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
#define SWITCH_BUS 0xe0

static bool is_up(const struct nvmlDevice_st *gpu, unsigned int link) {
    const struct table *table = simulation_table();
    unsigned int minor, down;
    for (unsigned int i = 0; i < table->setting_count; i++)
        if (sscanf(table->settings[i], "nvlink_down %u %u", &minor, &down) == 2 && minor == gpu->minor &&
            down == link)
            return false;
    return true;
}

#define NEED_LINK(device, link)                \
    NEED_DEVICE(device);                       \
    if (device->nvlinks == 0)                  \
        return NVML_ERROR_NOT_SUPPORTED;       \
    if (link >= device->nvlinks)               \
        return NVML_ERROR_INVALID_ARGUMENT

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *state) {
    NEED_LINK(device, link);
    NEED(state);
    *state = is_up(device, link) ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
    NEED_LINK(device, link);
    NEED(pci);
    memset(pci, 0, sizeof *pci);
    pci->bus = SWITCH_BUS;
    snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, 0u, pci->bus, 0u);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, NVML_DEVICE_PCI_BUS_ID_LEGACY_FMT, 0u, pci->bus, 0u);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
    NEED_LINK(device, link);
    NEED(type);
    *type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
    return NVML_SUCCESS;
}

/* The link that a field of speed or state is about, or -1. */
static int link_of(const nvmlFieldValue_t *field) {
    if (field->fieldId >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && field->fieldId <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5)
        return (int)(field->fieldId - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0);
    if (field->fieldId >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && field->fieldId <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11)
        return (int)(field->fieldId - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 + 6);
    bool scoped = field->fieldId == NVML_FI_DEV_NVLINK_GET_SPEED || field->fieldId == NVML_FI_DEV_NVLINK_GET_STATE;
    return scoped ? (int)field->scopeId : -1;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
    NEED_DEVICE(device);
    NEED(fields);
    for (int i = 0; i < count; i++) {
        int link = link_of(&fields[i]);
        fields[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        fields[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        if (device->nvlinks == 0)
            continue;
        if (fields[i].fieldId == NVML_FI_DEV_NVLINK_LINK_COUNT)
            fields[i].value.uiVal = device->nvlinks;
        else if (fields[i].fieldId == NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)
            fields[i].value.uiVal = device->nvlink_mbps;
        else if (link >= 0 && link < (int)device->nvlinks && fields[i].fieldId == NVML_FI_DEV_NVLINK_GET_STATE)
            fields[i].value.uiVal = is_up(device, (unsigned int)link);
        else if (link >= 0 && link < (int)device->nvlinks)
            fields[i].value.uiVal = is_up(device, (unsigned int)link) ? device->nvlink_mbps : 0;
        else
            continue;
        fields[i].nvmlReturn = NVML_SUCCESS;
    }
    return NVML_SUCCESS;
}

static nvmlGpuFabricState_t fabric_state(void) {
    char path[4096];
    host_path(path, sizeof path, FABRIC_MANAGER);
    return access(path, F_OK) == 0 ? NVML_GPU_FABRIC_STATE_COMPLETED : NVML_GPU_FABRIC_STATE_IN_PROGRESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    NEED_DEVICE(device);
    NEED(info);
    if (!device->fabric)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->state = fabric_state();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    NEED_DEVICE(device);
    NEED(info);
    if (!device->fabric)
        return NVML_ERROR_NOT_SUPPORTED;
    if (info->version != nvmlGpuFabricInfo_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *info = (nvmlGpuFabricInfoV_t){.version = info->version, .state = fabric_state()};
    return NVML_SUCCESS;
}
