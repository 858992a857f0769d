/* Normal noise from an AES-256-CTR key stream, added to a sum: the same draws as tacit.randomness makes with PyTorch.

   A word gives a 52-bit integer k and a sign. p = (k + 1/2) 2^-53 lies in (0, 1/2); the draw is its inverse normal in
   double precision by Wichura's rational functions (Algorithm AS 241, Applied Statistics 37, 1988), whose relative error
   is about 1e-16. Loops are written so that compilers turn them into vector instructions: everything for the centre,
   where 85 % of the draws lie, and then once more for those in the tail. */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline)) /* a call would keep a loop from becoming vectors */
#define ROUNDS 14
#define BLOCK 512 /* words at a time: they and their draws stay in the first-level cache */

typedef struct {
    __m128i round[ROUNDS + 1];
    uint64_t stretch; /* the first eight bytes of the counter: purpose and number of the call */
} Stream;

/* ---- key stream ---- */

static __m128i spread(__m128i key, __m128i assist) {
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
    return _mm_xor_si128(key, assist);
}

#define EVEN(i, constant) \
    s->round[i] = spread(s->round[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(s->round[i - 1], constant), 0xff))
#define ODD(i) \
    s->round[i] = spread(s->round[i - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(s->round[i - 1], 0), 0xaa))

static void open_stream(Stream *s, const uint8_t *key, const uint8_t *counter) { /* FIPS 197, section 5.2 */
    s->round[0] = _mm_loadu_si128((const __m128i *)key);
    s->round[1] = _mm_loadu_si128((const __m128i *)(key + 16));
    EVEN(2, 0x01), ODD(3), EVEN(4, 0x02), ODD(5), EVEN(6, 0x04), ODD(7), EVEN(8, 0x08), ODD(9);
    EVEN(10, 0x10), ODD(11), EVEN(12, 0x20), ODD(13), EVEN(14, 0x40);
    memcpy(&s->stretch, counter, 8);
}

static void close_stream(Stream *s) {
    memset(s, 0, sizeof *s);
    __asm__ volatile("" : : "r"(s) : "memory"); /* the compiler must not drop it */
}

/* Blocks first, first + 1, ... of the stream, rounded up to whole groups; so many at once hide the instructions' delay. */
#define GROUP 32

#if defined(__VAES__) && defined(__AVX512F__) && defined(__AVX512BW__)
#define STATES (GROUP / 4)
#define UNROLLED _Pragma("GCC unroll 16")

INLINE void begin_group(const Stream *s, uint64_t first, __m512i *state) {
    const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 4, 3, 2, 1, 0));
    const __m512i key = _mm512_broadcast_i32x4(s->round[0]);
    const long long low = (long long)s->stretch, n = (long long)first;
    __m512i counter = _mm512_set_epi64(n + 3, low, n + 2, low, n + 1, low, n, low);
    UNROLLED for (int i = 0; i < STATES; i++) {
        state[i] = _mm512_xor_si512(_mm512_shuffle_epi8(counter, swap), key);
        counter = _mm512_add_epi64(counter, _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0));
    }
}

INLINE void do_round(const Stream *s, int round, __m512i *state) {
    const __m512i key = _mm512_broadcast_i32x4(s->round[round]);
    UNROLLED for (int i = 0; i < STATES; i++) state[i] = _mm512_aesenc_epi128(state[i], key);
}

INLINE void end_group(const Stream *s, const __m512i *state, uint64_t *words) {
    const __m512i key = _mm512_broadcast_i32x4(s->round[ROUNDS]);
    UNROLLED for (int i = 0; i < STATES; i++)
        _mm512_storeu_si512(words + 8 * i, _mm512_aesenclast_epi128(state[i], key));
}

