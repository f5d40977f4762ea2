/* The libraries of CUDA and HIP made for tests, where the test program meets
 * them. */
#ifndef TEST_FAKE_CUDA_USE_H
#define TEST_FAKE_CUDA_USE_H

#include "lib/fake_cuda.h"
#include "lib/gpu_work.h"

/* From now on the driver's CUDA library is the one made for tests. */
const struct fake_cuda *fake_cuda_use(void);
/* The same of one of an older driver, which lacks CUDA_LATER_CALL_MAP. */
const struct fake_cuda *fake_cuda_old_use(void);
/* The same of HIP's library, and of its compiler. */
const struct fake_cuda *fake_hip_use(void);
/* The library has no complaint, and nothing is held; else the case fails and
 * says in which situation. */
void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when);
/* The driver gives all back though the first such call of its library fails
 * then: one that a device is entered by. */
void fake_cuda_assert_gives_back(const struct fake_cuda *f,
                                 const struct gpu_driver *d, const char *call);

#endif
