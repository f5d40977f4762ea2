/* Implementation of emu_fiber.h. A switch pushes the callee-saved registers on
 * the current stack and pops those on the new stack. It takes a few
 * nanoseconds, unlike swapcontext(), which makes system calls for the signal
 * mask. Sanitizers are told about each switch, because they track stacks. */
#include "emu/emu_fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define FIBER_ASAN
#endif
#ifdef __SANITIZE_THREAD__
#define FIBER_TSAN
#endif
#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK = 128 << 10 };

struct fiber_stack {
    void (*fn)(void *user, int i);
    void *user;
    int i;
    /* memory of the stack, [STACK]; NULL for the thread's own stack; owned */
    unsigned char *bytes;
    const void *low; /* bounds of the stack, for AddressSanitizer */
    size_t size;
    void *fake, *tsan;
};

/* Saves the running fiber's registers on its stack and stores its stack pointer
 * in *leave. Then resumes the fiber with stack pointer `enter`. There, the
 * fiber_swap() that suspended it returns `say`. A fiber that is resumed for the
 * first time begins in begin(), with `say` as the argument. */
struct fiber *fiber_swap(void **leave, void *enter, struct fiber *say);
#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden fiber_swap\n"
        ".globl fiber_swap\n"
        ".type fiber_swap, @function\n"
        "fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    movq %rdx, %rdi\n"
        "    movq %rdx, %rax\n"
        "    ret\n"
        ".size fiber_swap, . - fiber_swap\n");
/* FRAME: size in 8-byte words of the frame that fiber_swap() saves: six
 * registers, the return address, and one word that aligns the stack as after a
 * call. RETURN: index of the return address in it. */
enum { FRAME = 8, RETURN = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden fiber_swap\n"
        ".globl fiber_swap\n"
        ".type fiber_swap, %function\n"
        "fiber_swap:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    mov x0, x2\n"
        "    ret\n"
        ".size fiber_swap, . - fiber_swap\n");
enum { FRAME = 20, RETURN = 11 };
#else
#error "fiber_swap() is written for x86-64 and AArch64"
#endif

/* Tells AddressSanitizer that the thread has switched from the stack of `from`
 * to that of f. Called on the stack of f. */
static void arrive(struct fiber *f, struct fiber *from)
{
#ifdef FIBER_ASAN
    __sanitizer_finish_switch_fiber(f->stack->fake, &from->stack->low,
                                    &from->stack->size);
#else
    (void)f;
    (void)from;
#endif
}

static void begin(struct fiber *from)
{
    struct fiber *f = from->to;

    arrive(f, from);
    f->stack->fn(f->stack->user, f->stack->i);
}

/* Writes the initial frame of a new stack, so that the first switch to it calls
 * begin(). The frame's offset in its page differs from stack to stack.
 * Otherwise all frames would compete for the same few cache lines. */
static void lay_frame(struct fiber *f)
{
    enum { LINE = 64, LINES = 64 };
    const struct fiber_stack *k = f->stack;
    uintptr_t top = (uintptr_t)(k->bytes + STACK - k->i % LINES * LINE);
    void **sp = (void **)top - FRAME;

    for (int i = 0; i < FRAME; i++)
        sp[i] = NULL;
    sp[RETURN] = (void *)(uintptr_t)begin;
    f->sp = sp;
}

bool fiber_init(struct fiber *f, void (*fn)(void *user, int i), void *user,
                int i)
{
    struct fiber_stack *k = calloc(1, sizeof *k);

    *f = (struct fiber){.stack = k};
    if (!k)
        return false;
    k->fn = fn;
    k->user = user;
    k->i = i;
    if (!fn)
        return true;
    k->bytes = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (k->bytes == MAP_FAILED) {
        free(k);
        f->stack = NULL;
        return false;
    }
    k->low = k->bytes;
    k->size = STACK;
#ifdef FIBER_TSAN
    k->tsan = __tsan_create_fiber(0);
#endif
    lay_frame(f);
    return true;
}

void fiber_fini(struct fiber *f)
{
    struct fiber_stack *k = f->stack;

    if (k && k->bytes) {
#ifdef FIBER_TSAN
        __tsan_destroy_fiber(k->tsan);
#endif
        munmap(k->bytes, STACK);
    }
    free(k);
    f->stack = NULL;
}

void fiber_enter(struct fiber *f)
{
#ifdef FIBER_TSAN
    f->stack->tsan = __tsan_get_current_fiber();
#else
    (void)f;
#endif
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    from->to = to;
#ifdef FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->stack->fake, to->stack->low,
                                   to->stack->size);
#endif
#ifdef FIBER_TSAN
    __tsan_switch_to_fiber(to->stack->tsan, 0);
#endif
    arrive(from, fiber_swap(&from->sp, to->sp, from));
}