static void key_stream(const Stream *s, uint64_t first, uint64_t *words, long blocks) {
    for (long at = 0; at < blocks; at += GROUP) {
        __m512i state[STATES];
        begin_group(s, first + (uint64_t)at, state);
        UNROLLED for (int r = 1; r < ROUNDS; r++) do_round(s, r, state);
        end_group(s, state, words + 2 * at);
    }
}
#elif defined(__VAES__) && defined(__AVX2__)
static void key_stream(const Stream *s, uint64_t first, uint64_t *words, long blocks) {
    const __m256i swap = _mm256_broadcastsi128_si256(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 4, 3, 2, 1, 0));
    const __m256i next = _mm256_set_epi64x(2, 0, 2, 0);
    const long long low = (long long)s->stretch, n = (long long)first;
    __m256i counter = _mm256_set_epi64x(n + 1, low, n, low);
    for (long at = 0; at < blocks; at += GROUP / 2) {
        __m256i state[GROUP / 4], key = _mm256_broadcastsi128_si256(s->round[0]);
        for (int i = 0; i < GROUP / 4; i++, counter = _mm256_add_epi64(counter, next))
            state[i] = _mm256_xor_si256(_mm256_shuffle_epi8(counter, swap), key);
        for (int r = 1; r < ROUNDS; r++) {
            key = _mm256_broadcastsi128_si256(s->round[r]);
            for (int i = 0; i < GROUP / 4; i++) state[i] = _mm256_aesenc_epi128(state[i], key);
        }
        key = _mm256_broadcastsi128_si256(s->round[ROUNDS]);
        for (int i = 0; i < GROUP / 4; i++)
            _mm256_storeu_si256((__m256i *)(words + 2 * (at + 2 * i)), _mm256_aesenclast_epi128(state[i], key));
    }
}
#else
static void key_stream(const Stream *s, uint64_t first, uint64_t *words, long blocks) {
    for (long at = 0; at < blocks; at += 8) {
        __m128i state[8];
        for (int i = 0; i < 8; i++) {
            __m128i counter = _mm_set_epi64x((long long)__builtin_bswap64(first + at + i), (long long)s->stretch);
            state[i] = _mm_xor_si128(counter, s->round[0]);
        }
        for (int r = 1; r < ROUNDS; r++)
            for (int i = 0; i < 8; i++) state[i] = _mm_aesenc_si128(state[i], s->round[r]);
        for (int i = 0; i < 8; i++)
            _mm_storeu_si128((__m128i *)(words + 2 * (at + i)), _mm_aesenclast_si128(state[i], s->round[ROUNDS]));
    }
}
#endif

/* ---- from words to normals ---- */

#define RATIO(r, a0, a1, a2, a3, a4, a5, a6, a7, b1, b2, b3, b4, b5, b6, b7)                                   \
    ((((((((a7 * r + a6) * r + a5) * r + a4) * r + a3) * r + a2) * r + a1) * r + a0) /                         \
     (((((((b7 * r + b6) * r + b5) * r + b4) * r + b3) * r + b2) * r + b1) * r + 1.0))

INLINE double as_double(uint64_t bits) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

INLINE uint64_t as_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

#define MANTISSA 0xfffffffffffffULL
#define OUTER 675539944105574ULL /* p < 0.075: k below 0.075 2^53 */
#define FAR 125091ULL            /* p < exp(-25) */

/* k 2^-53 exactly: 2^52 + k has the bits of k as its mantissa */
INLINE double half_uniform(uint64_t word) {
    return (as_double((word & MANTISSA) | 0x4330000000000000ULL) - 0x1p52) * 0x1p-53;
}

/* The inverse normal of 1/2 - q, and r = 0.180625 - q^2; of numbers or of vectors of them */
#define CENTRAL(q, r)                                                                                          \
    ((q) * RATIO((r), 3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,             \
                 1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,                 \
                 3.3430575583588128105e+4, 2.5090809287301226727e+3, 4.2313330701600911252e+1,                 \
                 6.8718700749205790830e+2, 5.3941960214247511077e+3, 2.1213794301586595867e+4,                 \
                 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3))

/* 1/2 - p is exact too, so that nothing is lost near zero */
INLINE double central(double p) {
    const double q = 0.5 - 0x1p-54 - p, r = 0.180625 - q * q;
    return CENTRAL(q, r);
}

