/* MIG: the devices that compute instances are.
 *
 * As with the real driver, a MIG device is there for a process only if the nodes of its
 * capabilities are.
 */
#include "mig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GI_PER_GPU 15 /* as the driver numbers capabilities: each has 8 compute instances */
#define CI_PER_GI 8
#define FIRST_CAPABILITY 3

static bool has_capability(unsigned int minor, const struct nvmlComputeInstance_st *part) {
    unsigned int own = FIRST_CAPABILITY + (minor * GI_PER_GPU + part->gpu_instance->id) * (CI_PER_GI + 1);
    char name[64], path[4096];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "/dev/nvidia-caps/nvidia-cap%u", i ? own + 1 + part->id : own);
        host_path(path, sizeof path, name);
        if (access(path, R_OK) != 0)
            return false;
    }
    return true;
}

void mig_name_device(struct nvmlComputeInstance_st *part) {
    const struct nvmlDevice_st *gpu = part->gpu_instance->card->gpu;
    const struct mig_profile *profile = part->gpu_instance->profile;
    unsigned long long hash = 14695981039346656037ULL;
    char place[TEXT + 32], partial[8] = "";
    snprintf(place, sizeof place, "%s/%u/%u", gpu->uuid, part->gpu_instance->id, part->id);
    for (const char *c = place; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ULL;
    struct nvmlDevice_st *device = &part->device;
    *device = *gpu;
    device->memory_mib = profile->memory_mib;
    device->reserved_mib = 0;
    device->mig_instances = device->mig_profile_count = 0;
    snprintf(device->uuid, sizeof device->uuid, "MIG-bed91a7e-%04llx-5%03llx-8%03llx-%012llx", hash >> 48,
             hash >> 36 & 0xfff, hash >> 24 & 0xfff, hash & 0xffffffffffffULL);
    if (part->slices != profile->slices)
        snprintf(partial, sizeof partial, "%uc.", part->slices);
    snprintf(device->name, sizeof device->name, "%.60s MIG %s%.20s", gpu->name, partial, profile->name);
}

/* Go through the MIG devices that this process may see; NULL after the last. */
static struct nvmlComputeInstance_st *next_part(const struct card *only, struct nvmlComputeInstance_st *after) {
    bool passed = after == NULL;
    for (unsigned int i = 0; i < simulation_table()->count; i++) {
        for (unsigned int n = 0; (!only || only == &cards[i]) && n < MAX_INSTANCES * MAX_INSTANCES; n++) {
            struct nvmlGpuInstance_st *one = &cards[i].instances[n / MAX_INSTANCES];
            struct nvmlComputeInstance_st *part = &one->parts[n % MAX_INSTANCES];
            if (passed && one->there && part->there && has_capability(cards[i].gpu->minor, part))
                return part;
            passed = passed || part == after;
        }
    }
    return NULL;
}

static struct nvmlComputeInstance_st *part_of(nvmlDevice_t device) {
    struct nvmlComputeInstance_st *part = NULL;
    while ((part = next_part(NULL, part)))
        if (&part->device == device)
            return part;
    return NULL;
}

bool mig_is_device(nvmlDevice_t device) {
    return part_of(device) != NULL;
}

nvmlDevice_t mig_by_uuid(const char *uuid) {
    struct nvmlComputeInstance_st *part = NULL;
    while ((part = next_part(NULL, part)))
        if (strcmp(part->device.uuid, uuid) == 0)
            return &part->device;
    return NULL;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    NEED_DEVICE(device);
    NEED(count);
    *count = device->mig_instances;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    NEED_DEVICE(device);
    NEED(is);
    *is = mig_is_device(device);
    return NVML_SUCCESS;
}

/* Not NOT_SUPPORTED: nvidia-ctk takes that for a failure, NOT_FOUND for an empty slot. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *mig) {
    struct nvmlComputeInstance_st *part = NULL;
    NEED_DEVICE(device);
    NEED(mig);
    if (card_of(device) == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i <= index; i++)
        if ((part = next_part(card_of(device), part)) == NULL)
            return NVML_ERROR_NOT_FOUND;
    part->device.index = index;
    *mig = &part->device;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    NEED_DEVICE(mig);
    NEED(device);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)part->gpu_instance->card->gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned int *id) {
    NEED_DEVICE(mig);
    NEED(id);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_FOUND;
    *id = part->gpu_instance->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned int *id) {
    NEED_DEVICE(mig);
    NEED(id);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_FOUND;
    *id = part->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
    NEED_DEVICE(mig);
    NEED(attributes);
    const struct nvmlComputeInstance_st *part = part_of(mig);
    if (!part)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct mig_profile *whole = part->gpu_instance->profile;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = whole->processors / whole->slices * part->slices,
        .sharedCopyEngineCount = whole->copy_engines, .sharedDecoderCount = whole->decoders,
        .sharedJpegCount = whole->jpeg, .sharedOfaCount = whole->ofa,
        .gpuInstanceSliceCount = whole->slices, .computeInstanceSliceCount = part->slices,
        .memorySizeMB = whole->memory_mib};
    return NVML_SUCCESS;
}

/* nvidia-smi -q leaves a MIG device out of its report where this does not answer. Cards have the sum of them
 * (nvmlDeviceGetTotalEccErrors) and nothing by place. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter, nvmlMemoryLocation_t place,
                                             unsigned long long *errors) {
    NEED_DEVICE(device);
    NEED(errors);
    (void)type;
    (void)counter;
    (void)place;
    if (!device->ecc || !mig_is_device(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *errors = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(mig, attributes);
}
