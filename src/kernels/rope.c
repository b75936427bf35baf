#include "kernels/ops.h"

#include <math.h>

void qn_rope_angles(float *cos_t, float *sin_t, const float *w, size_t n_pairs, size_t pos, float m)
{
    for (size_t i = 0; i < n_pairs; i++) {
        // The product is rounded to f32 as models were trained with; double's range reduction is
        // exact far beyond any angle that a position can give.
        const float angle = (float)pos * w[i];
        cos_t[i] = (float)(cos((double)angle) * (double)m);
        sin_t[i] = (float)(sin((double)angle) * (double)m);
    }
}
