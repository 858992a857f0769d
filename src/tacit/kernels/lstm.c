/* All steps of an LSTM, forwards and back, for a few rows at a time: what lies between two steps stays in the cache, and
   threads do not wait for each other.

   With the gates i, f, o (sigmoid) and a (tanh) of a step: c' = f c + i a and h' = o tanh(c').

   A row's numbers are formed by the same operations in the same order wherever it lies: sums go over k one after the
   other, and gates are computed in whole vectors, the last of which is filled up. No other row changes a bit of it.
   Tensors are [rows, steps, ...]; those of states have one step more. */

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX512F__
#define LANES 16
#define ROWS 8 /* rows at a time: ROWS by VECTORS vectors of sums stay in registers */
#else
#define LANES 8
#define ROWS 6
#endif
#define VECTORS 2
#define WIDTH (VECTORS * LANES)

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Bits __attribute__((vector_size(4 * LANES), aligned(4)));

static long least(long a, long b) { return a < b ? a : b; }

/* ---- gates ---- */

INLINE Vector load(const float *from, long count) {
    Vector found = {0};
    if (count >= LANES) return *(const Vector *)from;
    memcpy(&found, from, sizeof(float) * (size_t)count);
    return found;
}

INLINE void store(Vector values, float *to, long count) {
    if (count >= LANES) *(Vector *)to = values;
    else memcpy(to, &values, sizeof(float) * (size_t)count);
}

INLINE Vector all_of(float value) { return (Vector){0} + value; }
INLINE Vector pick(Bits where, Vector yes, Vector no) { return (Vector)((where & (Bits)yes) | (~where & (Bits)no)); }

/* e^x = 2^n e^r with |r| <= ln(2) / 2, e^r by the polynomial of Cephes; NaN stays NaN */
INLINE Vector exponential(Vector x) {
    const float whole = 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers, which are then its last bits */
    x = pick((Bits)(x < all_of(-87.0f)), all_of(-87.0f), x);
    x = pick((Bits)(x > all_of(87.0f)), all_of(87.0f), x);
    Vector rounded = x * 1.44269504f + whole, n = rounded - whole;
    Bits power = ((Bits)rounded - (Bits)all_of(whole) + 127) << 23;
    Vector r = x - n * 0.693359375f + n * 2.12194440e-4f, p = all_of(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * (Vector)power;
}

INLINE Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

/* near 0 by another polynomial of Cephes: 1 - 2 / (...) would be right to 1e-7 of 1 only */
INLINE Vector hyperbolic(Vector x) {
    Vector z = x * x, p = all_of(-5.70498872745e-3f), far = 1.0f - 2.0f / (1.0f + exponential(2.0f * x));
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return pick((Bits)(z < all_of(0.390625f)), p * z * x + x, far);
}

/* ---- one step of one row ---- */

static void forwards(float *gates, const float *before, float *after, float *said, long size) {
    for (long c = 0; c < size; c += LANES) {
        long count = least(LANES, size - c);
        Vector enter = sigmoid(load(gates + c, count)), forget = sigmoid(load(gates + size + c, count));
        Vector candidate = hyperbolic(load(gates + 2 * size + c, count)), leave = sigmoid(load(gates + 3 * size + c, count));
        Vector memory = forget * load(before + c, count) + enter * candidate;
        store(enter, gates + c, count), store(forget, gates + size + c, count);
        store(candidate, gates + 2 * size + c, count), store(leave, gates + 3 * size + c, count);
        store(memory, after + c, count), store(leave * hyperbolic(memory), said + c, count);
    }
}

/* `back` is the gradient of h by the steps that follow, `g_memory` that of c; found: of the gates before sigmoid and tanh */
static void backwards(const float *gates, const float *before, const float *after, const float *g_said,
                      const float *back, float *g_memory, float *found, long size) {
    for (long c = 0; c < size; c += LANES) {
        long count = least(LANES, size - c);
        Vector enter = load(gates + c, count), forget = load(gates + size + c, count);
        Vector candidate = load(gates + 2 * size + c, count), leave = load(gates + 3 * size + c, count);
        Vector seen = hyperbolic(load(after + c, count)), g = load(back + c, count) + load(g_said + c, count);
        Vector through = load(g_memory + c, count) + g * leave * (1.0f - seen * seen);
        store(through * candidate * enter * (1.0f - enter), found + c, count);
        store(through * load(before + c, count) * forget * (1.0f - forget), found + size + c, count);
        store(through * enter * (1.0f - candidate * candidate), found + 2 * size + c, count);
        store(g * seen * leave * (1.0f - leave), found + 3 * size + c, count);
        store(through * forget, g_memory + c, count);
    }
}

/* ---- products of a few rows with a matrix ---- */

/* A matrix [depth, width] in panels [depth][WIDTH], zeros behind the last column; entries are `down` and `right` apart. */
static float *panels_of(const float *matrix, long depth, long width, long down, long right) {
    long panels = (width + WIDTH - 1) / WIDTH;
    float *found = aligned_alloc(64, sizeof(float) * (size_t)((panels * depth * WIDTH + 15) / 16 * 16)), *to = found;
    for (long p = 0; found && p < panels; p++)
        for (long k = 0; k < depth; k++)
            for (long c = p * WIDTH; c < (p + 1) * WIDTH; c++) *to++ = c < width ? matrix[k * down + c * right] : 0.0f;
    return found;
}

/* to = x times the matrix, or that added to it; rows of x and of `to` are `from_row` and `to_row` apart */
static void multiply(const float *x, long from_row, const float *panels, long depth, long width, float *to, long to_row,
                     long rows, int add) {
    const float *line[ROWS];
    for (int r = 0; r < ROWS; r++) line[r] = x + least(r, rows - 1) * from_row; /* rows that are not there: the last again */
    for (long c = 0; c < width; c += WIDTH, panels += depth * WIDTH) {
        Vector sum[ROWS][VECTORS] = {{{0}}};
        for (long k = 0; k < depth; k++)
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < VECTORS; v++) sum[r][v] += line[r][k] * *(const Vector *)(panels + k * WIDTH + v * LANES);
        for (long r = 0; r < rows; r++)
            for (long v = 0; v < VECTORS && c + v * LANES < width; v++) {
                float *place = to + r * to_row + c + v * LANES;
                long count = least(LANES, width - c - v * LANES);
                store(add ? load(place, count) + sum[r][v] : sum[r][v], place, count);
            }
    }
}

