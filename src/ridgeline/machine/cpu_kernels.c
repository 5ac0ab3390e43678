/* Kernels that reach what the processor can do at best: loads, copies, triads, multiply-add chains.

   One source serves every instruction set: it is compiled on the machine itself, for the machine
   itself, once for each width of a vector (-DVECTOR_BYTES=16, 32 or 64). A kernel for which the
   processor has no instruction is not defined, and the caller finds it absent.

   Every kernel is `double name(char *memory, size_t bytes, long passes)` and returns the work of
   one pass: flops (a multiply-add is 2), or bytes read plus bytes written. What a cache fetches
   before it is overwritten (write-allocate) is not counted. */

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define REGISTER "v"
#elif defined(__x86_64__) || defined(__i386__)
#define REGISTER "x"
#elif defined(__aarch64__)
#define REGISTER "w"
#elif defined(__powerpc64__)
#define REGISTER "wa"
#else
#define REGISTER "m" /* correct everywhere, with a store that costs some of the rate */
#endif

/* The value must be in a register here, and what happens to it is unknown to the compiler. */
#define USE(x) __asm__ volatile("" : : REGISTER(x))
#define OPAQUE(x) __asm__ volatile("" : "+" REGISTER(x))

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef double vd __attribute__((vector_size(VECTOR_BYTES)));

/* ---- memory ---------------------------------------------------------------------------------- */

enum { UNROLL = 8, CHUNK = UNROLL * VECTOR_BYTES };

#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* The memory is split in equal arrays, whole chunks each. */
static size_t chunks(size_t bytes, int arrays) {
    size_t n = bytes / (size_t)arrays / CHUNK;
    return n ? n : 1;
}

double memory_read(char *memory, size_t bytes, long passes) {
    size_t n = chunks(bytes, 1);
    for (long pass = 0; pass < passes; pass++) {
        const vd *b = (const vd *)memory, *end = b + n * UNROLL;
        for (; b != end; b += UNROLL) {
#define LOAD(i) { vd x = b[i]; USE(x); }
            EIGHT(LOAD)
#undef LOAD
        }
    }
    return (double)n * CHUNK;
}

#define COPY(NAME, STORE)                                                                         \
    double NAME(char *memory, size_t bytes, long passes) {                                        \
        size_t n = chunks(bytes, 2);                                                              \
        for (long pass = 0; pass < passes; pass++) {                                              \
            const vd *b = (const vd *)memory, *end = b + n * UNROLL;                              \
            vd *a = (vd *)memory + n * UNROLL;                                                    \
            for (; b != end; b += UNROLL, a += UNROLL) {                                          \
                EIGHT(STORE)                                                                      \
            }                                                                                     \
        }                                                                                         \
        return 2.0 * (double)n * CHUNK;                                                           \
    }

#define TRIAD(NAME, STORE)                                                                        \
    double NAME(char *memory, size_t bytes, long passes) {                                        \
        size_t n = chunks(bytes, 3);                                                              \
        vd s = (vd){0} + 3.0;                                                                     \
        for (long pass = 0; pass < passes; pass++) {                                              \
            const vd *b = (const vd *)memory, *c = b + n * UNROLL, *end = c;                      \
            vd *a = (vd *)memory + 2 * n * UNROLL;                                                \
            for (; b != end; b += UNROLL, c += UNROLL, a += UNROLL) {                             \
                EIGHT(STORE)                                                                      \
            }                                                                                     \
        }                                                                                         \
        return 3.0 * (double)n * CHUNK;                                                           \
    }

#define COPIED(i) { vd x = b[i]; OPAQUE(x); a[i] = x; }
#define SUMMED(i) { vd x = b[i] + s * c[i]; OPAQUE(x); a[i] = x; }
COPY(memory_copy, COPIED)
TRIAD(memory_triad, SUMMED)

/* Stores that go past the caches. Where there are none, these kernels are absent. */
#if defined(__clang__)
#define STREAM(p, x) __builtin_nontemporal_store(x, p)
#elif VECTOR_BYTES == 64 && defined(__AVX512F__)
#define STREAM(p, x) _mm512_stream_pd((double *)(p), (__m512d)(x))
#elif VECTOR_BYTES == 32 && defined(__AVX__)
#define STREAM(p, x) _mm256_stream_pd((double *)(p), (__m256d)(x))
#elif VECTOR_BYTES == 16 && defined(__SSE2__)
#define STREAM(p, x) _mm_stream_pd((double *)(p), (__m128d)(x))
#endif

#if defined(STREAM)
#define COPIED_PAST(i) { vd x = b[i]; OPAQUE(x); STREAM(a + i, x); }
#define SUMMED_PAST(i) { vd x = b[i] + s * c[i]; OPAQUE(x); STREAM(a + i, x); }
COPY(memory_copy_nt, COPIED_PAST)
TRIAD(memory_triad_nt, SUMMED_PAST)
#endif

/* The same in eight streams side by side: each part of an array is read from its own place. Beyond
   the caches one stream a core does not keep enough lines on their way. */
