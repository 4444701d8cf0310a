// A picture seen from another side: the projective map that takes four corners to four others.
//
// Pure functions; any thread; the same bits on every processor.
#pragma once

#include <array>

#include "common/data/warp.h"

namespace cairn {

struct Point2 {
  double x = 0, y = 0;
};

// Where the output's pixel (x, y) takes its value from: x_in = (a0 x + a1 y + a2) / d, y_in = (a3 x + a4 y + a5) / d,
// d = a6 x + a7 y + 1.
using Projection = std::array<double, 8>;

// That which takes each of `to` to its one of `from`. All zeros: there is none.
Projection ProjectionOf(const std::array<Point2, 4>& from, const std::array<Point2, 4>& to);

// As Warp with FILL_CONSTANT; nearest: the nearest pixel instead of the bilinear value.
void Project(const PictureShape3& shape, const Projection& projection, bool nearest, float fill, const float* in,
             float* out);

}  // namespace cairn
