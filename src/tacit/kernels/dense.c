/* Small dense networks: what each record adds to the gradient, measured, and then the clipped sum.

   Layers z = W a + b, each but the last followed by an activation, and one loss of the last layer's outputs. A record's
   gradient by W is g a^T and by b is g, where g is the derivative of its loss by z: |g a^T|^2 = |g|^2 |a|^2.

   A record is computed by itself from first to last, in one order of additions: neither the other records nor the number
   of threads change a bit of it. Norms and sums are in double precision, of the very numbers that the other phase uses. */

#include <math.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define ROWS 4 /* that are added at a time, so that a sum is read and written once for all of them */

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Places __attribute__((vector_size(4 * LANES)));

#if LANES == 16
static const Places LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
static const Places LANE = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

double tacit_square_sum(const float *row, long count); /* rows.c */

enum { NONE, RELU, TANH, SIGMOID };
enum { CLASSES, YES_OR_NO, NUMBER, COUNT }; /* what is predicted */

typedef struct {
    long layers, in, parameters;
    const long *outs;                     /* of each layer */
    const float *const *weights, *const *biases; /* a bias may be missing */
    const long *activations;
    const long *columns; /* where squares and factors of each weight and bias lie among those of a row, or -1 */
    long kind;
    double scale;  /* of numbers: 1 / variance; of counts: half of the largest */
    long weighed;  /* records count min(1, 1 / |x|) */
    long rows;
    const float *x;
    const long *classes;  /* of each row, or ... */
    const float *numbers; /* ... its number */
    float *room; /* of each layer: [rows, out] after the activation, then [rows, out] of derivatives */
} Network;

static float dot(const float *a, const float *b, long count) {
    Vector lanes[2] = {{0}};
    float tail = 0.0f;
    long k = 0;
    for (; k + 2 * LANES <= count; k += 2 * LANES)
        for (int v = 0; v < 2; v++) lanes[v] += *(const Vector *)(a + k + v * LANES) * *(const Vector *)(b + k + v * LANES);
    if (k + LANES <= count) lanes[0] += *(const Vector *)(a + k) * *(const Vector *)(b + k), k += LANES;
    for (; k < count; k++) tail += a[k] * b[k];
    Vector sum = lanes[0] + lanes[1];
    for (int half = LANES / 2; half > 1; half /= 2) sum += __builtin_shuffle(sum, LANE ^ half);
    return sum[0] + sum[1] + tail;
}

static float activated(float z, long how) {
    switch (how) {
    case RELU: return z < 0.0f ? 0.0f : z; /* NaN stays NaN */
    case TANH: return tanhf(z);
    case SIGMOID: return 1.0f / (1.0f + expf(-z));
    default: return z;
    }
}

/* the derivative of the activation where its value is a, times g */
static float through(float g, float a, long how) {
    switch (how) {
    case RELU: return a <= 0.0f ? 0.0f : g;
    case TANH: return g * (1.0f - a * a);
    case SIGMOID: return g * (1.0f - a) * a;
    default: return g;
    }
}

/* g = derivatives of the loss by the outputs z; what is no class adds nothing, and 1 is returned */
static int by_outputs(const Network *n, long row, const float *z, float *g, long out) {
    if (n->kind == CLASSES) {
        long class = n->classes[row];
        if (class < 0 || class >= out) {
            memset(g, 0, sizeof(float) * (size_t)out);
            return class != -100; /* which stands for "leave out" in PyTorch */
        }
        float most = z[0], total = 0.0f;
        for (long o = 1; o < out; o++) most = z[o] > most ? z[o] : most;
        for (long o = 0; o < out; o++) total += g[o] = z[o] - most == 0.0f ? 1.0f : expf(z[o] - most);
        for (long o = 0; o < out; o++) g[o] /= total;
        g[class] -= 1.0f;
        return 0;
    }
    float y = n->numbers[row];
    if (n->kind == YES_OR_NO) g[0] = 1.0f / (1.0f + expf(-z[0])) - y;
    else if (n->kind == NUMBER) g[0] = (float)(((double)z[0] - (double)y) * n->scale);
    else g[0] = (float)(exp(fmin((double)z[0], log(2 * n->scale))) / n->scale - (1.0 + (double)y)) + 0.0f * z[0];
    return 0;
}

static float *values(const Network *n, long layer, long row) {
    long before = 0;
    for (long l = 0; l < layer; l++) before += n->outs[l];
    return n->room + 2 * before * n->rows + row * n->outs[layer];
}

static float *derivatives(const Network *n, long layer, long row) {
    return values(n, layer, row) + n->rows * n->outs[layer];
}

