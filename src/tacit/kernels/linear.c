/* Clipped sums of linear maps on vectors, for layers so small that a step is made of the overhead of calls.

   Records' gradients are g x^T and g. All sums are in double precision, in which squares of floats neither overflow nor
   vanish. A record whose norm is NaN or infinite has the factor 0 and is left out: 0 * inf would be NaN. */

#include <float.h>
#include <math.h>

/* Infinite where it would be so in single precision: the same records are left out with and without a compiler. */
static double square_sum(const float *restrict row, long count) {
    double parts[16] = {0.0}, total = 0.0;
    long i = 0;
    for (; i + 16 <= count; i += 16)
        for (int lane = 0; lane < 16; lane++) parts[lane] += (double)row[i + lane] * (double)row[i + lane];
    for (; i < count; i++) total += (double)row[i] * (double)row[i];
    for (int lane = 0; lane < 16; lane++) total += parts[lane];
    return total <= FLT_MAX ? total : INFINITY;
}

double tacit_square_sum(const float *row, long count); /* rows.c */

/* squares[record * stride] = |g|^2 |x|^2 for the weight and the next one |g|^2 for the bias, without that limit */
void tacit_linear_row_squares(const float *x, const float *g, long records, long in, long out, double *squares,
                              long stride) {
    for (long r = 0; r < records; r++) {
        double of_g = tacit_square_sum(g + r * out, out);
        squares[r * stride] = of_g * tacit_square_sum(x + r * in, in);
        squares[r * stride + 1] = of_g;
    }
}

/* squares[record * stride] = |g|^2 |x|^2 for the weight, and the next one |g|^2 for the bias */
void tacit_linear_squares(const float *x, const float *g, long records, long in, long out, double *squares, long stride) {
    for (long r = 0; r < records; r++) {
        double of_g = square_sum(g + r * out, out);
        squares[r * stride] = of_g * square_sum(x + r * in, in);
        squares[r * stride + 1] = of_g;
    }
}

/* min(1, clip / norm), a little less where a record is clipped; 0 where the norm is not finite */
void tacit_clip_factors(const double *squares, long records, long vectors, double clip, double shrink, double *factors) {
    for (long r = 0; r < records; r++) {
        double total = 0.0;
        for (long v = 0; v < vectors; v++) total += squares[r * vectors + v];
        double norm = sqrt(total);
        factors[r] = norm <= clip ? 1.0 : norm < INFINITY ? clip * shrink / norm : 0.0;
    }
}

/* weight [out, in] and bias [out] start at zero */
void tacit_linear_sums(const float *restrict x, const float *restrict g, const double *restrict factors, long records,
                       long in, long out, double *restrict weight, double *restrict bias) {
    for (long r = 0; r < records; r++) {
        if (factors[r] == 0.0) continue;
        for (long o = 0; o < out; o++) {
            double share = factors[r] * (double)g[r * out + o];
            bias[o] += share;
            for (long i = 0; i < in; i++) weight[o * in + i] += share * (double)x[r * in + i];
        }
    }
}
