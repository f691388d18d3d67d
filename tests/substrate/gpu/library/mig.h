/* MIG: what of a card's profiles, instances and compute instances the other parts need. */
#ifndef SIMULATION_MIG_H
#define SIMULATION_MIG_H

#include "simulation.h"

/* Read the table's settings: modes and instances as they were left. Called when the table is new. */
void mig_start(const struct table *table);

/* Whether it is the handle of a MIG device that this process may see. */
bool mig_is_device(nvmlDevice_t device);

/* The MIG device of that UUID, or NULL. */
nvmlDevice_t mig_by_uuid(const char *uuid);

#endif