/* log(p) for 0 < p < 0.7 as e log 2 + 2 atanh((m - 1) / (m + 1)), m in [0.71, 1.41]: within an ulp or so */
INLINE double logarithm(double p) {
    uint64_t bits = as_bits(p) - 0x3fe6a09e667f3bcdULL; /* of sqrt(1/2) */
    double e = as_double((bits >> 52) | 0x4330000000000000ULL) - (0x1p52 + 4096.0); /* it has wrapped below zero */
    double m = as_double((bits & MANTISSA) + 0x3fe6a09e667f3bcdULL);
    double f = m - 1.0, s = f / (2.0 + f), z = s * s;
    double tail = z * (2.0 / 3 + z * (2.0 / 5 + z * (2.0 / 7 + z * (2.0 / 9 + z * (2.0 / 11 + z * (2.0 / 13
                  + z * (2.0 / 15 + z * (2.0 / 17 + z * (2.0 / 19 + z * (2.0 / 21))))))))));
    return e * 0.693147180369123816490 + (e * 1.90821492927058770002e-10 + (2.0 * s + s * tail));
}

/* The inverse normals of p from the square roots of -log p */
INLINE double tail(double root) {
    const double r = root - 1.6;
    return RATIO(r, 1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                 3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                 2.27238449892691845833e-2, 7.74545014278341407640e-4, 2.05319162663775882187e0,
                 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
                 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9);
}

INLINE double far_tail(double root) { /* beyond 6.6 standard deviations */
    const double r = root - 5.0;
    return RATIO(r, 6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                 2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                 2.71155556874348757815e-5, 2.01033439929228813265e-7, 5.99832206555887937690e-1,
                 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
                 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15);
}

/* The sign bit set gives a positive draw. */
INLINE double with_sign(double size, uint64_t word) {
    return as_double(as_bits(size) | (~word & 0x8000000000000000ULL));
}

/* Collect the words whose draws lie in the tail, with their places in the 11 bits that no draw needs, and room for LANES
   more. Returns how many. */
#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
#define USED (MANTISSA | 0x8000000000000000ULL)
#define PLACE(word) ((word) >> 52 & (BLOCK - 1))

INLINE long tail_words_from(const uint64_t *words, long first, long count, uint64_t *outer, long found) {
    for (long i = first; i < count; i++) {
        outer[found] = (words[i] & USED) | (uint64_t)i << 52;
        found += (words[i] & MANTISSA) < OUTER;
    }
    return found;
}

#ifdef __AVX512F__
static long tail_words(const uint64_t *words, long count, uint64_t *outer) {
    const __m512i mantissa = _mm512_set1_epi64((long long)MANTISSA), border = _mm512_set1_epi64((long long)OUTER);
    const __m512i used = _mm512_set1_epi64((long long)USED), next = _mm512_set1_epi64((long long)LANES << 52);
    __m512i here = _mm512_slli_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), 52);
    long found = 0;
    for (long i = 0; i + LANES <= count; i += LANES, here = _mm512_add_epi64(here, next)) {
        __m512i some = _mm512_loadu_si512(words + i);
        __mmask8 lanes = _mm512_cmplt_epu64_mask(_mm512_and_si512(some, mantissa), border);
        some = _mm512_or_si512(_mm512_and_si512(some, used), here);
        _mm512_storeu_si512(outer + found, _mm512_maskz_compress_epi64(lanes, some)); /* compressing stores are slow */
        found += __builtin_popcount(lanes);
    }
    return tail_words_from(words, count / LANES * LANES, count, outer, found);
}
#elif defined(__AVX2__)
/* for each set of four lanes, those in front, as pairs of half words */
#define MOVE(a, b, c, d) {2 * a, 2 * a + 1, 2 * b, 2 * b + 1, 2 * c, 2 * c + 1, 2 * d, 2 * d + 1}
static const int32_t FRONT[16][8] = {
    MOVE(0, 1, 2, 3), MOVE(0, 1, 2, 3), MOVE(1, 0, 2, 3), MOVE(0, 1, 2, 3), MOVE(2, 0, 1, 3), MOVE(0, 2, 1, 3),
    MOVE(1, 2, 0, 3), MOVE(0, 1, 2, 3), MOVE(3, 0, 1, 2), MOVE(0, 3, 1, 2), MOVE(1, 3, 0, 2), MOVE(0, 1, 3, 2),
    MOVE(2, 3, 0, 1), MOVE(0, 2, 3, 1), MOVE(1, 2, 3, 0), MOVE(0, 1, 2, 3),
};