/* ---- all steps ---- */

/* gates: the projected inputs, which become the gates; memories and outputs hold the state before the first step.
   weight is [4 size, size]. 0, or 1 where memory is short. */
int tacit_lstm_forward(float *gates, float *memories, float *outputs, const float *weight, long rows, long steps,
                       long size, int threads) {
    float *panels = panels_of(weight, size, 4 * size, 1, size);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long row = 0; row < (panels ? rows : 0); row += ROWS) {
        long count = least(ROWS, rows - row);
        for (long step = 0; step < steps; step++) {
            float *gate = gates + (row * steps + step) * 4 * size, *said = outputs + (row * (steps + 1) + step) * size;
            multiply(said, (steps + 1) * size, panels, size, 4 * size, gate, steps * 4 * size, count, 1);
            for (long r = 0; r < count; r++) {
                float *memory = memories + ((row + r) * (steps + 1) + step) * size;
                forwards(gate + r * steps * 4 * size, memory, memory + size, said + (r * (steps + 1) + 1) * size, size);
            }
        }
    }
    free(panels);
    return !panels;
}

/* found: the gradients of the projected inputs; back and g_memory [rows, size]: of h and c after the last step, which
   become those before the first. */
int tacit_lstm_backward(const float *gates, const float *memories, const float *g_outputs, const float *weight,
                        float *back, float *g_memory, float *found, long rows, long steps, long size, int threads) {
    float *panels = panels_of(weight, 4 * size, size, size, 1);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long row = 0; row < (panels ? rows : 0); row += ROWS) {
        long count = least(ROWS, rows - row);
        for (long step = steps - 1; step >= 0; step--) {
            for (long r = row; r < row + count; r++) {
                const float *memory = memories + (r * (steps + 1) + step) * size;
                long place = r * steps + step;
                backwards(gates + place * 4 * size, memory, memory + size, g_outputs + place * size, back + r * size,
                          g_memory + r * size, found + place * 4 * size, size);
            }
            multiply(found + (row * steps + step) * 4 * size, steps * 4 * size, panels, 4 * size, size,
                     back + row * size, size, count, 0);
        }
    }
    free(panels);
    return !panels;
}
