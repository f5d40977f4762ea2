/* The CUDA library made for tests, where the test program meets it. */
#ifndef TEST_FAKE_CUDA_USE_H
#define TEST_FAKE_CUDA_USE_H

#include "lib/fake_cuda.h"

/* From now on the driver's CUDA library is the one made for tests. */
const struct fake_cuda *fake_cuda_use(void);
/* CUDA has no complaint, and nothing is held; else the case fails and says in
 * which situation. */
void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when);

#endif