static long tail_words(const uint64_t *words, long count, uint64_t *outer) {
    const __m256i mantissa = _mm256_set1_epi64x((long long)MANTISSA), border = _mm256_set1_epi64x((long long)OUTER);
    const __m256i used = _mm256_set1_epi64x((long long)USED), next = _mm256_set1_epi64x((long long)LANES << 52);
    __m256i here = _mm256_slli_epi64(_mm256_set_epi64x(3, 2, 1, 0), 52);
    long found = 0;
    for (long i = 0; i + LANES <= count; i += LANES, here = _mm256_add_epi64(here, next)) {
        __m256i some = _mm256_loadu_si256((const __m256i *)(words + i));
        __m256i below = _mm256_cmpgt_epi64(border, _mm256_and_si256(some, mantissa));
        unsigned lanes = (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(below));
        some = _mm256_or_si256(_mm256_and_si256(some, used), here);
        some = _mm256_permutevar8x32_epi32(some, _mm256_loadu_si256((const __m256i *)FRONT[lanes]));
        _mm256_storeu_si256((__m256i *)(outer + found), some);
        found += __builtin_popcount(lanes);
    }
    return tail_words_from(words, count / LANES * LANES, count, outer, found);
}
#else
static long tail_words(const uint64_t *words, long count, uint64_t *outer) {
    return tail_words_from(words, 0, count, outer, 0);
}
#endif

/* Square roots by the instruction would keep the divider busy for longer than all else in the tail. From 14 bits two
   steps of Goldschmidt's make an ulp or so, and the exact residue of that the nearest double: the same bits. */
#ifdef __AVX512F__
static void square_roots(double *x, long count) {
    const __m512d half = _mm512_set1_pd(0.5);
    for (long i = 0; i < count; i += LANES) {
        const __m512d of = _mm512_load_pd(x + i), inverse = _mm512_rsqrt14_pd(of);
        __m512d root = _mm512_mul_pd(of, inverse), halved = _mm512_mul_pd(half, inverse);
        for (int step = 0; step < 2; step++) {
            const __m512d off = _mm512_fnmadd_pd(root, halved, half);
            root = _mm512_fmadd_pd(root, off, root), halved = _mm512_fmadd_pd(halved, off, halved);
        }
        _mm512_store_pd(x + i, _mm512_fmadd_pd(_mm512_fnmadd_pd(root, root, of), halved, root));
    }
}
#else
static void square_roots(double *x, long count) {
    for (long i = 0; i < count; i++) x[i] = sqrt(x[i]);
}
#endif

/* At most BLOCK draws; the first `done` are made already, as if they lay in the centre. */
static void normals(const uint64_t *restrict words, double *restrict draws, long done, long count) {
    uint64_t outer[BLOCK + LANES];
    double size[BLOCK] __attribute__((aligned(64))), draw[BLOCK];
    for (long i = done; i < count; i++) draws[i] = with_sign(central(half_uniform(words[i])), words[i]);
    const long found = tail_words(words, count, outer);
    for (long j = 0; j < found; j++) size[j] = -logarithm(half_uniform(outer[j]) + 0x1p-54);
    square_roots(size, found);
    for (long j = 0; j < found; j++) draw[j] = with_sign(tail(size[j]), outer[j]);
    for (long j = 0; j < found; j++) draws[PLACE(outer[j])] = draw[j];
    long far = 0;
    for (long j = 0; j < found; j++) far += (outer[j] & MANTISSA) < FAR;
    for (long j = 0; far > 0 && j < found; j++) /* one draw of 36 thousand million */
        if ((outer[j] & MANTISSA) < FAR) draws[PLACE(outer[j])] = with_sign(far_tail(size[j]), outer[j]);
}

/* ---- draws from a key stream ---- */

#if defined(__VAES__) && defined(__AVX512F__) && defined(__AVX512BW__)
typedef double Doubles __attribute__((vector_size(64)));
typedef uint64_t Words __attribute__((vector_size(64)));

/* A group's draws, as if they lay in the centre, and the words of the group after it: the one keeps the divider busy,
   the other the unit that encrypts. */
