/* Includes the source of all GPU kernels, which is written in a subset of C. A
 * prelude must be included before this file. It defines the types, keywords and
 * operations that the kernels use, for one compiler (prelude_emu.h describes
 * them). */
#include "args.h"
#include "math.h"
#include "values.h"

#include "elementwise.h"
#include "quantize.h"
#include "rows.h"

#include "router.h"

/* kernels of contractions with weights */
#include "mma.h"

#include "weights.h"

#include "route.h"

/* kernels of attention; cache.h has the layout of a cache tile, which attend.h
 * needs */
#include "cache.h"

#include "attend.h"
#include "index.h"
#include "rope.h"

/* kernels that process rows, move elements or update recurrent states */
#include "copies.h"
#include "gather.h"
#include "moves.h"
#include "recurrent.h"

/* the kernel of the self-test */
#include "probe.h"
