// Perspective transformations of pictures: the projective map that takes four corners to four others.
//
// Pure functions; any thread. Every processor computes the same bits.
#pragma once

#include <array>

#include "common/data/warp.h"

namespace cairn {

struct Point2 {
  double x = 0, y = 0;
};

// The input position from which the output's pixel (x, y) takes its value: x_in = (a0 x + a1 y + a2) / d, y_in = (a3 x
// + a4 y + a5) / d, d = a6 x + a7 y + 1.
using Projection = std::array<double, 8>;

// The projection that maps each point of `to` to the corresponding one of `from`. All zeros if there is none.
Projection ProjectionOf(const std::array<Point2, 4>& from, const std::array<Point2, 4>& to);

// As Warp with FILL_CONSTANT; nearest: the nearest pixel instead of the bilinear value.
void Project(const PictureShape3& shape, const Projection& projection, bool nearest, float fill, const float* in,
             float* out);

}  // namespace cairn
