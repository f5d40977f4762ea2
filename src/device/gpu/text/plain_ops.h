/* Operations on floats where the compiler has been told to fuse nothing: the
 * part that the preludes of C, OpenCL and HIP share. */
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
