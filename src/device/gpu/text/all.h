/* The kernels of all GPUs, one text in a subset of C. Who includes or compiles
 * it has put a prelude before it (prelude_emu.h says what one defines). */
#include "args.h"
#include "math.h"
#include "values.h"

#include "elementwise.h"
#include "quantize.h"
#include "rows.h"

/* contractions */
#include "mma.h"

#include "weights.h"

#include "route.h"

/* attention and its cache: attend.h reads what cache.h says of tiles */
#include "cache.h"

#include "attend.h"
#include "rope.h"

/* rows, moves, states */
#include "copies.h"
#include "gather.h"
#include "moves.h"
#include "recurrent.h"
#include "router.h"

/* the self test */
#include "probe.h"
