/* MIG devices: what other parts need of them. */
#ifndef SIMULATION_MIG_H
#define SIMULATION_MIG_H

#include "settings.h"

/* Give a compute instance's device its name, memory and UUID: the same inside and outside of
 * containers, and after a reboot. */
void mig_name_device(struct nvmlComputeInstance_st *part);

/* Whether it is the handle of a MIG device that this process may see. */
bool mig_is_device(nvmlDevice_t device);

/* The MIG device of that UUID, or NULL. */
nvmlDevice_t mig_by_uuid(const char *uuid);

#endif
