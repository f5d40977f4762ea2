/* Operations on floats as C expressions, for compilers that have been told not
 * to fuse a product and a sum. The preludes of C, OpenCL and HIP include
 * them. */
DEV float add_(float a, float b)
{
    return a + b;
}
DEV float sub_(float a, float b)
{
    return a - b;
}
DEV float mul_(float a, float b)
{
    return a * b;
}
DEV float div_(float a, float b)
{
    return a / b;
}
DEV double dadd_(double a, double b)
{
    return a + b;
}
DEV double dsub_(double a, double b)
{
    return a - b;
}
DEV double dmul_(double a, double b)
{
    return a * b;
}
DEV double ddiv_(double a, double b)
{
    return a / b;
}
