/* Implements bytes_text, which writes a size with two decimals. size_text
 * (report/writer.h) writes sizes shorter, for the columns of tables. */
#include "base/bytes.h"

#include "base/numeral.h"

#include <stdio.h>

const char *bytes_text(char buf[24], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes / 1024;
    int unit = 0;

    for (; v >= 1024 && unit < 3; unit++)
        v /= 1024;
    numeral_print(buf, 24, "%.2f %s", v, units[unit]);
    return buf;
}