enum { STREAMS = 8 };

#define SPLIT(NAME, ARRAYS, STORE)                                                                \
    double NAME(char *memory, size_t bytes, long passes) {                                        \
        size_t n = bytes / (ARRAYS) / CHUNK / STREAMS, array = n * STREAMS * UNROLL;              \
        vd s = (vd){0} + 3.0;                                                                     \
        OPAQUE(s);                                                                                \
        for (long pass = 0; pass < passes; pass++) {                                              \
            for (size_t chunk = 0; chunk < n; chunk++) {                                          \
                for (size_t stream = 0; stream < STREAMS; stream++) {                             \
                    const vd *b = (const vd *)memory + (stream * n + chunk) * UNROLL;             \
                    const vd *c = b + array;                                                      \
                    vd *a = (vd *)memory + (b - (const vd *)memory) + ((ARRAYS) - 1) * array;     \
                    (void)a, (void)c;                                                             \
                    EIGHT(STORE)                                                                  \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        return (double)(ARRAYS) * (double)array * VECTOR_BYTES;                                   \
    }

#define READ(i) { vd x = b[i]; USE(x); }
SPLIT(memory_read_split, 1, READ)
#if defined(STREAM)
SPLIT(memory_copy_nt_split, 2, COPIED_PAST)
SPLIT(memory_triad_nt_split, 3, SUMMED_PAST)
#endif

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Enough chains for latency × units (4 × 2 on x86, 4 × 4 on wide Arm cores), and few enough to
   stay in registers together with their operands. */
#if defined(__AVX512F__) || defined(__aarch64__) || defined(__powerpc64__)
enum { CHAINS = 20 };
#define EACH_CHAIN(X) EIGHT(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19)
#else
enum { CHAINS = 12 };
#define EACH_CHAIN(X) EIGHT(X) X(8) X(9) X(10) X(11)
#endif

/* `STEP(i)` advances chain i of type T from `START`; `ops` is what one step does. */
#define ARITHMETIC(NAME, T, SETUP, START, STEP, OPS)                                              \
    double NAME(char *memory, size_t bytes, long passes) {                                        \
        (void)memory, (void)bytes;                                                                \
        SETUP;                                                                                    \
        EACH_CHAIN(DECLARE_##START)                                                               \
        for (long pass = 0; pass < passes; pass++) {                                              \
            EACH_CHAIN(STEP) EACH_CHAIN(STEP)                                                     \
        }                                                                                         \
        EACH_CHAIN(USE_CHAIN)                                                                     \
        return 2.0 * CHAINS * (OPS);                                                              \
    }

#define USE_CHAIN(i) USE(t##i);
#define FMA_STEP(i) t##i = t##i * m + a;

/* Every chain tends to 1: no overflow, no denormal numbers. */
#define DECLARE_vf(i) vf t##i = m * (float)(i + 1); OPAQUE(t##i);
#define DECLARE_vd(i) vd t##i = m * (double)(i + 1); OPAQUE(t##i);
ARITHMETIC(vector_fp32, vf, vf m = (vf){0} + 0.5f; vf a = m; OPAQUE(m); OPAQUE(a), vf, FMA_STEP,
           2.0 * VECTOR_BYTES / 4)
ARITHMETIC(vector_fp64, vd, vd m = (vd){0} + 0.5; vd a = m; OPAQUE(m); OPAQUE(a), vd, FMA_STEP,
           2.0 * VECTOR_BYTES / 8)

#if (defined(__AVX512FP16__) && VECTOR_BYTES >= 32) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
typedef _Float16 vh __attribute__((vector_size(VECTOR_BYTES)));
#define DECLARE_vh(i) vh t##i = m * (_Float16)(i + 1); OPAQUE(t##i);
ARITHMETIC(vector_fp16, vh, vh m = (vh){0} + (_Float16)0.5; vh a = m; OPAQUE(m); OPAQUE(a), vh,
           FMA_STEP, 2.0 * VECTOR_BYTES / 2)
#endif

/* Dot products: pairs of bf16 into fp32, quadruples of int8 into int32. */
#if defined(__AVX512BF16__) && VECTOR_BYTES == 64
#define DECLARE_bf16(i) __m512 t##i = _mm512_set1_ps((float)i); OPAQUE(t##i);
#define BF16_STEP(i) t##i = _mm512_dpbf16_ps(t##i, m, a);
ARITHMETIC(vector_bf16, , __m512i z = _mm512_set1_epi16(0x3c00); OPAQUE(z);
           __m512bh m = (__m512bh)z; __m512bh a = (__m512bh)z, bf16, BF16_STEP, 64.0)
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define DECLARE_bf16(i) float32x4_t t##i = vdupq_n_f32((float)i); OPAQUE(t##i);
#define BF16_STEP(i) t##i = vbfdotq_f32(t##i, m, m);
ARITHMETIC(vector_bf16, , bfloat16x8_t m = vreinterpretq_bf16_u16(vdupq_n_u16(0x3c00)); OPAQUE(m),
           bf16, BF16_STEP, 16.0)
#endif

#if defined(__AVX512VNNI__) && VECTOR_BYTES == 64
#define DECLARE_int8(i) __m512i t##i = _mm512_set1_epi32(i); OPAQUE(t##i);
#define INT8_STEP(i) t##i = _mm512_dpbusd_epi32(t##i, m, m);
ARITHMETIC(vector_int8, , __m512i m = _mm512_set1_epi8(1); OPAQUE(m), int8, INT8_STEP, 128.0)
#elif defined(__AVXVNNI__) && VECTOR_BYTES == 32
#define DECLARE_int8(i) __m256i t##i = _mm256_set1_epi32(i); OPAQUE(t##i);
#define INT8_STEP(i) t##i = _mm256_dpbusd_avx_epi32(t##i, m, m);
ARITHMETIC(vector_int8, , __m256i m = _mm256_set1_epi8(1); OPAQUE(m), int8, INT8_STEP, 64.0)
#elif defined(__ARM_FEATURE_DOTPROD)
#define DECLARE_int8(i) int32x4_t t##i = vdupq_n_s32(i); OPAQUE(t##i);
#define INT8_STEP(i) t##i = vdotq_s32(t##i, m, m);
ARITHMETIC(vector_int8, , int8x16_t m = vdupq_n_s8(1); OPAQUE(m), int8, INT8_STEP, 32.0)
#endif

/* Tiles (Intel AMX): four sums in flight, each of 16 × 16 elements. Linux gives the tiles to those
   who ask; ridgeline_allow_tiles must have returned 0 before one of these kernels is called. */
#if defined(__linux__) && defined(__AMX_TILE__) && VECTOR_BYTES == 64
#include <sys/syscall.h>
#include <unistd.h>

int ridgeline_allow_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return (int)syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}

struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((aligned(64)));

#define TILES(NAME, DOT, OPS)                                                                     \
    double NAME(char *memory, size_t bytes, long passes) {                                        \
        (void)memory, (void)bytes;                                                                \
        struct tile_shapes shapes = {.palette = 1};                                               \
        for (int tile = 0; tile < 8; tile++) shapes.row_bytes[tile] = 64, shapes.rows[tile] = 16; \
        _tile_loadconfig(&shapes);                                                                \
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);                               \
        _tile_zero(4); _tile_zero(5); _tile_zero(6); _tile_zero(7);                               \
        for (long pass = 0; pass < passes; pass++) {                                              \
            DOT(0, 4, 6); DOT(1, 4, 7); DOT(2, 5, 6); DOT(3, 5, 7);                               \
        }                                                                                         \
        _tile_release();                                                                          \
        return 4.0 * (OPS);                                                                       \
    }

#if defined(__AMX_BF16__)
TILES(tiles_bf16, _tile_dpbf16ps, 2.0 * 16 * 16 * 32)
#endif
#if defined(__AMX_INT8__)
TILES(tiles_int8, _tile_dpbssd, 2.0 * 16 * 16 * 64)
#endif
#endif

/* A chain of dependent additions takes one cycle each: cycles per second are additions per second.
   The operand is a register, since some processors do additions of constants while renaming. */
#if defined(__x86_64__)
#define ADD(x, y) __asm__ volatile("add %1, %0" : "+r"(x) : "r"(y) : "cc");
#elif defined(__aarch64__)
#define ADD(x, y) __asm__ volatile("add %0, %0, %1" : "+r"(x) : "r"(y));
#endif
#if defined(ADD)
double cycles(char *memory, size_t bytes, long passes) {
    (void)memory, (void)bytes;
    uint64_t x = 0, y = 3;
    for (long pass = 0; pass < passes; pass++) {
#define ONE(i) ADD(x, y)
        EIGHT(ONE) EIGHT(ONE) EIGHT(ONE) EIGHT(ONE) EIGHT(ONE) EIGHT(ONE) EIGHT(ONE) EIGHT(ONE)
    }
    return 64.0;
}
#endif

/* ---- running --------------------------------------------------------------------------------- */

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void pause_a_moment(void) {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until `everyone` calls have come here in all, counted in `arrived`; then time the passes.
   `result` becomes start, end and work. Returns -1 if the others do not come within ten seconds. */
int ridgeline_run(double (*kernel)(char *, size_t, long), char *memory, size_t bytes, long warm_passes,
                  long passes, int64_t *arrived, int64_t everyone, double *result) {
    if (warm_passes > 0) kernel(memory, bytes, warm_passes);
    __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    double limit_s = now_s() + 10;
    for (long spins = 0; __atomic_load_n(arrived, __ATOMIC_ACQUIRE) < everyone; spins++) {
        pause_a_moment();
        if (spins % 4096 == 4095 && now_s() > limit_s) return -1;
    }
    result[0] = now_s();
    double work = kernel(memory, bytes, passes);
#if defined(__x86_64__)
    _mm_sfence(); /* streaming stores are done when they have left the core */
#endif
    result[1] = now_s();
    result[2] = work * (double)passes;
    return 0;
}