static int measure_row(const Network *n, long row, double *squares) {
    const float *x = n->x + row * n->in, *a = x;
    long in = n->in;
    for (long l = 0; l < n->layers; l++) {
        float *z = values(n, l, row);
        for (long o = 0; o < n->outs[l]; o++) z[o] = dot(n->weights[l] + o * in, a, in) + (n->biases[l] ? n->biases[l][o] : 0.0f);
        if (n->activations[l] != NONE)
            for (long o = 0; o < n->outs[l]; o++) z[o] = activated(z[o], n->activations[l]);
        a = z, in = n->outs[l];
    }
    long last = n->layers - 1;
    float *g = derivatives(n, last, row);
    int fault = by_outputs(n, row, a, g, in);
    if (n->weighed) {
        double length = sqrt(tacit_square_sum(x, n->in));
        float weight = length > 1.0 || length != length ? (float)(1.0 / length) : 1.0f;
        for (long o = 0; o < in; o++) g[o] *= weight;
    }
    for (long l = last; l >= 0; l--) {
        const float *from = l ? values(n, l - 1, row) : x;
        long width = l ? n->outs[l - 1] : n->in;
        double of_g = tacit_square_sum(g, n->outs[l]);
        if (n->columns[2 * l] >= 0) squares[n->columns[2 * l]] = of_g * tacit_square_sum(from, width);
        if (n->columns[2 * l + 1] >= 0) squares[n->columns[2 * l + 1]] = of_g;
        if (l == 0) break;
        float *to = derivatives(n, l - 1, row);
        memset(to, 0, sizeof(float) * (size_t)width);
        for (long o = 0; o < n->outs[l]; o++)
            for (long i = 0; i < width; i++) to[i] += g[o] * n->weights[l][o * width + i];
        for (long i = 0; i < width; i++) to[i] = through(to[i], from[i], n->activations[l - 1]);
        g = to;
    }
    return fault;
}

/* squares [rows, parameters]; returns how many rows have no class that there is */
long tacit_dense_squares(const Network *n, double *squares, int threads) {
    long faults = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : faults) if (threads > 1)
    for (long row = 0; row < n->rows; row++) faults += measure_row(n, row, squares + row * n->parameters);
    return faults;
}

static void add_outer(const Network *n, long layer, long out, const double *factors, double *restrict to) {
    const long column = n->columns[2 * layer], in = layer ? n->outs[layer - 1] : n->in;
    const float *some[ROWS] = {0};
    double scales[ROWS];
    long held = 0;
    for (long row = 0; row <= n->rows; row++) {
        if (row < n->rows) {
            double factor = factors[row * n->parameters + column];
            if (factor == 0.0) continue; /* what has no share may be infinite */
            some[held] = layer ? values(n, layer - 1, row) : n->x + row * in;
            scales[held++] = factor * (double)derivatives(n, layer, row)[out];
        }
        if (held == 0 || (held < ROWS && row < n->rows)) continue;
        for (; held < ROWS; held++) some[held] = some[0], scales[held] = 0.0;
        const float *restrict a = some[0], *restrict b = some[1], *restrict c = some[2], *restrict d = some[3];
        for (long i = 0; i < in; i++)
            to[i] += (scales[0] * (double)a[i] + scales[1] * (double)b[i]) + (scales[2] * (double)c[i] + scales[3] * (double)d[i]);
        held = 0;
    }
}

static void add_layer(const Network *n, long layer, long out, const double *factors, double *const *to) {
    const long in = layer ? n->outs[layer - 1] : n->in, column = n->columns[2 * layer + 1];
    if (n->columns[2 * layer] >= 0) {
        memset(to[2 * layer] + out * in, 0, sizeof(double) * (size_t)in);
        add_outer(n, layer, out, factors, to[2 * layer] + out * in);
    }
    if (column < 0) return;
    double total = 0.0;
    for (long row = 0; row < n->rows; row++) {
        double factor = factors[row * n->parameters + column];
        if (factor != 0.0) total += factor * (double)derivatives(n, layer, row)[out];
    }
    to[2 * layer + 1][out] = total;
}

/* Each row's factor for all parameters together: min(1, C / |gradient|), and 0 where the norm is no number.
   `clip`: C, what is divided by the norm of longer ones, and what is added to every norm for what squares have lost. */
static void clip_rows(const Network *n, const double *squares, const double *clip, double *factors) {
    for (long row = 0; row < n->rows; row++) {
        double total = 0.0;
        for (long p = 0; p < n->parameters; p++) total += squares[row * n->parameters + p];
        double norm = sqrt(total) + clip[2], factor = norm <= clip[0] ? 1.0 : clip[1] / norm;
        if (!(norm < INFINITY)) factor = 0.0; /* NaN is not below infinity */
        for (long p = 0; p < n->parameters; p++) factors[row * n->parameters + p] = factor;
    }
}

/* to[2 l] = the sum of factor * g a^T over rows, as the weight of layer l lies, and to[2 l + 1] that of its bias */
void tacit_dense_sums(const Network *n, const double *factors, double *const *to, int threads) {
    long most = 0;
    for (long l = 0; l < n->layers; l++) most = n->outs[l] > most ? n->outs[l] : most;
#pragma omp parallel for num_threads(threads) schedule(static) collapse(2) if (threads > 1)
    for (long layer = 0; layer < n->layers; layer++)
        for (long out = 0; out < most; out++)
            if (out < n->outs[layer]) add_layer(n, layer, out, factors, to);
}

/* All of it in one call. `factors` is room for as many numbers as there are squares. */
long tacit_dense_clipped(const Network *n, const double *clip, double *squares, double *factors, double *const *to,
                         int threads) {
    long faults = tacit_dense_squares(n, squares, threads);
    clip_rows(n, squares, clip, factors);
    tacit_dense_sums(n, factors, to, threads);
    return faults;
}
