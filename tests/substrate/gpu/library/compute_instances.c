/* MIG: the compute instances that divide a GPU instance. */
#include "settings.h"

#include <stdio.h>

static unsigned int free_slices(nvmlGpuInstance_t instance, unsigned int *start) {
    unsigned int used = 0;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++)
        used += instance->parts[i].there ? instance->parts[i].slices : 0;
    *start = used;
    return instance->profile->slices - used;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
                                                          unsigned int engines,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    NEED_INSTANCE(instance);
    NEED(info);
    if (engines >= NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (profile >= COMPUTE_PROFILES || compute_slices[profile] > instance->profile->slices)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct mig_profile *whole = instance->profile;
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile, .sliceCount = compute_slices[profile],
        .instanceCount = whole->slices / compute_slices[profile],
        .multiprocessorCount = whole->processors / whole->slices * compute_slices[profile],
        .sharedCopyEngineCount = whole->copy_engines, .sharedDecoderCount = whole->decoders,
        .sharedJpegCount = whole->jpeg, .sharedOfaCount = whole->ofa};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
                                                           unsigned int engines,
                                                           nvmlComputeInstanceProfileInfo_v2_t *info) {
    nvmlComputeInstanceProfileInfo_t plain;
    NEED(info);
    unsigned int version = info->version;
    if (version != nvmlComputeInstanceProfileInfo_v2 && version != nvmlComputeInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t found = nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, engines, &plain);
    if (found != NVML_SUCCESS)
        return found;
    /* The third version is the second with one more field at the end. */
    *info = (nvmlComputeInstanceProfileInfo_v2_t){.version = version, .id = plain.id,
        .sliceCount = plain.sliceCount, .instanceCount = plain.instanceCount,
        .multiprocessorCount = plain.multiprocessorCount, .sharedCopyEngineCount = plain.sharedCopyEngineCount,
        .sharedDecoderCount = plain.sharedDecoderCount, .sharedJpegCount = plain.sharedJpegCount,
        .sharedOfaCount = plain.sharedOfaCount};
    if (version == nvmlComputeInstanceProfileInfo_v3)
        ((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities = 0;
    if (plain.sliceCount == instance->profile->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", instance->profile->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", plain.sliceCount, instance->profile->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance,
                                                                unsigned int profile, unsigned int *count) {
    unsigned int start;
    NEED_INSTANCE(instance);
    NEED(count);
    if (profile >= COMPUTE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = free_slices(instance, &start) / compute_slices[profile];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile,
                                                  nvmlComputeInstance_t *part) {
    unsigned int start, id = 0;
    NEED_INSTANCE(instance);
    NEED(part);
    if (profile >= COMPUTE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (free_slices(instance, &start) < compute_slices[profile])
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    while (instance->parts[id].there)
        id++;
    *part = add_compute_instance(instance, id, profile, start);
    return keep_settings();
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t part) {
    NEED_INSTANCE(part);
    if (card_is_busy(part->gpu_instance->card))
        return NVML_ERROR_IN_USE;
    part->there = false;
    return keep_settings();
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile,
                                                nvmlComputeInstance_t *parts, unsigned int *count) {
    NEED_INSTANCE(instance);
    NEED(count);
    *count = 0;
    for (unsigned int i = 0; i < MAX_INSTANCES; i++) {
        if (!instance->parts[i].there || instance->parts[i].profile != profile)
            continue;
        if (parts)
            parts[*count] = &instance->parts[i];
        (*count)++;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *part) {
    NEED_INSTANCE(instance);
    NEED(part);
    if (id >= MAX_INSTANCES || !instance->parts[id].there)
        return NVML_ERROR_NOT_FOUND;
    *part = &instance->parts[id];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t part, nvmlComputeInstanceInfo_t *info) {
    NEED_INSTANCE(part);
    NEED(info);
    *info = (nvmlComputeInstanceInfo_t){(nvmlDevice_t)part->gpu_instance->card->gpu, part->gpu_instance,
        part->id, part->profile, {part->start, part->slices}};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t part, nvmlComputeInstanceInfo_t *info) {
    return nvmlComputeInstanceGetInfo_v2(part, info);
}