static void draw_and_stream(const Stream *s, const Words *words, Doubles *draws, uint64_t first, Words *next) {
    __m512i state[STATES];
    begin_group(s, first, state);
    UNROLLED for (int v = 0; v < STATES; v++) {
        const Doubles p = ((Doubles)((words[v] & MANTISSA) | 0x4330000000000000ULL) - 0x1p52) * 0x1p-53;
        const Doubles q = 0.5 - 0x1p-54 - p, r = 0.180625 - q * q;
        draws[v] = (Doubles)((Words)CENTRAL(q, r) | (~words[v] & 0x8000000000000000ULL));
        for (int round = 2 * v + 1; round < 2 * v + 3 && round < ROUNDS; round++) do_round(s, round, state);
    }
    end_group(s, state, (uint64_t *)next);
}

static void draw(const Stream *s, uint64_t first, uint64_t *words, double *draws, long count) {
    const long blocks = (count + 1) / 2;
    long at = GROUP; /* blocks whose words are there */
    key_stream(s, first, words, GROUP);
    for (; at < blocks; at += GROUP) {
        uint64_t *here = words + 2 * (at - GROUP);
        double *to = draws + 2 * (at - GROUP);
        draw_and_stream(s, (const Words *)here, (Doubles *)to, first + (uint64_t)at, (Words *)(here + 2 * GROUP));
    }
    normals(words, draws, 2 * (at - GROUP), count);
}
#else
static void draw(const Stream *s, uint64_t first, uint64_t *words, double *draws, long count) {
    key_stream(s, first, words, (count + 1) / 2);
    normals(words, draws, 0, count);
}
#endif

/* ---- what is called from Python ---- */

void tacit_normals(const uint64_t *words, double *draws, long count) {
    for (long at = 0; at < count; at += BLOCK)
        normals(words + at, draws + at, 0, count - at < BLOCK ? count - at : BLOCK);
}

typedef struct {
    const void *sum;
    void *out;
    long first, count; /* the draws that are its own */
    long single;       /* 1 if the sum is of floats, 2 if the result is, 3 if both are, 0 if none */
    double stddev;
} Vector;

/* out[i] = (sum[i] + stddev * draw[i]) * inverse, rounded once to the type of out: a division would take twice as long */
#define ADD_DRAWS(FROM, TO)                                                                                    \
    do {                                                                                                       \
        const FROM *restrict sum = (const FROM *)v->sum + (from - v->first);                                   \
        TO *restrict out = (TO *)v->out + (from - v->first);                                                   \
        for (long i = 0; i < count; i++) out[i] = (TO)(((double)sum[i] + stddev * draws[i]) * inverse);        \
    } while (0)

/* The draws from `low` to `high` to the part of the vector that they belong to. */
static void add_to(const Vector *v, const double *restrict draws, long low, long high, double inverse) {
    long from = low > v->first ? low : v->first, to = high < v->first + v->count ? high : v->first + v->count;
    const long count = to - from;
    const double stddev = v->stddev;
    draws += from - low;
    switch (v->single) {
    case 0: ADD_DRAWS(double, double); return;
    case 1: ADD_DRAWS(float, double); return;
    case 2: ADD_DRAWS(double, float); return;
    default: ADD_DRAWS(float, float); return;
    }
}

/* The last vector that starts at or before this draw. */
static long vector_of(const Vector *vectors, long count, long draw) {
    long low = 0, high = count;
    while (high - low > 1) {
        long middle = (low + high) / 2;
        if (vectors[middle].first <= draw) low = middle;
        else high = middle;
    }
    return low;
}

/* All vectors in one call, so that many small ones cost no more than a large one; they follow each other in the stream. */
void tacit_add_noise(const uint8_t *key, const uint8_t *counter, const Vector *vectors, long count, double denominator,
                     int threads) {
    Stream s;
    open_stream(&s, key, counter);
    long draws_in_all = count > 0 ? vectors[count - 1].first + vectors[count - 1].count : 0;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long low = 0; low < draws_in_all; low += BLOCK) {
        uint64_t words[BLOCK + 2 * GROUP] __attribute__((aligned(64)));
        double draws[BLOCK] __attribute__((aligned(64)));
        long high = low + BLOCK < draws_in_all ? low + BLOCK : draws_in_all;
        draw(&s, (uint64_t)(low / 2), words, draws, high - low);
        for (long v = vector_of(vectors, count, low); v < count && vectors[v].first < high; v++)
            if (vectors[v].count > 0) add_to(vectors + v, draws, low, high, 1.0 / denominator);
    }
    close_stream(&s);
}
