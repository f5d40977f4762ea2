/* The kernels of all GPUs, one text in a subset of C. Who includes or compiles
 * it has put a prelude before it (prelude_emu.h says what one defines). */
#include "args.h"
#include "math.h"
#include "values.h"

#include "elementwise.h"
#include "rows.h"
#include "copies.h"
#include "weights.h"

#include "cache.h"
#include "rope.h"
#include "attend.h"
